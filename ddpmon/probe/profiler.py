"""Runs torch's profiler for some steps of the training thread when the hub requests it.

The training thread itself starts and ends the profiler between two steps: at the first note after an optimizer's step.
To catch this moment, the thread's notes go through this object while a profile is requested. A pause is noted when the
profiler starts, when it ends, and at each boundary between profiled steps, so that these steps count in no mean.
Nothing runs without a request.

A profiler of the script has precedence. While it runs, no profile starts. When it starts, a running profile ends first.
"""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Callable
from itertools import pairwise
from threading import get_ident
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from torch.autograd import DeviceType
from torch.autograd import profiler as torch_profiler

from ddpmon import api
from ddpmon.messages import PROFILING, Profile, ProfileOutcome, ProfileSteps, Scalar, Step
from ddpmon.plain import utf8
from ddpmon.probe.account import OPTIMIZER_ENDS, Account
from ddpmon.probe.journal import Note
from ddpmon.probe.operators import ANCHOR, Phases, Totals, blocked_spans, named_tracks, pass_ends, slices_of_events
from ddpmon.probe.records import RawStep, RawSync
from ddpmon.probe.step_records import parts
from ddpmon.probe.undo import Changes

if TYPE_CHECKING:
    from ddpmon.probe.every_step import EveryStep

PROFILER_STARTS = ("_prepare_profiler", "_enable_profiler")
"""Functions of torch that a profiler of the script calls before it starts."""
LAST_STEP_NS = 30_000_000_000
"""Nanoseconds after the end of a profile for which to wait for its last step."""


