"""Test that the output of ranks is read as it grows, folded, harmless and bounded."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon import runs
from ddpmon.runs import logs
from ddpmon.runs.logs import CHUNK, LAUNCHER, MAX_KEPT_LINES, FoldedLine, Log, Reader, Said, fold, who
from ddpmon.runs.rotated_logs import older
from ddpmon.source import LiveSource, RecordedSource


def shown(entries):
    return [(who(entry.ranks), entry.text) for entry in entries]


def said(rank, *lines, stream="out"):
    return Said(rank, stream, list(lines))


def test_ranks_are_written_as_spans():
    assert who({0}) == "0"
    assert who({1, 2, 3, 8}) == "1-3,8"
    assert who(set(range(8)), 8) == "all"
    assert who({0}, 1) == "0"
    assert who({LAUNCHER}) == "launcher"


def test_identical_lines_of_many_ranks_are_one():
    lines = ["loading", "epoch 1", "epoch 1", "done"]
    assert shown(fold([], [said(rank, *lines) for rank in range(3)])) == [("0-2", line) for line in lines]


def test_a_line_of_one_rank_stands_where_that_rank_printed_it():
    new = fold([], [said(0, "a", "b", "c"), said(1, "a", "only 1", "b", "c"), said(2, "a", "b", "c", "only 2")])
    assert shown(new) == [("0-2", "a"), ("1", "only 1"), ("0-2", "b"), ("0-2", "c"), ("2", "only 2")]


def test_stdout_and_stderr_are_kept_apart():
    assert len(fold([], [said(0, "a"), said(1, "a", stream="err")])) == 2


def test_a_later_line_joins_what_the_last_look_saw_but_is_never_put_above_it():
    log = Log(iter([[said(0, "a", "b")], [said(1, "a", "x", "b")], [], [said(1, "b")]]).__next__)
    assert shown(log.poll()) == [("0", "a"), ("0", "b")]
    assert shown(log.poll()) == [("1", "x"), ("1", "b")]
    assert shown(log.entries) == [("0-1", "a"), ("0", "b"), ("1", "x"), ("1", "b")]
    assert log.poll() == []
    log.poll()
    assert shown(log.entries)[-2:] == [("1", "b"), ("1", "b")]


texts = st.lists(st.sampled_from("abcd"), max_size=12)


@given(st.lists(st.lists(texts, min_size=3, max_size=3), max_size=5))
def test_every_rank_keeps_its_lines_in_their_order(looks):
    """However lines of three ranks come in, what is kept of a rank reads as it was printed."""
    waiting = [[said(rank, *lines) for rank, lines in enumerate(look) if lines] for look in looks]
    log = Log(iter([*waiting, []]).__next__)
    for _ in looks:
        log.poll()
    for rank in range(3):
        printed = [line for look in looks for line in look[rank]]
        assert [entry.text for entry in log.entries if rank in entry.ranks] == printed


def test_memory_is_bounded():
    log = Log(lambda: [said(0, *map(str, range(MAX_KEPT_LINES)))])
    for _ in range(3):
        log.poll()
    assert len(log.entries) == MAX_KEPT_LINES
    assert log.total == 3 * MAX_KEPT_LINES


@pytest.fixture
def run(home):
    made = runs.Run(
        id="20260101-000001-0001", name="train", argv=["torchrun"], script="train.py", script_args=[], cwd="/",
        host="here", boot_id="", created_at=0.0, world_size=4, nnodes=2,
    )  # fmt: skip
    runs.create(made)
    return made


def write(run, local_rank, text, stream="stdout", attempt=0, mode="ab"):
    path = runs.run_dir(run.id) / "logs" / "ranks" / "x_y" / f"attempt_{attempt}" / str(local_rank) / f"{stream}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def read(reader):
    return [(each.rank, each.stream, each.lines) for each in reader()]


def test_only_whole_lines_are_read_and_each_once(run):
    reader = Reader(run)
    assert read(reader) == []
    write(run, 0, "one\ntw")
    write(run, 1, "warning\n", "stderr")
    assert read(reader) == [(0, "out", ["one"]), (1, "err", ["warning"])]
    assert read(reader) == []
    write(run, 0, "o\n\nthree\n")
    assert read(reader) == [(0, "out", ["two", "", "three"])]


def test_what_a_terminal_would_obey_is_taken_out(run):
    write(run, 0, b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x00\xff\n10%\r50%\r100%\r\n")
    ((_, _, lines),) = read(Reader(run))
    assert lines == ["red ?\N{REPLACEMENT CHARACTER}", "100%"]


def test_a_log_that_grew_much_is_read_from_near_its_end(run):
    reader = Reader(run)
    write(run, 0, "x" * 99 + "\n")
    read(reader)
    write(run, 0, ("y" * 99 + "\n") * 2000 + "last\n")
    ((_, _, lines),) = read(reader)
    assert "not shown" in lines[0]
    assert lines[-1] == "last"
    assert len(lines) < CHUNK / 99
    assert set(lines[1:-1]) == {"y" * 99}


def test_a_line_without_end_is_cut(run):
    reader = Reader(run)
    for _ in range(4):
        write(run, 0, "z" * CHUNK)
        read(reader)
    write(run, 0, "\nnext\n")
    assert read(reader)[0][2][-1] == "next"
    assert all(
        len(line) <= logs.MAX_LINE_CHARS for file in reader._files.values() for line in [file._unfinished[:1].decode()]
    )


def test_a_log_that_was_written_anew_is_read_from_its_beginning(run):
    reader = Reader(run)
    write(run, 0, "a long first line\n")
    read(reader)
    write(run, 0, "new\n", mode="wb")
    assert read(reader) == [(0, "out", ["new"])]


def test_a_rotated_log_is_followed_without_loss_or_repetition(run):
    path = runs.run_dir(run.id) / "logs" / "ranks" / "x_y" / "attempt_0" / "0" / "stdout.log"
    reader = Reader(run)
    seen, number = [], 0
    for turn in range(40):
        write(run, 0, "".join(f"{number + each}\n" for each in range(7)))
        number += 7
        if turn % 3 == 0:
            write(run, 0, "half a li")
            path.replace(older(path))
            write(run, 0, "ne\n")
        seen += [line for _, _, lines in read(reader) for line in lines]
    assert [line for line in seen if line != "half a line"] == [str(each) for each in range(number)]
    assert seen.count("half a line") == 14


def test_of_a_log_that_was_rotated_before_the_first_look_the_end_is_read(run):
    path = runs.run_dir(run.id) / "logs" / "ranks" / "x_y" / "attempt_0" / "0" / "stdout.log"
    write(run, 0, "before\n" * CHUNK)
    path.replace(older(path))
    write(run, 0, "after\n")
    ((_, _, lines),) = read(Reader(run))
    assert (lines[0], lines[1], lines[-1]) == ("…", "before", "after")
    assert len(lines) > CHUNK / 8


def test_attempts_follow_each_other_and_the_launcher_is_there(run):
    for attempt in (10, 2, 0):
        write(run, 0, f"attempt {attempt}\n", attempt=attempt)
    (runs.run_dir(run.id) / "logs" / "launcher.log").write_text("hello\n")
    assert shown(Log(Reader(run)).poll()) == [
        ("0", "attempt 0"), ("0", "attempt 2"), ("0", "attempt 10"), ("launcher", "hello"),
    ]  # fmt: skip


def test_on_another_node_ranks_count_on(run):
    write(run, 1, "hi\n")
    there = dataclasses.replace(run, argv=["torchrun", "--node-rank=1"])
    assert read(Reader(there)) == [(3, "out", ["hi"])]


def test_an_entry_of_another_stream_is_not_joined():
    assert [entry.stream for entry in fold([FoldedLine("a", "err", {0})], [said(1, "a")])] == ["out"]


def test_every_source_of_a_run_reads_its_logs(run):
    """Live without a hub, and recorded: what was printed is on disk either way."""
    write(run, 0, "hi\n")
    live, recorded = LiveSource(run), RecordedSource(dataclasses.replace(run, ended_at=1.0, exit_code=0))
    try:
        for source in (live, recorded):
            assert shown(source.logs().poll()) == [("0", "hi")]
            assert source.logs() is source.logs()
    finally:
        live.close()
