"""The config file: what it may say, what is refused in one line, and which value counts."""

import json
import subprocess
import tomllib

import pytest

from ddpmon import config
from ddpmon.cli.commands.replaying import unpack
from ddpmon.errors import UsageError
from ddpmon.tui import keymap, keys, palette
from ddpmon.tui.config_check import check_config
from tests import in_process
from tests.conftest import ddpmon_program
from tests.tui.terminal import Terminal


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write the config file of this test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def write(text: str):
        path = tmp_path / "config" / "ddpmon" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        config._read.cache_clear()
        palette._own_themes.cache_clear()
        return path

    yield write
    config._read.cache_clear()
    palette._own_themes.cache_clear()


def called(*words):
    return subprocess.run([ddpmon_program(), *words], capture_output=True, text=True, check=False)


def test_without_a_file_all_values_are_defaults(written):
    assert config.current().get("first_screen") == "world"
    assert not config.current().exists
    check_config()


@pytest.mark.parametrize(("text", "words"), [
    ("theme = 'purple'", "theme = 'purple' is not allowed; allowed: dark, light, ansi, or a name from"),
    ("notify = 'loud'", "notify = 'loud' is not allowed; allowed: off, bell, desktop, both, or URLs separated by"),
    ("first_screen = 'word'", "first_screen = 'word' is not allowed; did you mean world? allowed: world, ranks, heat"),
    ("first_screen = 'inspect'", "first_screen = 'inspect' is not allowed"),
    ("units = 'metric'", "units = 'metric' is not allowed; allowed: binary or decimal"),
    ("colour = 1", "there is no key colour; allowed: theme, first_screen"),
    ("gpu_hour = 1", "there is no key gpu_hour; did you mean price.gpu_hour? allowed: theme"),
    ("[prize]\ngpu_hour = 1", "there is no key prize; did you mean [price]? allowed: theme"),
    ("[ranks]\ncolums = []", "there is no key ranks.colums; did you mean ranks.columns? allowed: "),
    ("ranks = 3", "ranks = 3 is not allowed; allowed: a table, [ranks]"),
    ("[ranks]\ncolumns = []", "ranks.columns = [] is not allowed; allowed: a list of columns"),
    ("[ranks]\ncolumns = ['own', 'speed']", "ranks.columns = 'speed' is not allowed; allowed: rank, host"),
    ("[price]\ngpu_hour = -1", "price.gpu_hour = -1 is not allowed; allowed: a number above 0"),
    ("[price]\ngpu_hour = nan", "price.gpu_hour = nan is not allowed"),
    ("[price]\ngpu_hour = true", "price.gpu_hour = True is not allowed"),
    ("[folders]\nruns = 'here'", "folders.runs = 'here' is not allowed; allowed: an absolute path"),
    ("keys = 3", "keys = 3 is not allowed; allowed: a table, [keys]"),
    ("[keys]\nx = 3", "keys.x = 3 is not allowed; allowed: one character, or a name such as ctrl+x"),
    ("[keys]\nx = 'q'", "keys.x = 'q' is not allowed; allowed: a key that has no other action on world"),
    ("[keys]\n'ctrl+c' = 'q'", "keys.ctrl+c = 'q' is not allowed; allowed: any key but ctrl+c"),
    ("[keys]\nU = 'u'", "keys.U = 'u' is not allowed; allowed: a new key for one that ? lists, and U is not"),
    ("[keys.world]\nf5 = 'u'", "lists, and f5 is not"),
    ("[keys.word]\ns = 'o'", "there is no key keys.word; did you mean keys.world? allowed: keys.world, keys.ranks"),
    ("[keys]\nx = 'ctrl+foo'", "keys.x = 'ctrl+foo' is not allowed; allowed: one character, or a name such as ctrl+x"),
    ("[keys]\nx = 'f99'", "keys.x = 'f99' is not allowed"),
    ("[themes]\nmine = 3", "themes.mine = 3 is not allowed; allowed: a table, [themes.mine]"),
    ("[themes.mine]\nwarn = 'red'", "themes.mine.warn = 'red' is not allowed; allowed: base (dark or light), and a"),
    ("[themes.mine]\nwarm = '#ff0000'", "themes.mine.warm = '#ff0000' is not allowed"),
    ("[themes.dark]\nwarn = '#ff0000'", "[themes.dark] is not allowed; allowed: another name than dark, light"),
    ("theme = ", "is not valid TOML: "),
])  # fmt: skip
def test_a_wrong_value_is_one_line_with_the_file_the_key_and_what_is_allowed(written, text, words):
    path = written(text)
    with pytest.raises(UsageError) as error:
        check_config()
    assert str(error.value).startswith(str(path))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