class Profiler:
    """Makes one profile at a time. make_way: offers the GIL to the training thread."""

    def __init__(self, listener: EveryStep, make_way: Callable[[], None]) -> None:
        self._listener = listener
        self._make_way = make_way
        self._guards = Changes()
        """Temporary wrappers, while a profile runs, around functions that a profiler of the script calls."""
        self._undoes = False
        self._counted: tuple[int, float] | None = None
        """FLOPs of a step, and the device's peak FLOPs per second; None before FLOPs were counted."""
        self._answer: Profile | None = None
        self._reset(None, 0)

    def _reset(self, request: ProfileSteps | None, until: int) -> None:
        self._request, self._until = request, until
        self._key: int | None = None
        """Id of the optimizer whose steps separate the profiled passes."""
        self._is_between_steps = False
        self._profile: Any = None
        """torch's profiler, or a counter of FLOPs."""
        self._begins = False
        """True once the training thread has begun to start the profiler."""
        self._is_expired = self._is_over = False
        self._outcome, self._error = ProfileOutcome.PROFILED, ""
        self._passes: list[int] = []
        """Times at which the training thread finished the loop's passes under the profiler."""
        self._begin = self._end = self._ahead = self._start_cost = self._end_cost = 0
        self._events: list[Any] = []
        self._flops = 0
        self._phases: list[tuple[int, int]] = []
        self._syncs: list[RawSync] = []
        self._steps: list[int] = []

    def begin_profile(self, request: ProfileSteps, now: float) -> None:
        """Begin a profile at the end of the next step. A request during another one is ignored."""
        if self._request is None:
            self._reset(request, int((now + request.seconds) * 1e9))
            if not self._undoes:
                self._undoes = True
                self._listener.changes.undone_by(self._leave)

    def advance_profile(self, send: Callable[[Profile], bool]) -> None:
        """Advance the profile on the background thread, and send it once it is complete."""
        if self._request is None:
            return
        hot = self._listener.hot
        if self._answer is None and not self._is_over:
            if hot.mark != self._mark:  # Other code may also have replaced `hot.mark` meanwhile.
                self._mark_next, hot.mark = hot.mark, self._mark
            # Each thread sets one flag and then reads the other's, so at least one of them sees both.
            self._is_expired = monotonic_ns() > self._until
            if self._is_expired and not self._begins:
                self._outcome, self._is_over = ProfileOutcome.NO_STEP, True
        if self._is_over and self._answer is None and self._last_step_is_read():
            hot.mark = self._mark_next if hot.mark == self._mark else hot.mark
            self._answer = self._made_or_failed()
        if self._answer is not None and send(self._answer):
            self._answer = None
            self._reset(None, 0)

    def keep_phase(self, phase: int) -> None:
        """Record the training thread's phase from the time of the note that is being read."""
        self._phases.append((self._listener.journal.now, phase))

    def step_ended(self, raw: RawStep) -> None:
        """Record a step after all its notes have been read."""
        if self._request is not None and any(one.kind == PROFILING for part in parts(raw) for one in part.pauses):
            self._steps.append(raw.step)
            self._syncs += [sync for part in parts(raw) for sync in part.syncs if self._begin <= sync.arrival]

    def utilization(self, step: Step) -> list[Scalar]:
        """Return the step's model FLOPs utilization; [] if nobody requested it, or the script calls `ddpmon.flops`."""
        if self._counted is None or not step.length_us or api.counts_flops():
            return []
        flops, peak = self._counted
        return [Scalar(step.step, "mfu", flops / (step.length_us / 1e6) / peak)]

    # --- on the training thread --------------------------------------------------------------------------------

    def _mark(self, note: Note) -> None:
        """Pass a note on to the real `hot.mark`, and start or end the profiler before it if a step has just ended."""
        if get_ident() != self._listener.hot.thread or self._is_over:
            self._mark_next(note)
            return
        if self._is_between_steps:
            self._is_between_steps = False
            self._pause()
            note = (note[0], monotonic_ns(), *note[2:])
        self._mark_next(note)
        if self._begin:
            self._listener.hot.note((_read_phase, note[1], None, self, None, None))
        if note[0] == OPTIMIZER_ENDS and self._key in {None, note[3]}:
            self._key = note[3]
            self._is_between_steps = True

    def _pause(self) -> None:
        """Start the profiler, end it, or count a step, as a pause between two steps."""
        self._mark_next((Account.pause_begins, monotonic_ns(), None, PROFILING, None, None))
        try:
            if self._profile is None:
                self._start()
            else:
                self._passes.append(monotonic_ns())
                if self._request is not None and len(self._passes) >= self._request.steps:
                    self._stop()
        except Exception as error:
            self._fail(error)
        self._mark_next((Account.pause_ends, monotonic_ns(), None, None, None, None))
        if self._profile is not None and not self._begin:
            self._begin = monotonic_ns()
            if not self._counts:
                with torch_profiler.record_function(ANCHOR):
                    pass

    def _start(self) -> None:
        began, self._begins = monotonic_ns(), True
        if self._is_expired:
            self._outcome, self._is_over = ProfileOutcome.NO_STEP, True
            return
        if self._counts:
            self._count()
            self._start_cost = monotonic_ns() - began
            return
        if _is_profiled():
            self._outcome, self._is_over = ProfileOutcome.OWN_PROFILER, True
            return
        device = "cuda" if self._listener.identity.cuda_device is not None else None
        started = torch_profiler.profile(use_device=device, use_kineto=True)
        started.__enter__()
        self._profile = started
        atexit.register(self._leave)  # torch crashes if the process exits during a profile.
        for name in PROFILER_STARTS:
            self._guards.patch(torch_profiler, name, self._giving_way(getattr(torch_profiler, name)))
        self._ahead = time_ns() - monotonic_ns()
        self._start_cost = monotonic_ns() - began

    def _count(self) -> None:
        """Count FLOPs instead of profiling."""
        from ddpmon.probe.flop_counter import FlopCounter, is_compiled  # imported here, as few runs need it

        if is_compiled():
            self._outcome, self._is_over = ProfileOutcome.COMPILED, True
            return
        self._profile = FlopCounter()
        self._profile.__enter__()
        atexit.register(self._leave)

    def _stop(self) -> None:
        """End the profiler, and fetch its events here on the training thread, so that this delays no later step."""
        self._end = monotonic_ns()
        profile = self._release()
        if self._counts:
            self._flops = profile.flops
        elif profile is not None:
            profile.__exit__(None, None, None)
            self._events = profile.kineto_results.events()
        self._end_cost = monotonic_ns() - self._end
        self._is_over = True

    @property
    def _counts(self) -> bool:
        """Return whether the request is to count FLOPs rather than to profile."""
        return self._request is not None and self._request.peak_flops > 0

    def _release(self) -> Any:
        """Remove the temporary wrappers. Return the running profile, or the FLOP counter, stopped; None if idle."""
        self._guards.undo_all()
        atexit.unregister(self._leave)
        profile, self._profile = self._profile, None
        if profile is not None and self._counts:
            profile.end()
        return profile

    def _giving_way(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper of a torch function that ends ddpmon's profile before the script's profiler starts."""

        def start(*arguments: Any, **named: Any) -> Any:
            if get_ident() == self._listener.hot.thread:
                self._leave(ProfileOutcome.OWN_PROFILER)
            return original(*arguments, **named)

        return start

    def _leave(self, outcome: ProfileOutcome = ProfileOutcome.FAILED) -> None:
        """End a running profile before it is complete. outcome: the reason, for the answer."""
        try:
            if self._profile is not None:
                self._outcome, self._error = (
                    outcome,
                    "the rank ended before its profile was finished, or ddpmon left it",
                )
                self._stop()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._outcome, self._error = ProfileOutcome.FAILED, utf8(f"{type(error).__name__}: {error}")[:1000]
        self._release()
        self._is_over = True

    # --- the answer --------------------------------------------------------------------------------------------

    def _last_step_is_read(self) -> bool:
        """Return whether the record of the step in which the profile ended is there, or is overdue."""
        if self._outcome != ProfileOutcome.PROFILED or len(self._steps) > len(self._passes):
            return True
        return monotonic_ns() > self._end + LAST_STEP_NS

    def _made_or_failed(self) -> Profile:
        try:
            return self._made()
        except Exception as error:  # Another version of torch may differ.
            self._fail(error)
            return self._made()

    def _made(self) -> Profile:
        rank = self._listener.identity.facts.rank
        if self._outcome != ProfileOutcome.PROFILED:
            return Profile(rank, os.getpid(), self._outcome, self._error)
        begin, end = self._begin, self._end
        if self._request is not None and self._counts:
            self._counted = self._flops, self._request.peak_flops
            return Profile(
                rank, os.getpid(), ProfileOutcome.PROFILED, first_step=min(self._steps, default=0),
                last_step=max(self._steps, default=0), steps=len(self._passes), step_us=(end - begin) // 1000,
                start_us=self._start_cost // 1000, end_us=self._end_cost // 1000, flops=float(self._flops),
            )  # fmt: skip
        found = slices_of_events(self._events, self._ahead, DeviceType.CPU, self._make_way)
        self._events = []
        phases = Phases(self._phases, begin, end)
        totals = Totals(phases)
        syncs = [sync for sync in self._syncs if sync.end <= end]
        totals.add(found, syncs, self._make_way)
        slices = [*phases.slices, *blocked_spans(syncs), *found.operators, *found.kernels, *found.collectives]
        names, made, left_out = named_tracks(slices, begin)
        return Profile(
            rank, os.getpid(), ProfileOutcome.PROFILED,
            first_step=min(self._steps, default=0), last_step=max(self._steps, default=0), steps=len(self._passes),
            begin_us=begin // 1000, span_us=(end - begin) // 1000,
            step_us=_median_length([begin, *pass_ends(self._passes, found)]) // 1000,
            start_us=self._start_cost // 1000, end_us=self._end_cost // 1000,
            operators=totals.operators(), names=names, tracks=made, left_out=left_out,
        )  # fmt: skip


def _median_length(moments: list[int]) -> int:
    """Return the median length of a pass in ns. The first pass may be longer: it waits for other ranks' profilers."""
    lengths = sorted(end - begin for begin, end in pairwise(moments))
    return lengths[len(lengths) // 2] if lengths else 0


def _is_profiled() -> bool:
    """Return whether a profiler of the script runs or is about to run."""
    from torch._C._autograd import _profiler_enabled

    if _profiler_enabled():
        return True
    # Compare types only: `isinstance` would ask objects of the script for their `__class__`.
    found = (one for one in gc.get_objects() if issubclass(type(one), torch_profiler.profile))
    return any(one.entered and one.kineto_results is None for one in found)


def _read_phase(account: Account, profiler: Profiler, *_: object) -> None:
    """Record the phase after a note that may have changed it."""
    profiler.keep_phase(account.clock.phase)
