"""Observes ranks through /proc when they cannot report: before the first step, in a hang, and after they were
killed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time

from ddpmon import proc, runs
from ddpmon.analysis.processes.launcher import latest_warning
from ddpmon.analysis.processes.starts import START_PROGRESS_S
from ddpmon.analysis.processes.waiting import Waiting
from ddpmon.hub.cpu_activity import CpuActivity
from ddpmon.hub.silent_ranks import SilentRanks
from ddpmon.hub.stack_requests import StackRequests
from ddpmon.hub.unwatched_processes import Unwatched, started_ranks
from ddpmon.messages import END_STATES, MAX_STEP
from ddpmon.messages.step_counter import COUNTER_BYTES, COUNTER_NAME, finished_steps
from ddpmon.recording.recorder import Recorder
from ddpmon.runs.rotated_logs import tail
from ddpmon.runs.run import WAITING
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry
from ddpmon.store.standstill import start_line
from ddpmon.store.store import Store


class StepCounters:
    """Step counters in shared memory of this machine's ranks. Each is open from a rank's Hello until the rank's end."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._open: dict[int, tuple[RankProcess, int, int]] = {}
        """Open counters by `RankProcess.id`: the process, the start of its program, and the file descriptor."""

    def open_counter(self, process: RankProcess) -> None:
        """Open the step counter of a process that sent its Hello, unless it is already open."""
        hello = process.hello
        known = self._open.get(process.id)
        if process.peer is None or not process.peer.pid or (known and known[1] == hello.began_us):
            return
        if known:
            os.close(self._open.pop(process.id)[2])
        with contextlib.suppress(OSError):
            self._open[process.id] = process, hello.began_us, _opened(process.peer.pid, hello.counter_fd)

    def update_ended(self) -> list[RankProcess]:
        """Return the processes that have ended since the last call, after updating their numbers of steps."""
        ended = [process for process, _, _ in self._open.values() if self._has_ended(process)]
        for process in ended:
            _, _, descriptor = self._open.pop(process.id)
            if not process.left:
                process.steps = max(
                    process.steps, min(finished_steps(os.pread(descriptor, COUNTER_BYTES, 0)), MAX_STEP - 1)
                )
            os.close(descriptor)
        return ended

    def _has_ended(self, process: RankProcess) -> bool:
        """Return whether a process has ended. The registry marks only ranks of the current attempt."""
        return process.left or process.dead or (not self._registry.is_seated(process) and process.gone)


def _opened(pid: int, descriptor: int) -> int:
    """Return a descriptor of a rank's step counter, or raise OSError if the script has closed the counter."""
    path = proc.PROC_ROOT / str(pid) / "fd" / str(descriptor)
    if os.readlink(path) != f"/memfd:{COUNTER_NAME} (deleted)":
        raise FileNotFoundError(path)
    mine = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(mine)
    if not stat.S_ISREG(status.st_mode) or status.st_size != COUNTER_BYTES:
        os.close(mine)
        raise FileNotFoundError(path)
    return mine


WARNINGS_BYTES = 65_536
"""Number of bytes at the end of the launcher's output that are searched for warnings."""
MAX_WARNINGS = 8
"""Largest number of events about warnings that torchrun printed. Each kind of warning makes one event."""
PROC_SEARCH_S = 1.0
"""Interval in seconds at which /proc is read while a run waits for its ranks."""


class Processes:
    """Observes the processes of this machine, and passes the results to the store and the recorder."""

    def __init__(self, store: Store, recorder: Recorder, asking: StackRequests) -> None:
        """Start without observations. asking: the pending requests for stacks."""
        self._store, self._recorder, self._asking = store, recorder, asking
        self._silent = SilentRanks(runs.run_dir(store.run.id))
        self._working = CpuActivity(START_PROGRESS_S.enter)
        self._unwatched = Unwatched(speaks_at_once=store.run.world_size > 0)
        self._searched_at = time.monotonic()
        self._warnings: set[str] = set()

    def find_ranks(self, now: float) -> None:
        """While the run waits for its ranks, find the ranks that were started, and those without the probe."""
        store, run = self._store, self._store.run
        if store.state != "waiting" or now - self._searched_at < PROC_SEARCH_S:
            return
        self._searched_at = now
        started = run.agent if not run.attached else None
        unarmed = self._unwatched.find_unarmed(started, store.registry.processes, now) if started else []
        line, line_s = start_line(store.registry, now)
        store.waiting = Waiting(
            store.registry.world_size or run.world_size,
            launcher=run.agent is not None and run.agent.alive(),
            attached=len(run.attached),
            in_c_code=tuple((each.name, each.why) for each in run.attached if each.state == WAITING),
            stages={rank: process.stage for rank, process in store.registry.process_of_rank.items()},
            started=started_ranks(run.agent) if run.agent else frozenset(),
            unarmed=tuple(unarmed),
            warnings=0 if store.registry.process_of_rank else self._launcher_warnings(),
            line=line,
            line_s=line_s,
        )
        self._recorder.record_unarmed(unarmed)

    def _launcher_warnings(self) -> int:
        """Add an event for a new warning of the launcher, and return how often the latest warning was printed."""
        printed = tail(runs.run_dir(self._store.run.id) / "logs" / "launcher.log", WARNINGS_BYTES)
        latest = latest_warning(printed)
        if latest is None:
            return 0
        if latest.topic not in self._warnings and len(self._warnings) < MAX_WARNINGS:
            self._warnings.add(latest.topic)
            launcher = "torchrun" if self._store.run.world_size else "the command"
            self._store.add_event(time.time(), "info", f"{launcher} warns: {latest.text}")
        return latest.count

    def examine_silent(self, now: float) -> bool:
        """Examine ranks that make no progress or do not answer, and return whether there is news for viewers."""
        self._measure_work(now)
        store = self._store
        since = store.stands_since
        learnt = False
        for process in store.registry.process_of_rank.values():
            unheard = self._asking.is_unheard(process, now)
            if process.health(now) != "silent" and not unheard:
                self._silent.forget_rank(process)
                if store.state == "stalled":
                    learnt = self._silent.check_worker(process, now) or learnt
                elif process.worker and store.state not in {*END_STATES, "stopping"}:
                    self._silent.forget_worker(process)
            elif (unheard or store.state == "stalled") and self._silent.examine_rank(
                process, now, int((since or process.heard_at) * 1e6)
            ):
                self._recorder.record_process(process)
                learnt = True
        return self._asking.drop_overdue(now) or learnt

    def _measure_work(self, now: float) -> None:
        """Detect, before the first step, which ranks do nothing."""
        store = self._store
        by_rank = store.registry.process_of_rank
        if not store.step and len(by_rank) == store.registry.world_size:
            alive = [process for process in by_rank.values() if process.process and not process.gone]
            self._working.measure([process.hello.pid for process in alive], now)
            store.idle = frozenset(process.rank for process in alive if self._working.is_idle(process))

    def delete_files(self) -> None:
        """Delete the files for stacks when the run is over."""
        self._silent.delete_files()