WRONG = {
    "units": "units = 'metric'",
    "theme": "theme = 'purple'",
    "them": "them = 'dark'",
    "keys.x": "[keys]\nx = 'ctrl+foo'",
    "themes.mine.warn": "[themes.mine]\nwarn = 'red'",
    "not valid TOML": "theme = ",
}


@pytest.mark.parametrize("key", WRONG)
def test_commands_that_do_not_need_a_wrong_value_say_one_line_and_go_on(written, home, key):
    path = written(WRONG[key])
    unpack()
    for words, code in ((["stop", "line"], 0), (["ls"], 0), (["report", "line"], 0), (["stack", "line"], 1)):
        result = in_process.called(*words)
        assert result.returncode == code, result.stderr
        first, *others = result.stderr.splitlines()
        assert first.startswith(f"ddpmon: {path}")
        assert key in first
        assert not any(str(path) in line for line in others)
        assert result.stdout or others


@pytest.mark.parametrize("key", WRONG)
def test_a_command_that_starts_a_run_refuses_only_the_values_that_it_needs(written, home, key):
    written(WRONG[key])
    result = in_process.called("exec", "--headless", "--", "true")
    assert key in result.stderr.splitlines()[0]
    assert result.returncode == (2 if key in {"units", "not valid TOML"} else 0), result.stderr


def test_a_wrong_theme_is_reported_once_and_with_its_own_key(written, home):
    path = written("theme = 'mine'\n" + WRONG["themes.mine.warn"])
    with Terminal("ddpmon", "demo", fresh=True) as terminal:
        assert terminal.wait_end() == 2
        told = terminal.raw.decode()
    assert told.count("themes.mine.warn = 'red' is not allowed") == told.count(str(path)) == 1
    assert "DDPMON_THEME" not in told


def test_an_option_names_its_variable_only_if_the_variable_has_the_value(home, monkeypatch):
    assert "Invalid value for '--notify': 'foo' is not one of" in called("run", "--notify", "foo", "x.py").stderr
    monkeypatch.setenv("DDPMON_NOTIFY", "foo")
    assert "'--notify' (env var: 'DDPMON_NOTIFY'): 'foo' is not" in called("run", "x.py").stderr


def test_a_value_that_only_its_command_can_judge_is_refused_with_its_key(written, home):
    path = written("keep = 'much'")
    result = called("exec", "--headless", "--", "true")
    assert result.returncode == 2
    assert f"({path} sets keep)" in result.stderr
    unpack()
    listed = called("ls")
    assert (listed.returncode, len(listed.stderr.splitlines())) == (0, 1)
    assert f"({path} sets keep)" in listed.stderr


def test_the_environment_takes_precedence_over_the_file_and_ddpmon_config_says_so(written, home, monkeypatch):
    path = written("theme = 'light'\nnotify = 'bell'\n[folders]\nsockets = '/tmp/elsewhere'\n[keys.ranks]\ns = 'o'\n")
    monkeypatch.setenv("DDPMON_NOTIFY", "desktop")
    result = called("config")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == f"# config file: {path}"
    assert 'theme = "light"  # config file' in lines
    assert 'notify = "desktop"  # environment: DDPMON_NOTIFY' in lines
    assert 'first_screen = "world"  # default' in lines
    assert f'sockets = "{home / "s"}"  # environment: DDPMON_RUNTIME_DIR' in lines
    assert tomllib.loads(result.stdout)["keys"] == {"ranks": {"s": "o"}}
    written(result.stdout)
    check_config()  # what it prints is a file that ddpmon takes


def test_the_urls_of_the_file_are_for_its_owner_alone_and_are_not_shown(written, home):
    path = written("notify = 'bell ntfy://my-topic'")
    path.chmod(0o644)
    assert called("config").stderr == f"ddpmon: {path}: others can read the URLs of notify; chmod 600 {path}\n"
    path.chmod(0o600)
    assert 'notify = "bell ntfy://…"  # config file' in called("config").stdout


def test_the_folder_of_the_file_is_where_runs_are(written, home, monkeypatch, tmp_path):
    monkeypatch.delenv("DDPMON_HOME")
    written(f"[folders]\nruns = '{tmp_path}/mine'\n")
    assert f'runs = "{tmp_path}/mine"  # config file' in called("config").stdout
    (tmp_path / "mine").mkdir(mode=0o755)
    assert f"other users can enter the folder {tmp_path}/mine" in called("run", "--headless", "train.py").stderr


