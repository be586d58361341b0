"""Wheel and sdist hold what they should, and the monitor works from the wheel alone, without torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import ddpmon
from ddpmon.cli import command_line

ROOT = Path(__file__).parent.parent
NEEDED = (
    *("py.typed", "demo/run.json", "demo/telemetry.db.gz", "demo/stdout.0.log", "export/page/page.html"),
    *("inject/sitecustomize.py", "tui/app.py"),
)
"""Files that no import misses: types for checkers, the demo, the page of the report, what Python loads in a rank."""
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # as where it is not installed
sys.path.insert(0, {wheel!r})
import importlib.util
looked_up = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else looked_up(name, package)
import ddpmon
assert ddpmon.__file__.startswith({wheel!r}), ddpmon.__file__
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder in which a wheel and an sdist of this checkout lie."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built, tmp_path_factory):
    """The wheel, unpacked as pip does it."""
    folder = tmp_path_factory.mktemp("wheel")
    zipfile.ZipFile(next(built.glob("*.whl"))).extractall(folder)
    return folder


def tracked(*paths: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(listed.stdout.split("\n")) - {""}


def run(wheel: Path, home: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter to which ddpmon is what the wheel holds."""
    environment = {**os.environ, "DDPMON_HOME": str(home / "home"), "DDPMON_RUNTIME_DIR": str(home / "s")}
    return subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT_TORCH.format(wheel=str(wheel)) + code],
        cwd=home, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_wheel_holds_all_of_the_package_and_nothing_else(wheel):
    held = {str(path.relative_to(wheel)) for path in wheel.rglob("*") if path.is_file()}
    packaged = {path for path in held if path.startswith("ddpmon/")}
    pages = tracked("docs/howto", "docs/reference/findings.md", "docs/reference/glossary.md")
    assert packaged == tracked("ddpmon") | {f"ddpmon/{page}" for page in pages}
    beside = {path.removeprefix(f"ddpmon-{ddpmon.__version__}.") for path in held - packaged}
    manual = {path for path in beside if not path.startswith("dist-info/")}
    commands = [name for name, command in command_line.commands.items() if not command.hidden]
    assert manual == {f"data/data/share/man/man1/{name}.1" for name in ("ddpmon", *(f"ddpmon-{c}" for c in commands))}
    assert packaged >= {f"ddpmon/{name}" for name in NEEDED}, "git has lost them"
    assert not [path for path in packaged if "test" in path.split("/")[-2:] or path.endswith((".pyc", ".db", ".so"))]


def test_the_sdist_holds_all_that_is_kept(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert not (tracked() - held - {".gitignore"}) - {path for path in tracked() if not (ROOT / path).exists()}


def test_its_metadata_name_the_licence_the_python_and_no_torch(wheel):
    metadata = next(wheel.glob("*.dist-info/METADATA")).read_text()
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert not [line for line in needed if "torch" in line]
    assert len(needed) >= 8
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata


def test_the_readme_in_the_metadata_needs_no_file_beside_it(wheel):
    shown = next(wheel.glob("*.dist-info/METADATA")).read_text(encoding="utf-8").partition("\n\n")[2]
    targets = re.findall(r"\]\(([^)]*)\)", shown)
    assert not [target for target in targets if "://" not in target]
    assert "<img" not in shown
    assert shown.startswith("# ddpmon\n")
    assert "*Installing* (docs/install.md) shows the small CPU" in " ".join(shown.split())
    sections = re.findall("^## .*", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.findall("^## .*", shown, re.MULTILINE) == sections


def test_the_demo_can_be_read_and_the_machine_examined_from_the_wheel_alone(wheel, tmp_path):
    main = "from ddpmon.cli import main; sys.argv[1:] = {}; main()"
    unpack = "from ddpmon.cli.commands.replaying import unpack; unpack()\n"
    answer = run(wheel, tmp_path, unpack + main.format(["report"]))
    assert answer.returncode == 0, answer.stderr
    assert "rank 2 was slow from step 450 to 796" in answer.stdout
    assert "FIND A STRAGGLER" in run(wheel, tmp_path, main.format(["help", "straggler"])).stdout
    answer = run(wheel, tmp_path, main.format(["doctor", "--nproc", "1", "--json"]))
    torch = next(check for check in json.loads(answer.stdout) if check["about"] == "torch")
    assert torch["level"] == "note"
