"""Test who may import whom, and what stays out: on the import graph, and in fresh interpreters."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ddpmon.cli import command_line, commands
from ddpmon.cli.commands.replaying import unpack

ROOT = Path(__file__).parent.parent


COMMAND = "sys.argv[1:] = {}\nfrom ddpmon.cli import main\ntry: main()\nexcept SystemExit: pass"
"""A statement that runs a command with some arguments."""


def loaded_by(statement: str, *, whole: bool = False) -> set[str]:
    """Top-level modules in a fresh interpreter after a statement; with `whole`, all modules by their whole names."""
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys\n{statement}\nprint(*sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    loaded = told.stdout.splitlines()[-1].split()
    return set(loaded if whole else (name.partition(".")[0] for name in loaded))


def modules(*packages: str) -> list[str]:
    """Every module below some packages of ddpmon."""
    found = []
    for package in packages:
        for path in sorted((ROOT / "ddpmon" / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[-1] != "__main__":
                found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def test_nothing_but_the_probe_loads_torch_and_nothing_but_the_dashboard_textual():
    names = modules("hub", "recording", "store", "analysis", "launch", "doctor", "cli", "export")
    assert {"ddpmon.launch.supervisor", "ddpmon.cli"} <= set(names)
    loaded = loaded_by("import ddpmon.source\n" + "\n".join(f"import {name}" for name in names))
    assert not loaded & {"torch", "torchvision", "textual", "rich"}
    assert not loaded_by("\n".join(f"import {name}" for name in modules("tui"))) & {"torch", "torchvision"}


def test_the_command_line_loads_nothing_heavy():
    assert not loaded_by("import ddpmon.cli") & {"torch", "numpy", "zmq", "textual", "rich", "psutil", "msgspec"}


def test_the_dashboard_of_a_live_run_opens_without_what_reads_recordings():
    assert not loaded_by("import ddpmon.cli.watching, ddpmon.tui.app") & {"numpy", "sqlite3", "psutil", "pynvml"}


def test_either_end_of_a_line_opens_without_what_reads_recordings():
    """Importing those takes most of the time to the first screen after a login."""
    assert not loaded_by("import ddpmon.remote.relay") & {"numpy", "sqlite3", "psutil", "pynvml", "textual", "rich"}
    assert not loaded_by("import ddpmon.remote.source, ddpmon.tui.app") & {"numpy", "sqlite3", "psutil", "pynvml"}


def test_the_supervisor_needs_the_standard_library_alone():
    foreign = loaded_by("import ddpmon.launch.supervisor") - set(sys.stdlib_module_names) - {"ddpmon", "__main__"}
    # what site-packages itself starts with every interpreter (an editable install, a virtual environment) is not ours
    assert not foreign - loaded_by("pass")


def test_every_command_is_found_in_its_file():
    """One that the table of commands lacks would not exist for users."""
    defined = {
        each.name
        for module in pkgutil.iter_modules(commands.__path__)
        for each in vars(importlib.import_module(f"{commands.__name__}.{module.name}")).values()
        if isinstance(each, click.Command)
    }
    assert {name: command.name for name, command in command_line.commands.items()} == {name: name for name in defined}


@pytest.mark.parametrize("arguments", [["--version"], ["ls"], ["status"]])
def test_a_command_imports_no_file_of_another_one(home, arguments):
    loaded = loaded_by(COMMAND.format(arguments), whole=True)
    files = {name.split(".")[3] for name in loaded if name.startswith("ddpmon.cli.commands.")}
    assert files == {"ls": {"viewing"}, "status": {"checking"}, "--version": set()}[arguments[0]]


def test_the_status_of_a_run_needs_no_dashboard(home):
    unpack()
    assert not loaded_by(COMMAND.format(["status"])) & {"textual", "torch"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["ls"], ["run", "--help"]])
def test_an_answer_that_needs_no_run_loads_little(home, arguments):
    """A process that loads more modules answers later on any machine."""
    heavy = {"torch", "numpy", "zmq", "textual", "rich", "psutil", "msgspec", "pynvml", "sqlite3", "ssl", "asyncio"}
    assert not loaded_by(COMMAND.format(arguments)) & heavy
