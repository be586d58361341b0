"""Writes the pages of docs/reference that are made from the code's own tables: python docs/reference.py

commands.md from the commands, keys.md from the dashboard's keys, metrics.md from the quantities, findings.md from the
kinds of findings and their thresholds, tables.md from the recording's tables, environment.md from the table here, config.md from the settings.
"""

from __future__ import annotations

import inspect
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import click

from ddpmon.analysis.kinds import KINDS
from ddpmon.analysis.kinds.kind import Kind, named_as
from ddpmon.analysis.threshold import Threshold
from ddpmon.cli import command_line
from ddpmon.config import SETTINGS
from ddpmon.messages.quantities import QUANTITIES, STEP, Quantity
from ddpmon.recording.tables import PRIMARY_KEYS, TABLES, VIEW_COLUMNS, Column
from ddpmon.tui.config_check import SCREENS
from ddpmon.tui.keymap import Key
from ddpmon.tui.keys import DEFAULT_KEYS as KEYS
from ddpmon.tui.palette import ROLES
from ddpmon.tui.views import VIEW_FACTS, ViewName
from ddpmon.tui.widgets.columns import RANK_COLUMNS

FOLDER = Path(__file__).with_name("reference")
MADE = "`python docs/reference.py` generates this page from the code.\n"
WIDTH = 80
PICTURES = {path.stem for path in (FOLDER.parents[1] / "screenshots").glob("*.svg")}

VARIABLES = {
    "XDG_CONFIG_HOME": "Folder of `ddpmon/config.toml`, [the config file](config.md); the default is `~/.config`.",
    "DDPMON_HOME": "Folder of the runs; the default is `~/.local/state/ddpmon`. A symbolic link is allowed if it is"
    " yours; only you may have access to the folder.",
    "DDPMON_RUNTIME_DIR": "Folder of the sockets; the default is `/tmp/ddpmon-UID`. Choose a short path, because the"
    " path of a socket may have at most 107 bytes.",
    "DDPMON_KEEP": "Limit for all runs, by size (`20GB`) or age (`90d`); `ddpmon run` deletes the oldest runs when it"
    " starts.",
    "DDPMON_LOGS": "Limit for the saved output of a run, such as `2G`; the default is 256 MB.",
    "DDPMON_NOTIFY": "`bell`, `desktop`, `both`, or URLs separated by spaces: how the dashboard or a service tells you"
    " that a run needs attention or has ended. ddpmon does not pass URLs to the ranks.",
    "DDPMON_ON_ALERT": "A program that ddpmon starts when a run needs attention, stalls or fails; same as"
    " `--on-alert`.",
    "DDPMON_HUB": "Address of the root hub in a run over several machines; same as `--hub`.",
    "DDPMON_HUB_KEY": "The key for `--hub`, which is the content of a file from `ddpmon key`. ddpmon does not pass this"
    " variable to the ranks.",
    "DDPMON_UNITS": "`binary` (GiB, the default) or `decimal` (GB) for sizes of memory and for traffic.",
    "DDPMON_THEME": "`dark`, `light`, `ansi` (the terminal's own sixteen colours), or a theme of the config file; same"
    " as `--theme`.",
    "NO_COLOR": "With any value, ddpmon uses no colours.",
    "DDPMON_SSH": "The ssh command with its options, such as `ssh -F config`.",
    "DDPMON_REMOTE": "The ddpmon command on the other machine, such as `~/project/.venv/bin/ddpmon`.",
}
"""Variables that people set."""
INNER = {
    "DDPMON_SOCKET": "Address of the run's hub; if it is set, the probe starts in a rank's process.",
    "DDPMON_RUN_ID": "The run that a rank belongs to.",
    "DDPMON_RUN_DIR": "The folder of the run that a rank belongs to.",
    "DDPMON_BUCKETS": "1: the probe records each bucket's all-reduce.",
    "DDPMON_ALONE": "1: all ranks are on this machine, so ddpmon looks for no other machines.",
    "DDPMON_HUB_GIVEN": "1: the hubs of several machines use the address in `--hub`, not an address that the ranks "
    "report.",
    "DDPMON_AGENT_PID": "Process id of the torchrun that started a rank.",
}
"""What ddpmon sets for its own processes. `ddpmon exec` and launchers must pass these on."""

