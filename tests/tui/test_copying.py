"""What can be copied, where the copy goes, and what the key bar says of it."""

import base64
import os
import re
import shlex
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_in

from ddpmon import runs
from ddpmon.launch.prepare import command_line
from ddpmon.runs.logs import Said
from ddpmon.tui import copying
from tests.tui import snapshots
from tests.tui.driving import drive, seen, until
from tests.tui.terminal import Terminal
from tests.tui.test_search import printing


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder, which takes what has no run's folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def copied(source, *keys, choose=(), **options):
    """(the clipboard, the key bar, the list) once something was chosen from the list that `y` opens."""
    taken, texts = [], []

    def catch(app, _):
        app.copy_to_clipboard = taken.append

    _, text = drive(source, catch, *keys, "y", seen(texts), *choose, "enter", until(lambda _: taken), **options)
    return taken[-1], text.splitlines()[-1], texts[-1]


def test_the_sentence_is_copied_first_and_into_a_file(folder):
    verdict = f"gpt2-124m, step 12,486: {snapshots.slow().verdict}"
    clipboard, said, listed = copied(snapshots.slow(), size=(200, 40))
    assert clipboard == verdict
    path = folder / "ddpmon-copied.txt"
    assert f"copied, also to {path}" in said
    assert path.read_text() == f"{verdict}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "› sentence: rank 13" in listed


def test_a_finding_is_copied_with_its_cost_its_evidence_and_its_advice():
    snapshot = snapshots.slow()
    finding = replace_in(snapshot.findings[0], advice="look at its data", evidence={"own_ms": 341.0})
    clipboard, _, listed = copied(replace_in(snapshot, findings=[finding]), choose=[*"finding"])
    assert clipboard.splitlines() == [
        finding.text, "since step 12,240: 247 steps", "evidence: own time 341 ms", "next: look at its data",
    ]  # fmt: skip
    assert "finding: rank 13" in listed


def test_the_stack_of_the_inspected_rank_is_copied():
    snapshot = snapshots.STATES["stalled"]()
    rank = next(rank for rank in snapshot.ranks if rank.stack)
    clipboard = copying.stack_text(snapshot, rank)
    assert clipboard.splitlines()[0].startswith(f"rank {rank.rank} · ")
    assert rank.stack.frames[0] in clipboard
    assert copying.stack_text(snapshot, None) == ""
    assert copying.stack_text(snapshot, replace_in(rank, stack=None)) == ""
    taken, _, listed = copied(snapshot, "2", *["j"] * rank.rank, "enter", choose=[*"stack"])
    shown = int(re.search(r"stack of rank (\d+)", listed)[1])
    assert taken == copying.stack_text(snapshot, snapshot.ranks[shown])


def test_the_output_in_sight_and_what_the_search_found_are_copied():
    clipboard, _, listed = copied(printing(), "7", "slash", *"loss", "enter", choose=[*"found"])
    assert "output: 12 lines found" in listed
    assert "output: 18 lines in sight" in listed
    assert clipboard.splitlines()[0] == "       0   line 0  Loss 0"
    assert len(clipboard.splitlines()) == 12
    clipboard, *_ = copied(printing(), "7", choose=[*"sight"])
    assert clipboard.splitlines()[-1] == "       5 ! ValueError: the value is nan"
    clipboard, *_ = copied(printing(), choose=[*"output"])
    assert len(clipboard.splitlines()) == copying.LAST_LINES


def test_escape_sequences_are_copied_as_plain_text():
    source = printing()
    source.said = [Said(0, "out", ["red \x1b[31m\x07 text"])]
    clipboard, *_ = copied(source, choose=[*"output"])
    assert clipboard.isprintable()


def test_what_is_too_long_for_a_clipboard_goes_into_the_file_alone(folder, monkeypatch):
    monkeypatch.setattr(copying, "MAX_CLIPBOARD_BYTES", 10)
    told = []
    _, text = drive(
        snapshots.slow(), "y", "enter", until(lambda _: (folder / "ddpmon-copied.txt").exists()),
        until(lambda app: "copied" in app.frame.notice), seen(told), size=(200, 40),
    )  # fmt: skip
    assert f"too long for a clipboard: copied to {folder}" in text


def test_where_no_file_can_be_written_the_key_bar_says_so(monkeypatch):
    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(copying, "write_text", full)
    assert "copied; no file was written: No space left on device" in copied(snapshots.slow())[1]


def test_the_command_of_a_run_starts_it_again():
    run = runs.Run(
        "20260909-120000-7f3a", "digits",
        ["x", "--nproc-per-node=4", "--log-dir=/20260909-120000-7f3a/ranks", "-m", "--", "pkg.train", "--lr", "0 1"],
        "pkg.train", ["--lr", "0 1"], "/tmp/a b", "here", "", 0.0, 8, nnodes=2, environment={"A": "b c"},
    )  # fmt: skip
    words = ["ddpmon", "run", "--nproc", "4", "--nnodes", "2", "-m", "pkg.train", "--lr", "0 1"]
    assert command_line(run) == words
    assert shlex.split(copying._command(run)) == ["cd", "/tmp/a b", "&&", "A=b c", *words]
    assert command_line(replace(run, argv=["./go", "now"])) == ["ddpmon", "exec", "--", "./go", "now"]
    assert command_line(replace(run, argv=[])) == ["pkg.train", "--lr", "0 1"]


@pytest.mark.terminal
def test_the_report_of_a_recording_is_copied_in_a_terminal(home):
    with Terminal("ddpmon", "demo") as terminal:
        terminal.wait_for("node01")
        terminal.press(b" ")
        terminal.wait_for("paused")
        terminal.press(b"y")
        shown = terminal.wait_for("report as Markdown")
        for entry in ("› sentence: ", "output: the last", "command: ddpmon "):
            assert entry in shown
        terminal.press(b"markdown\r")
        terminal.wait_for("copied, also to ")
        text = base64.b64decode(re.findall(rb"\x1b\]52;c;([^\x07]*)\x07", terminal.raw)[-1]).decode()
        assert text.startswith("### ")
        assert "**Verdict:**" in text
        terminal.leave()
