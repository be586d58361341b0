"""Requests profiles of ranks for a viewer, and combines the ranks' answers into a table and a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ddpmon.analysis.processes.profiles import side_by_side, why_not_profiled
from ddpmon.analysis.trace_events import named_track, time_slice
from ddpmon.hub.sample_requests import slow_rank_and_peer
from ddpmon.messages import (
    MAX_PROFILED_RANKS,
    MAX_SAMPLED_S,
    Profile,
    ProfiledRank,
    ProfileOutcome,
    ProfileRequest,
    ProfileSteps,
    ProfileView,
)
from ddpmon.runs import private_files
from ddpmon.store.processes import RankProcess
from ddpmon.store.store import Store

START_S, START_STEPS = 20.0, 5
"""Time limit for a rank to finish its step: the longer of START_S seconds and START_STEPS usual steps."""
ANSWER_S, ANSWER_TIMES = 60.0, 10
"""Further time limit for the answer: ANSWER_S seconds, plus ANSWER_TIMES times the usual duration of the profiled
steps."""


@dataclass
class _Asked:
    """A rank that was asked for a profile."""

    shown: ProfiledRank
    process: RankProcess | None
    request: ProfileSteps
    until: float = 0.0
    profile: Profile | None = None

    @property
    def is_unanswered(self) -> bool:
        """Return whether the rank has not answered yet."""
        return self.profile is None and not self.shown.why


class ProfileRequests:
    """The latest request for a profile, and the answers to it."""

    def __init__(self, store: Store, ask: Callable[[RankProcess, ProfileSteps], None], folder: Path) -> None:
        """Begin without a request.

        Args:
            store: The run.
            ask: Sends a rank the request for a profile.
            folder: The run's folder, in which traces are written.

        """
        self._store = store
        self._ask = ask
        self._folder = folder
        self._asked: list[_Asked] = []
        self._number = 0
        self._request: ProfileRequest | None = None

    def request_profiles(self, ranks: Sequence[int], steps: int, now: float, peak_flops: float = 0.0) -> None:
        """Request profiles of ranks, unless another request is not finished yet.

        Args:
            ranks: Ranks to profile. If it is empty, a slow rank and one of its peers are profiled.
            steps: Number of steps.
            now: Seconds of the hub's clock.
            peak_flops: Peak FLOP/s of the device, to count FLOPs instead; 0 to profile.

        """
        if any(one.is_unanswered for one in self._asked):
            return
        store = self._store
        step_s = 0.0 if store.world is None else float(store.world.step_ms.mean()) / 1e3
        within = min(max(START_S, START_STEPS * step_s), MAX_SAMPLED_S)
        request = ProfileSteps(steps, within, peak_flops)
        until = now + within + ANSWER_S + ANSWER_TIMES * steps * step_s
        chosen = list(dict.fromkeys(ranks)) or [process.rank for process in slow_rank_and_peer(store)]
        self._number += 1
        self._request = ProfileRequest(tuple(ranks), steps, peak_flops)
        self._asked = []
        for rank in chosen[:MAX_PROFILED_RANKS]:
            process = store.registry.process_of_rank.get(rank)
            shown = ProfiledRank(
                rank, why=self._why_not(rank, process), steps=steps, usual_ms=step_s * 1e3, peak_flops=peak_flops
            )
            self._asked.append(_Asked(shown, process, request, until))
            if process is not None and not shown.why:
                process.profile = None
                self._ask(process, request)
        self._update_view()

    def _why_not(self, rank: int, process: RankProcess | None) -> str:
        """Return the reason why a rank cannot be profiled now, or "" if it can be profiled."""
        store = self._store
        size = store.registry.world_size or store.run.world_size
        if size and rank >= size:
            return f"rank {rank} does not exist: the run has ranks 0 to {size - 1}"
        if process is None:
            return f"rank {rank} sends nothing to this machine, so it cannot be profiled"
        if process.gone:
            return f"rank {rank} has ended"
        if store.state == "stalled":
            return f"rank {rank} finishes no step: the run stands still, so nothing can be profiled; see ddpmon stack"
        return ""

    def process_answers(self, now: float) -> bool:
        """Process new answers. Return whether any rank has newly answered, ended or timed out."""
        news = False
        for one in self._asked:
            process = one.process
            if not one.is_unanswered or process is None:
                continue
            if process.profile is not None:
                self._process_answer(one, process.profile)
                process.profile = None
            elif process.gone:
                one.shown = replace(one.shown, why=f"rank {process.rank} ended before its profile was finished")
            elif now > one.until:
                why = f"rank {process.rank} did not answer: it hangs in a profiled step, or an older ddpmon runs in it"
                one.shown = replace(one.shown, why=why)
            else:
                continue
            news = True
        if news:
            self._update_view()
        return news

    def _process_answer(self, one: _Asked, profile: Profile) -> None:
        one.profile = profile
        why = why_not_profiled(profile, one.request.seconds)
        if one.request.peak_flops and not why and not profile.flops:
            why = f"rank {profile.rank}: no operation of the step can be counted, as where a CUDA graph replays it"
        if why or profile.outcome != ProfileOutcome.PROFILED or not profile.steps:
            one.shown = replace(one.shown, why=why or f"rank {profile.rank}: the profile is empty")
            return
        one.shown = replace(
            one.shown,
            answered=True,
            first_step=profile.first_step,
            last_step=profile.last_step,
            steps=profile.steps,
            step_ms=profile.step_us / 1e3,
            cost_ms=(profile.start_us + profile.end_us) / 1e3,
            left_out=profile.left_out,
            flops=profile.flops,
        )

    def _update_view(self) -> None:
        """Update the view of the profile. Once all ranks have answered, write the trace."""
        waits = any(one.is_unanswered for one in self._asked)
        made = [one for one in self._asked if one.shown.answered and one.profile is not None]
        profiles = [one.profile for one in made if one.profile is not None]
        trace = ""
        if profiles and not waits and not any(one.request.peak_flops for one in made):
            trace = write_trace(self._folder, self._store, self._number, profiles)
            for one in made:
                one.profile = replace(one.profile, names=[], tracks=[]) if one.profile else None
        rows = side_by_side(profiles) if not waits else []
        self._store.profile = ProfileView(
            self._number, [one.shown for one in self._asked], waits, rows, trace, self._request
        )


FOLDER = "profiles"
"""Name of the folder for traces inside a run's folder."""