FALSE_ALARMS = {
    "memory_growth": "Low: of 300 random walks, ddpmon reports five as growth. It does not report noise or a single"
    " jump. It does report a cache that fills for an hour.",
    "gpu_error": "Low: the driver reports the error. We have never tested this finding with a faulty GPU.",
    "gpu_shared": "Low: the finding is a hint, unless a GPU is nearly full. Two ranks on one GPU may be intended."
    " ddpmon reports nothing in containers where processes have other ids than those that the driver reports.",
    "replicas_differ": "Low: DDP keeps replicas bit-identical. Differences are intended if the script averages weights"
    " from time to time in a way that ddpmon does not know.",
    "gradients_not_synchronised": "Low: the finding is critical only if ddpmon saw replicas differ.",
    "parameters_not_reduced": "Low: the finding is critical only if ddpmon saw these parameters differ between ranks.",
    "learning_rates_differ": "Low: the finding ends if a later comparison finds equal weights. ddpmon compares only"
    " the optimizer that stepped last, and its first parameter group with a rate above 0.",
    "independent_copies": "Low. If weights differ, the run may be a sweep that someone started as one run. If weights"
    " are equal, there is a finding only if losses are equal too and the ranks called no collective.",
    "same_data": "Low: by chance, losses are equal to the last bit in one of 10^9 runs. ddpmon reports nothing without"
    " DDP, or if inputs differ between ranks. It reports nothing if inputs never change, as in benchmarks. If losses"
    " differ, as with dropout, ddpmon compares 64 numbers of each input, and reports nothing unless these are always "
    "equal.",
    "trains_in_eval": "Medium: fine-tuning with frozen statistics may be intended after a phase in training mode."
    " ddpmon checks only DDP models with torch's own dropout or BatchNorm.",
    "updates_skipped": "Low: at the start, a GradScaler skips at most 16 updates until it has found its scale. ddpmon"
    " cannot see skips of optimizers that handle the scale themselves (`fused=True`).",
    "learning_rate_zero": "Low: a learning rate of 0 since the first step may be a warm-up, so the finding is then only"
    " a hint.",
    "configuration_differs": "Medium: the finding is a hint unless ranks have different scripts, or different"
    " versions of torch or Python. ddpmon does not compare values that name a rank, a device, a host, a seed or a path.",
    "buffers_differ": "Medium: the finding is a hint. ddpmon compares buffers only with `broadcast_buffers=False`.",
}
"""Probability that a finding about the training is wrong, or reports something intended."""

RUN = """RUN is a run's name or the beginning of its id. Without RUN, a command takes the latest run. Some commands also
take `HOST:RUN`, a run on another machine."""
METRICS = """This page lists what ddpmon measures of each rank. The last columns give each quantity's column heading on
screen, its name in the filter (`/`), and its name as a metric of `ddpmon metrics` and `ddpmon export --format
openmetrics`. Quantities of a step are means over the last steps. Only the loss is the latest of each rank; the loss in
the header is the mean of the last 20 steps and of all ranks. ddpmon reads all other quantities once a second."""
FINDINGS = """This page lists all kinds of findings: their meaning, what to do, and their thresholds. Findings on this
page and on screen have the same order. A healthy run has no finding above `info`. The headings are the values of `kind`
in `ddpmon report --format json`. [Thresholds](../thresholds.md) explains the columns and lists all thresholds."""

RECORDING = """This page lists every table and column of [the recording](../recording.md). Times in µs are durations, or
values of CLOCK_MONOTONIC on the rank's host. Columns marked "for ddpmon" may change without notice."""