def test_the_units_of_the_file_are_those_of_every_command_and_of_the_hub(written, home):
    written("units = 'decimal'\n")
    assert 'units = "decimal"  # config file' in called("config").stdout
    result = called("exec", "--headless", "--name", "mine", "--", "printenv", "DDPMON_UNITS")
    assert result.returncode == 0, result.stderr
    # The supervisor starts the hub with the environment of the command.
    assert called("logs", "mine").stdout.split()[-1] == "decimal"
    unpack()
    shown = called("snapshot", "line", "--screen", "devices").stdout
    assert "mem GB" in shown
    assert "GiB" not in shown


def test_units_that_there_are_not_are_one_line(home, monkeypatch):
    monkeypatch.setenv("DDPMON_UNITS", "metric")
    result = called("ls")
    line = "ddpmon: DDPMON_UNITS='metric' is not allowed; allowed: binary, decimal\n"
    assert (result.returncode, result.stderr) == (0, line)
    assert called("exec", "--headless", "--", "true").stderr == line


def test_commands_without_a_dashboard_report_what_no_dashboard_could_use_and_go_on(written, home, monkeypatch):
    path = written("first_screen = 'word'\nunits = 3\n[keys]\nx = 'q'\n")
    unpack()
    wrong = ("units = 3", "first_screen = 'word'", "keys.x = 'q'")
    lines = [f"{path}: {each} is not allowed" for each in wrong]
    for words in (["ls"], ["report", "line"], ["status", "line"]):
        result = called(*words)
        assert result.returncode in {0, 1}, result.stderr
        told = [line[: line.index(";")] for line in result.stderr.splitlines()]
        assert told == [f"ddpmon: {line}" for line in lines]
        assert result.stdout
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)  # tests/doctor asks the real torch
    checked = called("doctor", "--json")
    found = [check["text"] for check in json.loads(checked.stdout) if check["about"] == "config file"]
    assert [text[: text.index(";")] for text in found] == lines
    assert path.name not in checked.stderr


def test_keys_move_on_one_screen_or_on_all(written):
    written("[keys]\nx = 'q'\nq = 'x'\n'[' = '('\n[keys.ranks]\ns = 'ctrl+o'\n")
    moved = keymap.remapped_keys(keys.DEFAULT_KEYS, config.current())

    def of(action, view):
        return [(key.keys, key.shown) for key in moved if key.action == action and view in key.views]

    assert of("app.stop", "ranks") == of("app.stop", "world") == [("q", "q")]
    assert of("app.detach", "ranks") == [("x", "x")]
    assert of("screen.do('sort')", "ranks") == [("ctrl+o", "ctrl+o")]
    assert of("screen.do('sort')", "world") == [("s", "s")]
    assert {("left_parenthesis", "(")} == set(of("app.skip(-1)", "world"))
    assert keymap.remapped_keys(keys.DEFAULT_KEYS, config.Config(config.current().path)) == keys.DEFAULT_KEYS


def test_a_theme_of_the_file_has_its_colours_and_else_those_of_its_base(written):
    written("[themes.mine]\nbase = 'light'\nwarn = 'bold #ff0000'\nbackground = '#fefefe'\n")
    theme, colours = palette.own_themes()["mine"]
    assert (theme.background, theme.warning, theme.dark) == ("#fefefe", "#ff0000", False)
    assert colours.style("warn").color.name == "#ff0000"
    assert colours.style("bad") == palette.LIGHT.style("bad")
    assert palette.theme_name("mine") == "mine"


def test_the_dashboard_opens_as_the_file_says(written, home):
    written(
        "theme = 'mine'\nfirst_screen = 'ranks'\n[ranks]\ncolumns = ['wait', 'own']\n"
        "[keys]\nq = 'Q'\n[themes.mine]\nstrong = 'bold #010203'\nwarn = 'bold #010203'\n"
    )
    environment = {"COLORTERM": "truecolor", "NO_COLOR": ""}
    with Terminal("ddpmon", "demo", fresh=True, environment=environment) as terminal:
        terminal.wait_for("rank    wait  own ms▾")
        terminal.wait_for("Q quit")
        assert b"38;2;1;2;3" in terminal.raw
        terminal.press(b"Q")
        assert terminal.wait_end() == 0


def test_a_theme_that_there_is_not_is_refused_before_anything_starts(written, home):
    written("[themes.mine]\nwarn = '#ff0000'\n")
    result = called("run", "--theme", "yours", "train.py")
    assert result.returncode == 2
    assert "Invalid value for '--theme': 'yours' is not one of 'dark', 'light', 'ansi', 'mine'" in result.stderr
