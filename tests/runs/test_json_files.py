"""A run.json that is not as it should be: one line about it, and nothing of the others is hidden."""

from __future__ import annotations

import copy
import json
import os
import random

import pytest
from click.testing import CliRunner

from ddpmon import runs
from ddpmon.cli import command_line
from ddpmon.errors import DdpmonError, RunNotFoundError

REFUSED = r"run\.json cannot be read: "
WRONG = {
    "grace_s": ["x", -1, float("nan"), 1e300, True], "argv": [3, "torchrun", [1], [["a"]], {"a": "b"}, ["a\0b"]],
    "hub_at": ["node0", 1, None],
    "created_at": ["z", None, -5, 1e18, 10**400, float("inf")],
    "ended_at": [[1], "now", 1e17], "name": [5, None],
    "world_size": ["9", -1, 10**30, 2.5], "exit_code": [{}, 2**40, 1.5], "id": ["../../elsewhere", "other", None],
    "supervisor": [{"pid": 10**30, "start_ticks": 1}, {"pid": 0, "start_ticks": 1}, {"pid": 1}, 7],
    "environment": [["A=1"], {"A": 1}, {"A=B": "c"}, {"": "c"}], "versions": [{"torch": {}}], "stopping": ["no", 2],
    "cwd": [None, "a\0b", "\ud800"], "host": [{}], "notes": ["note"],
}  # fmt: skip


def write(run, content: object) -> None:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    (runs.run_dir(run.id) / "run.json").write_bytes(text)


def good(run):
    return json.loads((runs.run_dir(run.id) / "run.json").read_text())


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG.items() for value in values])
def test_a_value_of_a_wrong_type_or_out_of_range_is_named(run, key, value):
    write(run, good(run) | {key: value})
    with pytest.raises(RunNotFoundError, match=rf"run\.json cannot be read: (the )?{key}") as caught:
        runs.load(run.id)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b"7", b'"text"', b"\xff\xfe\x00", b"\0" * 1000, b"[" * 200_000, b'{"id": ' * 50_000,
        b'{"id": 1' + b"0" * 5000 + b"}", b" " * (17 << 20),
    ],
)  # fmt: skip
def test_what_is_no_run_json_is_one_line(run, content):
    write(run, content)
    with pytest.raises(RunNotFoundError, match=REFUSED):
        runs.load(run.id)


def test_a_hundred_megabytes_are_not_even_read(run):
    with (runs.run_dir(run.id) / "run.json").open("ab") as file:
        file.truncate(100 << 20)
    with pytest.raises(RunNotFoundError, match="the file has 104,857,600 bytes"):
        runs.load(run.id)


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop"])
def test_what_is_no_file_is_one_line_and_holds_nobody_up(run, kind):
    path = runs.run_dir(run.id) / "run.json"
    path.unlink()
    make = {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "loop": lambda: path.symlink_to(path)}
    make[kind]()
    with pytest.raises(RunNotFoundError, match=REFUSED):
        runs.load(run.id)


def test_one_that_may_not_be_read_is_one_line(run):
    import subprocess
    import sys

    if os.getuid() != 0:
        pytest.skip("needs a second user")
    for folder in (runs.home().parent, runs.home(), runs.runs_dir(), runs.run_dir(run.id)):
        folder.chmod(0o711)
    program = (
        "import os, sys; from ddpmon import runs, errors; os.setuid(54321)\n"
        "try: runs.load(sys.argv[1])\nexcept errors.RunNotFoundError as error: print(error)"
    )
    told = subprocess.check_output([sys.executable, "-c", program, run.id], text=True)
    assert told.endswith("run.json cannot be read: Permission denied\n")


def test_fields_of_a_newer_version_are_left_out_and_new_ones_have_their_defaults(run):
    older = good(run)
    del older["pid_namespace"], older["hides"], older["notes"]
    write(run, older | {"colour": {"of": ["the", "future"]}})
    assert runs.load(run.id) == runs.update(run.id, pid_namespace="")


def test_ls_shows_the_others_and_one_line_about_it(cli, run):
    other = runs.Run(**{**run.__dict__, "id": "20260101-000002-0002", "name": "well", "ended_at": 2.0, "exit_code": 0})
    runs.create(other)
    write(run, good(run) | {"grace_s": "x"})
    told = cli("ls")
    assert told.returncode == 0
    assert [line.split()[1] for line in told.stdout.partition("\n\n")[0].splitlines()] == ["NAME", "well"]
    said = f'{runs.run_dir(run.id)}/run.json cannot be read: grace_s is "x"'
    assert told.stderr == f"ddpmon: {said}\n"
    assert cli("status", run.id).stderr == f"ddpmon: {said}\n"


def mutated(chance: random.Random, text: str) -> bytes:
    """A run.json with a value changed, a key gone, a piece of another value, or bytes changed."""
    raw = json.loads(text)
    odd = [
        None, True, -1, 0, 2**63, 10**30, 1e308, -0.5, "", "x" * 5000, "\0", "\ud800", "\x1b[2J", "../..", [], {}, [[]],
        [None], {"a": {}}, {"": ""}, [1, "2"], {"pid": -1, "start_ticks": 0}, {"pid": 1, "start_ticks": 2**70},
    ]  # fmt: skip
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        key = chance.choice(sorted(raw))
        match chance.randrange(4):
            case 0:
                raw[key] = copy.deepcopy(chance.choice(odd))
            case 1:
                del raw[key]
            case 2:
                raw[key] = raw[chance.choice(sorted(raw))]
            case 3 if isinstance(raw[key], list):
                raw[key].append(chance.choice(odd))
            case 3 if isinstance(raw[key], dict):
                raw[key][chance.choice(["pid", "A", ""])] = chance.choice(odd)
    made = bytearray(json.dumps(raw).encode())
    if chance.random() < 0.3:
        for _ in range(chance.randrange(1, 20)):
            made[chance.randrange(len(made))] = chance.randrange(256)
    return bytes(made)


def test_mutated_ones_end_no_command_with_more_than_a_line(run):
    """Each is either read, and every command copes with it, or refused in one line."""
    chance = random.Random(20260101)
    text = json.dumps(
        good(run) | {"environment": {"A": "b"}, "ended_at": 2.0, "exit_code": 0, "hub": {"pid": 2, "start_ticks": 3}}
    )
    refused = 0
    for _ in range(24):
        write(run, mutated(chance, text))
        try:
            runs.load(run.id)
            wanted = None
        except RunNotFoundError:
            refused += 1
            wanted = run.id
        for command in (["ls"], ["ls", "--json"], ["status"], ["status", "--json"], ["report"], ["logs"]):
            named = [*command, wanted] if wanted and command[0] != "ls" else command
            done = CliRunner().invoke(command_line, named, standalone_mode=False)
            assert done.exception is None or isinstance(done.exception, DdpmonError), (command, done.exception)
            assert len(str(done.exception or "").splitlines()) <= 1
    assert 7 < refused < 24
