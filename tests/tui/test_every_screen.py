"""Every screen of a live run, from its form to its end, in a real terminal: what it shows, and how it is painted."""

import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from ddpmon import runs
from ddpmon.launch import stop
from tests.tui.terminal import DEADLINE_S, Terminal

pytestmark = pytest.mark.e2e

TRAINING = Path(__file__).parents[2] / "training"
LIVE_S = 60.0
"""A machine that does other things as well imports torch in two ranks."""
ANSWERS = {
    b"1": ("─loss", "─own ms per step: slowest, median", "─world: slower than peers", "─ranks, slowest first"),
    b"2": ("─ranks, problems first, then own time", "backward", "transfer"),
    b"3": ("─heat: slower than peers", "<5%"),
    b"4": ("─what does all-reduce cost, and why", "exposed", "parallel efficiency", "communication"),
    b"5": ("─the last ", "░ data", "═ trans"),
    b"6": ("─what are the machines doing", "no GPU: the ranks compute on the CPU", "cpu%"),
    b"7": ("─output of all ranks", "epoch"),
    b"8": ("─runs, the latest first", "ranks     age"),
    b"9": ("─what is wrong: ",),
}
"""What each digit's screen shows of a run on a CPU."""
BEGIN, END = b"\x1b[?2026h", b"\x1b[?2026l"
CLEARS = re.compile(rb"\x1b\[2J|\x1b\[3J|\x1b\[H\x1b\[0?J|\x1bc")


def visit(terminal: Terminal, answers: dict[bytes, tuple[str, ...]], within: float = DEADLINE_S) -> None:
    """Go to screens, each by its digit, and see what is on it."""
    for digit, texts in answers.items():
        terminal.press(digit)
        for text in texts:
            terminal.wait_for(text, within)


def inspect_filter_help(terminal: Terminal, rank: int) -> None:
    """The rank table's cursor to a rank, its inspection and back, a filter and away with it, the help and back."""
    terminal.press(b"2g")
    terminal.press(b"/")
    terminal.wait_for("enter applies")
    terminal.press(f"rank:{rank}\r".encode())
    terminal.wait_for(f"ranks: rank:{rank}")
    terminal.press(b"\r")
    shown = terminal.wait_for(f"─rank {rank} · ")
    assert "this rank" in shown
    terminal.press(b"\x1b")
    terminal.wait_for(f"ranks: rank:{rank}")
    terminal.press(b"\x1b")
    terminal.wait_until(lambda shown: "rank:" not in shown, "the whole table")
    terminal.press(b"?")
    terminal.wait_for("─keys")
    terminal.press(b"\x1b")
    terminal.wait_for("problems first, then own time")


def step_of(shown: str) -> int:
    """The step in the head; 0 before the first."""
    found = re.search(r"step ([\d,]+)(?:/|\s)", shown)
    return int(found[1].replace(",", "")) if found else 0


def start_from_the_form(terminal: Terminal, arguments: str) -> runs.Run:
    """Fill the form in as fast as it can be typed, correct the folder, and return the run that it starts."""
    terminal.wait_for("q detach")
    terminal.press(b"n")
    terminal.wait_for("Start a run")
    terminal.press(f"linear_regression.py\t{arguments}\t2\tfrom-the-form\tGREETING=hello\t".encode())
    terminal.wait_for("hello")
    terminal.press(b"\r")
    terminal.wait_for("no script linear_regression.py in")  # the folder is still the dashboard's own
    terminal.press(f"{TRAINING}\r".encode())
    terminal.wait_for("WAITING", LIVE_S)
    (run,) = runs.all_runs()
    assert "from-the-form" in terminal.screen.display[0]
    assert (run.environment, run.cwd) == ({"GREETING": "hello"}, str(TRAINING))
    return run