CONFIG = """Put your settings into `~/.config/ddpmon/config.toml` (`$XDG_CONFIG_HOME/ddpmon/config.toml` if that variable is
set). `ddpmon config` shows where the file is, and each value with its source. An option of a command takes precedence
over an environment variable, the variable over the file, and the file over the choices that the dashboard remembers.

```toml
theme = "night"
units = "decimal"
first_screen = "ranks"
notify = "bell"

[ranks]
columns = ["own", "over", "wait", "host", "loss"]

[price]
gpu_hour = 2.5

[keys]
x = "ctrl+x"

[keys.ranks]
s = "o"

[themes.night]
base = "dark"
warn = "bold #ffcc00"
background = "#000000"
```

If the file has an unknown key or a value that is not allowed, one line on stderr names the file, the key and what is
allowed. No dashboard opens until you correct it. `ddpmon run` and `ddpmon exec` start no run if the file cannot be read,
or if the value is one of {0}. All other commands, such as `stop`, use the default instead and go
on. `ddpmon doctor` lists all errors.

## Settings
"""
CONFIG_MORE = """The screens are {0}. The columns are {1}. The rank is always the first column.

## Units

`units = "decimal"` writes sizes of memory and traffic in GB and MB instead of GiB and MiB, on all screens and by all
commands of this machine. In columns of traffic and in filters, `M` is then 1,000,000 instead of 1,048,576. The hub of a
run writes the run's sentences, with the units of the command that started the run; recorded sentences keep their units.
Sizes of files and limits such as `keep` are always in powers of ten, as is the bus bandwidth, which nccl-tests define in
GB/s. JSON and metrics have bytes.

## Keys

`[keys]` changes keyboard shortcuts: on the left of `=` the key that [Keys](keys.md) lists, on the right your key. A
table such as `[keys.ranks]` applies to one screen only. A key is one character, or a name such as `ctrl+x`, `f5`,
`enter` or `escape`. ddpmon refuses a new key that already has an action on the same screen, unless you also give that
action another key. `ctrl+c` cannot be replaced.

## Themes

`[themes.NAME]` defines a theme. `base` is `dark` or `light`; every colour that the table does not set comes from the
base. `background` and `panel` take a colour such as `#101419`. The other roles take a style such as `bold #e69f00`:
{2}.
Choose the theme with `theme`, `--theme`, `DDPMON_THEME`, or in the palette (ctrl+p).

## Remembered choices

The dashboard remembers what you change by hand: the order of each table, the chart, the marks of Heat and the theme. The
file is `preferences.json` in the folder of the runs. ddpmon ignores a damaged file, and says so."""


def command_page() -> str:
    """Each command's own help."""
    whole = click.Context(command_line, info_name="ddpmon", **command_line.context_settings)
    shown = {name: command for name, command in sorted(command_line.commands.items()) if not command.hidden}
    rows = [f"| [{name}](#{name}) | {command.get_short_help_str(WIDTH)} |" for name, command in shown.items()]
    parts = ["# Commands\n", f"{RUN}\n", MADE, "| command | does |\n| --- | --- |", *rows, ""]
    for name, command in shown.items():
        context = click.Context(command, whole, name, terminal_width=WIDTH, max_content_width=WIDTH)
        parts.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def key_page() -> str:
    """The keys of each screen, those that all have first."""
    everywhere = [key for key in KEYS if set(key.views) == set(ViewName)]
    parts = ["# Keys\n", MADE, "## On every screen\n", *_key_rows(everywhere)]
    for name in ViewName:
        rows = [key for key in KEYS if name in key.views and key not in everywhere]
        view = VIEW_FACTS[name]
        parts += [
            f"## {view.title or name.title()}\n",
            *([f"{view.question}\n"] if view.question else []),
            *([f"![{view.title or name.title()}](../../screenshots/{name}.svg)\n"] if name in PICTURES else []),
            *_key_rows(rows),
        ]
    return "\n".join(parts)


def _key_rows(keys: list[Key]) -> Iterator[str]:
    yield "| key | does |\n| --- | --- |"
    for key in keys:
        when = " (replays)" if key.replay else " (not in replays)" if key.replay is False else ""
        yield f"| `{key.shown.replace('|', chr(92) + '|')}` | {key.help.replace('|', chr(92) + '|')}{when} |"
    yield ""


def metric_page() -> str:
    """Every quantity that a rank has a number of."""
    head = (
        "# Quantities and metrics\n",
        f"{METRICS}\n",
        MADE,
        "| quantity | meaning | measured for | unit | column | filter | metric |\n| --- | --- | --- | --- | --- | --- | --- |",
    )
    return "\n".join([*head, *(_metric_row(row) for row in QUANTITIES.values())]) + "\n"


def _metric_row(row: Quantity) -> str:
    where = "a step" if row.where == STEP else row.where
    metric = row.metric_name + ('{{{}="{}"}}'.format(*row.metric_label) if row.metric_label else "")
    cells = (row.name, row.meaning, where, row.unit.words or "–", row.label or row.name, row.word or row.name)
    return f"| {' | '.join(cells)} | `{metric}` |"


