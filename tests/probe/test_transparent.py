"""With the probe armed, a script sees the interpreter that it would see without."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpmon.messages import ALONE
from tests.probe.conftest import SCRIPTS, Ear, forked, python, watched

pytestmark = pytest.mark.e2e
WORLD = SCRIPTS / "world.py"


def test_a_script_cannot_tell(ear: Ear) -> None:
    """argv, sys.path, __main__, finders, hooks, tracebacks, workers and children: all as without us."""
    whats = ("facts", "caught", "workers", "children", "backward")
    bare, watched = (python(WORLD, *whats, "--flag", "two words", address=at) for at in (None, ear.address))
    assert [line.split()[1] for line in bare.stdout.splitlines() if line.startswith("now: ")] == list(whats)
    assert "RuntimeError: grad can be" in bare.stderr
    assert watched.stdout == bare.stdout
    assert watched.stderr == bare.stderr
    assert watched.returncode == bare.returncode == 1
    assert not ear.messages, "none of these processes is a rank"


@pytest.mark.parametrize(
    ("theirs", "printed", "error"),
    [("MARK = 'theirs'\n", "theirs", ""), ("import no_such_module_here\n", "None", "no_such_module_here")],
)
def test_another_sitecustomize_works_or_fails_as_without_us(
    ear: Ear, tmp_path: Path, theirs: str, printed: str, error: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(theirs)
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(getattr(sys.modules.get('sitecustomize'), 'MARK', None))")
    watched = python(script, address=ear.address, PYTHONPATH=str(tmp_path))
    assert (watched.returncode, watched.stdout.strip()) == (0, printed)
    assert error in watched.stderr


def test_without_ddp_a_step_is_the_optimizers(ear: Ear) -> None:
    done = watched(ear, None, SCRIPTS / "single.py")
    losses = [float(line) for line in done.stdout.split()]
    assert [step.loss for step in ear.steps(0)] == losses
    scalars = [scalar for batch in ear.batches(0) for scalar in batch.scalars]
    assert [scalar.name for scalar in scalars] == ["double"] * 10
    assert (ear.hellos()[-1].parallelism, ear.hellos()[-1].unmeasured) == (ALONE, ["forward", "wait", "transfer"])
    assert [scalar.value for scalar in scalars] == [2 * loss for loss in losses]


def test_warnings_are_about_the_lines_that_they_would_be_about(ear: Ear, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import warnings, torch\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    for workers in (0, 1):\n"
        "        list(torch.utils.data.DataLoader(range(4), num_workers=workers, pin_memory=True))\n"
        "print(*(f'{one.filename}:{one.lineno}' for one in seen), sep='\\n')\n"
    )
    bare, watched = (forked(None, script, address=address) for address in (None, ear.address))
    assert "dataloader.py" in bare.stdout
    assert watched.stdout == bare.stdout