def test_a_run_is_started_from_the_form_answers_on_every_screen_and_is_stopped(home, tmp_path):
    arguments = f"--slow data:1:25 --epochs 5000 --checkpoint '{tmp_path / 'the point.pt'}' --fresh"
    with Terminal("tests.tui.show", "slow", columns=120, rows=36) as terminal:
        run = start_from_the_form(terminal, arguments)
        terminal.wait_for("rank 1 is slow", LIVE_S)
        visit(terminal, ANSWERS | {b"7": ("─output of all ranks",)}, LIVE_S)  # it prints nothing before its end
        inspect_filter_help(terminal, 1)
        terminal.press(b" ")
        shown = terminal.wait_for("space go on")  # in the last row, so that those above it are painted
        assert "FROZEN" in shown
        frozen = step_of(shown)
        terminal.press(b"[[")
        shown = terminal.wait_until(lambda shown: 0 < step_of(shown) < frozen, "what was shown before")
        assert "FROZEN" in shown
        terminal.press(b" ")
        terminal.wait_until(lambda shown: step_of(shown) > frozen and "FROZEN" not in shown, "the run as it is now")
        terminal.press(b"x")
        terminal.wait_for("Stop the run?")
        terminal.press(b"s")
        terminal.wait_for("■ STOPPED", LIVE_S)
        terminal.wait_until(lambda shown: "rank 1 is slow" in shown.splitlines()[1], "what held the run back")
        visited = terminal.wait_for("q quit")
        assert "x stop" not in visited
        gone = stop.wait_until_gone(run, LIVE_S)
        assert gone is not None
        assert gone.state() == "stopped"
        terminal.leave()


def painted(terminal: Terminal, frames: int) -> bytes:
    """What is sent while the head changes so many times."""
    terminal.wait_for("world: slower than peers")
    terminal.wait_until(lambda shown: "ms" in shown.splitlines()[2], "a measured step")
    before, seen = len(terminal.raw), set()

    def poured(shown: str) -> bool:
        seen.add(shown.splitlines()[0])
        return len(seen) > frames

    terminal.wait_until(poured, f"{frames} frames")
    return terminal.raw[before:]


def test_data_that_pours_in_never_clears_the_screen_and_each_frame_is_shown_at_once(home):
    with Terminal("ddpmon", "demo", "--speed", "2", columns=120, rows=36, synchronised=True) as terminal:
        sent = painted(terminal, 8)
        assert not CLEARS.search(sent)
        # What stands between the beginning and the end of mode 2026 is shown at once.
        whole = sent[sent.index(BEGIN) : sent.rindex(END) + len(END)]
        assert whole.count(BEGIN) == whole.count(END) >= 4
        outside = re.sub(rb"\x1b\[\?2026h.*?\x1b\[\?2026l", b"", whole, flags=re.DOTALL)
        assert not any(ch > 0x7E for ch in outside), "rows are painted outside of a frame"
        assert b"H" not in outside
        terminal.leave()
    assert runs.all_runs() == [], "the demo leaves no run"


needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@needs_tmux
def test_in_tmux_it_is_painted_without_a_flicker_and_survives_a_detach(home, tmp_path):
    socket = f"ddpmon-{uuid.uuid4().hex[:8]}"
    tmux = ["tmux", "-f", "/dev/null", "-L", socket]
    try:
        size = {"columns": 120, "rows": 36, "program": tuple(tmux)}
        with Terminal(
            "new-session", "-s", "seen", sys.executable, "-m", "ddpmon", "demo", "--speed", "2", **size
        ) as one:
            sent = painted(one, 6)
            assert not CLEARS.search(sent)
            one.press(b"2")
            one.wait_for("problems first, then own time")
            one.press(b"\x02d")
            one.wait_end()
        with Terminal("attach", "-t", "seen", **size) as again:
            again.wait_for("problems first, then own time")
            again.press(b"1q")
            again.wait_end()
            assert "Traceback" not in "\n".join(again.screen.display)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)