def finding_page() -> str:
    """Each kind of finding: what it means, from when on it is one, what to do."""
    rows_of = runpy.run_path(str(Path(__file__).with_name("thresholds.py")))["rows_of"]
    parts = [
        "# Findings\n",
        f"{FINDINGS}\n",
        MADE,
        "![Findings: what is wrong, since when, at what cost, and what to do](../../screenshots/findings.svg)\n",
    ]
    for kind in KINDS:
        parts += [
            f"## {kind.name}\n",
            f"{kind.meaning or inspect.getdoc(kind.detect)}\n",
            f"**What to do.** {what_to_do(kind)}\n",
        ]
        if kind.name in FALSE_ALARMS:
            parts.append(f"**False alarms.** {FALSE_ALARMS[kind.name]}\n")
        asked = dict(sorted(thresholds_of(kind.detect))) if kind.detect and not kind.family else {}
        parts += [*rows_of(asked), ""] if asked else []
    return "\n".join(parts)


def what_to_do(kind: Kind) -> str:
    """What a kind says itself; of its advice the sentences that fill in nothing from the run."""
    advice, cut = re.subn(r"^\{\w+\}[ :]+", "", kind.advice)
    advice = advice[:1].upper() + advice[1:] if cut else advice
    for name, words in {**named_as([0], 0), "who": "the rank"}.items():
        advice = advice.replace(f"{{{name}}}", words)
    return kind.remedy or " ".join(part for part in re.split(r"(?<=\.) (?=[A-Z`{])", advice) if "{" not in part)


def thresholds_of(code: Callable[..., Any]) -> Iterator[tuple[str, Threshold]]:
    """The thresholds that a function asks, itself and through the functions of its file that it calls."""
    for name in code.__code__.co_names:
        value = code.__globals__.get(name)
        if isinstance(value, Threshold):
            yield name, value
        elif isinstance(value, FunctionType) and value.__module__ == code.__module__:
            yield from thresholds_of(value)


def environment_page() -> str:
    """What people set, and what is set for ranks."""
    parts = ["# Environment variables\n", MADE]
    for heading, variables in (("What you may set", VARIABLES), ("What ddpmon sets for its own processes", INNER)):
        rows = [f"| `{name}` | {meaning} |" for name, meaning in variables.items()]
        parts += [f"## {heading}\n", "| variable | what it does |\n| --- | --- |", *rows, ""]
    return "\n".join(parts)


def table_page() -> str:
    """Each table and view of a recording, with its columns."""
    parts = ["# The recording's tables\n", f"{RECORDING}\n", MADE]
    for table, columns in (TABLES | VIEW_COLUMNS).items():
        key = f" Primary key: {', '.join(PRIMARY_KEYS[table])}." if table in PRIMARY_KEYS else ""
        about = f"{'A view.' if table in VIEW_COLUMNS else ''}{key}".strip()
        parts += [f"## {table}\n", *([f"{about}\n"] if about else []), *_column_rows(columns)]
    return "\n".join(parts)


def _column_rows(columns: tuple[Column, ...]) -> Iterator[str]:
    """Yield a row per column. The sum, minimum and maximum of one quantity share a row."""
    yield "| column | type | meaning |\n| --- | --- | --- |"
    for column in columns:
        stem, _, statistic = column.name.rpartition("_us_")
        if stem and statistic in {"min", "max"}:
            continue
        name = f"{column.name}, _min, _max" if stem and statistic == "sum" else column.name
        yield f"| {name} | {column.kind.removesuffix(' PRIMARY KEY') or 'any'} | {column.meaning} |"
    yield ""


def config_page() -> str:
    """The config file: what it may set, its keys and its themes."""
    rows = [
        f"| `{row.name}` | {row.meaning} | {row.allowed} | {row.default or '–'} |"
        f" {f'`{row.variable}`' if row.variable else '–'} |"
        for row in SETTINGS
    ]
    head = "| key | what it sets | allowed | default | variable |\n| --- | --- | --- | --- | --- |"
    screens = f"{', '.join(SCREENS)}"
    starting = ", ".join(f"`{row.name}`" for row in SETTINGS if row.starts)
    roles = ", ".join(f"`{role}`" for role in ROLES)
    columns = ", ".join(f"`{name}`" for name in RANK_COLUMNS)
    return "\n".join(
        [
            "# The config file\n",
            MADE,
            CONFIG.replace("{0}", starting),
            head,
            *rows,
            "",
            CONFIG_MORE.format(screens, columns, roles),
        ]
    )


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": command_page,
    "config.md": config_page,
    "environment.md": environment_page,
    "findings.md": finding_page,
    "keys.md": key_page,
    "metrics.md": metric_page,
    "tables.md": table_page,
}

if __name__ == "__main__":
    for name, made in PAGES.items():
        (FOLDER / name).write_text(made().rstrip() + "\n")