def write_trace(folder: Path, store: Store, number: int, profiles: Sequence[Profile]) -> str:
    """Write the trace of some profiles into the run's folder, and return its path, or "" if that fails.

    Args:
        folder: The run's folder.
        store: The run.
        number: Number of the profile.
        profiles: Profiles of all ranks that answered.

    """
    first = min(profile.first_step for profile in profiles)
    path = folder / FOLDER / f"step-{first}-{number}.json"
    begins = [store.common_us(profile.rank, profile.begin_us) for profile in profiles]
    events: list[dict[str, Any]] = []
    for profile, begin in zip(profiles, begins, strict=True):
        events += _events(profile, begin - min(begins), store)
    content = msgspec.json.encode({"displayTimeUnit": "ms", "traceEvents": events})
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        private_files.write_text(path, content.decode())
    except OSError as error:
        print(f"the trace {path} cannot be written: {error.strerror}", flush=True)
        return ""
    return str(path)


def _events(profile: Profile, begin: int, store: Store) -> Iterator[dict[str, Any]]:
    """Yield the trace events of a rank. In the trace, the rank is a process, and each thread and stream is a track."""
    process = store.registry.process_of_rank.get(profile.rank)
    name = f"rank {profile.rank}" + (f" on {process.hello.host}" if process else "")
    for number, track in enumerate(profile.tracks, start=1):
        yield from named_track(profile.rank + 1, name, number, track.name)
        starts = accumulate(track.starts_us)
        for index, start, length in zip(track.names, starts, track.lengths_us, strict=True):
            yield time_slice(profile.rank + 1, number, profile.names[index], track.name, begin + start, length)
