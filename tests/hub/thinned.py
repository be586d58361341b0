"""Recordings that grew large, and were thinned."""

import contextlib
import sqlite3

from ddpmon import runs
from ddpmon.messages import PROTOCOL, Batch, Hello, Sample, Scalar
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.recording import recording_path
from ddpmon.store.clock import Clock
from ddpmon.store.processes import RankProcess
from tests.recordings import BEGAN, story
from tests.worlds import own_times, records

WIDTHS_US = {"minutes": 60_000_000, "hours": 3_600_000_000}
NO_ROOM = (1, 200)
"""All is merged that may be."""
SOME_ROOM = (250_000, 200)


def rows(source, query, *values):
    path = recording_path(source.id) if isinstance(source, runs.Run) else source
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return db.execute(query, values).fetchall()


def recorded(run):
    """(rank, how many of its steps, the last of them) of each rank whose steps are recorded."""
    query = (
        "SELECT rank, sum(count), max(b.last_step) FROM step_blocks b JOIN processes ON id = process GROUP BY process"
    )
    return rows(run, query)


def counts(run):
    steps = rows(run, "SELECT coalesce(sum(count), 0) FROM step_blocks")[0][0]
    return {"steps": steps} | {
        name: rows(run, "SELECT count(*) FROM rollup WHERE width_us = ?", width_us)[0][0]
        for name, width_us in WIDTHS_US.items()
    }


def slow(steps=3000, ranks=2):
    """Five steps a second; rank 1 is late from a third to half of them."""
    return story(steps, ranks, late=1, begin=steps // 3, end=steps // 2) * 6


def merge_all(recorder):
    """Have a recorder merge all that it may."""
    recorder.write()
    while recorder.too_large:
        recorder.merge_oldest()
    recorder.close()


class EndlessRun:
    """Four ranks that tell of half a second at a time."""

    def __init__(self, path, *, whole_bytes, first=1):
        self.recorder = Recorder(path, "made-up", Clock(0, BEGAN), None, whole_bytes, 400)
        hellos = [Hello(PROTOCOL, "made-up", r, r, 4, 0, "here", 1000 + r, 4) for r in range(4)]
        self.processes = [RankProcess(r + 1, 0, hello, stage=4) for r, hello in enumerate(hellos)]
        self.own = own_times(10, 4, noise=0.1)
        self.number, self.now_us = first - 1, first * 50_000
        for process in self.processes:
            self.recorder.record_process(process)
            process.last_step = process.records = self.number

    def tick(self):
        told = records(self.own, first=self.number + 1, start_us=self.now_us)
        for process in self.processes:
            steps = told[process.rank]
            process.seq += 1
            process.last_step = process.steps = steps[-1].step
            process.records += len(steps)
            at_us = self.now_us // 1_000_000 * 1_000_000
            samples = [] if at_us == getattr(process, "sampled_us", None) else [Sample(at_us, 90.0, 1 << 30)]
            process.sampled_us = at_us
            scalars = [Scalar(step.step, "loss", 1.0) for step in steps] if process.rank == 0 else []
            batch = Batch(process.rank, process.hello.pid, process.seq, self.now_us, 4, process.steps, 0,
                          steps=steps, samples=samples, scalars=scalars)  # fmt: skip
            self.recorder.record_batch(process, batch, steps)
        self.number, self.now_us = self.number + len(self.own), told[0][-1].end_us
        self.recorder.write_soon()
        self.recorder.write()
        while self.recorder.too_large:
            self.recorder.merge_oldest()
