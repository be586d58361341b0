"""ddpmon profile: compares operators of a slow rank with those of another rank, without a restart."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

import click

from ddpmon import config
from ddpmon.cli.asking import HUB_S, check_askable, first_answer, over, wait
from ddpmon.cli.options import WholeNumber, run_argument
from ddpmon.cli.reaching import find_running, over_ssh
from ddpmon.cli.streams import output_columns
from ddpmon.errors import DdpmonError, HubUnreachableError, UsageError
from ddpmon.export.width import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddpmon.messages import ProfileView, Snapshot
    from ddpmon.runs import Run
    from ddpmon.source import Source

PROFILE_ROWS = 15
HUB_SILENCE_S = 15.0
"""Seconds without a message from the hub after which the command stops waiting."""


@click.command()
@run_argument("run", required=False)
@click.option("--ranks", metavar="K,…", help="Ranks to profile. Default: the slow rank and one of the others.")
@click.option(
    "--steps", type=WholeNumber(1, 50), metavar="N", default=5, show_default=True, help="Number of steps to profile."
)
@click.option("--flops", is_flag=True, help="Count the operations of one step instead, and show the MFU from then on.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@over_ssh
def profile(run: str | None, ranks: str | None, steps: int, flops: bool, as_json: bool) -> int:
    """Compare the operators of a slow rank and of another one.

    torch's profiler runs in both ranks for a few steps. The ranks keep running, and their weights stay bit-identical.
    The operator, kernel or phase with the largest difference comes first. A trace of these ranks on one clock, with
    ddpmon's phases, goes into the run's folder.

    The profiler makes steps longer, most of all steps of many short operators. Starting and ending it pauses the rank
    once, for up to a second, or for longer on a GPU. The other ranks wait meanwhile. Means and findings leave these
    steps out. If the script uses torch.profiler itself, ddpmon leaves it alone and profiles nothing.

    With --flops, ddpmon counts the floating-point operations of the model in one step, forward and backward, which also
    counts in no mean. From then on the ranks show mfu, the model FLOPs utilization, as ddpmon.flops does. ddpmon knows
    the peak of A100, H100 and H200. For others, set peak_tflops under [gpu] in the config file.

    \b
    Exit codes:
      0   all ranks were profiled
      1   some rank was not
    """
    import msgspec

    from ddpmon.analysis.processes import profile_text
    from ddpmon.export import profiles
    from ddpmon.source import attach

    chosen = profile_text.chosen_ranks(ranks or "")
    target = find_running(run)
    check_askable(target, "ddpmon profile")
    with contextlib.closing(attach(target)) as source:
        view = _profile(source, target, chosen, steps, flops)
    if as_json:
        facts = {"id": target.id, "name": target.name, **profiles.facts(view)}
        print(msgspec.json.format(msgspec.json.encode(facts)).decode())
    else:
        lines = profile_text.profile_lines(view, PROFILE_ROWS)
        end = lines.index("") if "" in lines else len(lines)  # The table begins there.
        room = output_columns()
        print("\n".join([row for line in lines[:end] for row in wrapped(line, room)] + lines[end:]))
    return 0 if all(one.answered for one in view.ranks) else 1


def _profile(source: Source, run: Run, ranks: list[int], steps: int, flops: bool) -> ProfileView:
    """Request a profile, and return it once every rank has answered. Raise DdpmonError if that is impossible."""
    from ddpmon.analysis.processes.profile_text import FLOPS_COST, PROFILE_COST
    from ddpmon.messages import ProfileRequest, ViewRequest

    source.request_view(ViewRequest(profile=True))
    shot = first_answer(source, run, lambda shot: shot.run.world_size > 0)
    if wrong := [rank for rank in ranks if rank >= shot.run.world_size]:
        raise UsageError(f"--ranks {wrong[0]}: {run.name} ({run.id}) has ranks 0 to {shot.run.world_size - 1}")
    peak_flops = _peak_flops(shot, ranks) if flops else 0.0
    granted = wait(source, HUB_S, lambda shot: shot.profile is not None)
    if granted is None or granted.profile is None:
        raise HubUnreachableError(f"the hub of {run.name} ({run.id}) cannot profile ranks: an older ddpmon started it")
    busy = f"{run.name} ({run.id}) is being profiled already; try again in a minute"
    if granted.profile.waits:
        raise DdpmonError(busy)
    number = granted.profile.number
    now = f" A step takes {shot.step_ms_p50:.1f} ms now." if shot.step_ms_p50 else ""
    print(f"{FLOPS_COST if flops else PROFILE_COST}{now}", file=sys.stderr)
    request = ProfileRequest(tuple(ranks), 1 if flops else steps, peak_flops)
    source.ask(request.ranks, request.steps, request.peak_flops)

    def asked(shot: Snapshot) -> bool:
        return shot.profile is not None and shot.profile.number > number

    accepted = wait(source, HUB_S, asked)
    if accepted is None or accepted.profile is None:
        raise HubUnreachableError(f"the hub of {run.name} ({run.id}) did not accept the request; try again")
    if accepted.profile.request not in {None, request}:
        raise DdpmonError(busy)  # Another viewer asked for another profile at the same moment.
    view = _wait_for_all(source, run, asked)
    if not view.ranks:
        newest = source.snapshot() or shot
        if any(rank.pid for rank in newest.ranks):
            raise DdpmonError(f"all ranks of {run.name} ({run.id}) have ended, so none can be profiled")
        raise DdpmonError(f"no rank of {run.name} ({run.id}) is connected yet; try again once it trains")
    return view


def _peak_flops(shot: Snapshot, ranks: list[int]) -> float:
    """Return the GPU's peak in FLOP/s, from the config file or by its name. Raise UsageError if it is unknown."""
    from ddpmon.analysis.processes.peak_flops import peak_flops

    if (tflops := config.current().needed("gpu.peak_tflops")) is not None:
        return float(tflops) * 1e12
    named = {one.environment.device_name for one in shot.ranks if one.environment and (one.rank in ranks or not ranks)}
    if len(peaks := {peak_flops(name) for name in named}) == 1 and (peak := peaks.pop()) is not None:
        return peak
    place = config.path() or "the config file"
    names = " and ".join(sorted(name or "a CPU" for name in named)) or "these ranks"
    raise UsageError(f"--flops: ddpmon does not know the peak of {names}; set peak_tflops under [gpu] in {place}")


def _wait_for_all(source: Source, run: Run, asked: Callable[[Snapshot], bool]) -> ProfileView:
    """Return the profile once every rank has answered, or the hub has given up on it."""
    from ddpmon.messages import END_STATES

    while source.silent_for() < HUB_SILENCE_S:
        shot = source.snapshot()
        if shot is not None and shot.profile is not None and asked(shot) and not shot.profile.waits:
            return shot.profile
        if shot is not None and shot.state in END_STATES:
            raise DdpmonError(over(run))
        time.sleep(0.02)
    raise HubUnreachableError(f"the hub of {run.name} ({run.id}) stopped answering before the profile was complete")
