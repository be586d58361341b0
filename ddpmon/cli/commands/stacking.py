"""ddpmon stack: prints where the ranks of a running run are."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import click

from ddpmon.cli.asking import check_askable, first_answer, wait
from ddpmon.cli.options import WholeNumber, run_argument
from ddpmon.cli.reaching import find_running, over_ssh
from ddpmon.errors import UsageError

if TYPE_CHECKING:
    from ddpmon.messages import Snapshot, StackView
    from ddpmon.runs import Run
    from ddpmon.source import Source

MAX_STACKS_WAIT_S = 8.0
"""Longest time, in seconds, for the ranks to answer. It includes the time after which the hub sends a signal to a rank
whose probe does not answer."""
FRESH_S = 1.0
"""Age, in seconds, up to which a stack that another viewer requested is used."""
NEW_STACKS_AFTER_S = 1.0


@click.command()
@run_argument("run", required=False)
@click.option("--rank", type=WholeNumber(0), metavar="K", help="Show only the stack of the rank with this number.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@over_ssh
def stack(run: str | None, rank: int | None, as_json: bool) -> int:
    """Print the Python stack of every rank's training thread, innermost frame first.

    Ranks with the same stack share one entry. The mark › stands at the innermost line of your own script. The ranks
    continue to train while ddpmon reads their stacks. This command needs no extra package and no ptrace permission.

    \b
    Exit codes:
      0   all ranks answered
      1   some rank did not answer
    """
    import msgspec

    from ddpmon.export import stacks
    from ddpmon.source import attach

    target = find_running(run)
    check_askable(target, "ddpmon stack")
    with contextlib.closing(attach(target)) as source:
        views, fresh, world_size = _ask_ranks(source, target, rank)
    now = time.time()
    if as_json:
        ranks = stacks.facts(views, fresh, now)
        print(msgspec.json.format(msgspec.json.encode({"id": target.id, "name": target.name, "ranks": ranks})).decode())
    else:
        print("\n".join(stacks.text(views, fresh, world_size, now)))
    return 0 if len(fresh) == len(views) else 1


def _ask_ranks(source: Source, run: Run, rank: int | None) -> tuple[list[StackView], set[int], int]:
    """Return each rank's stack, the ranks that answered just now, and the world size.

    Raises:
        DdpmonError: No rank of the run can answer.

    """
    from ddpmon.messages import ViewRequest

    source.request_view(ViewRequest(stacks=True))
    shot = first_answer(source, run, lambda shot: bool(shot.stacks))
    world_size = len(shot.stacks)
    if rank is not None and rank >= world_size:
        raise UsageError(f"--rank {rank}: the run {run.name} ({run.id}) has ranks 0 to {world_size - 1}")
    before = {view.rank: view.stack for view in shot.stacks}
    asked_at = time.time()
    source.ask([] if rank is None else [rank])

    def views_of(shot: Snapshot) -> list[StackView]:
        return [view for view in shot.stacks if rank is None or view.rank == rank]

    def is_fresh(view: StackView) -> bool:
        if view.asked or view.stack is None or view.why:
            return False
        if view.at is None:
            return before.get(view.rank) != view.stack
        return view.at > asked_at - FRESH_S

    def settled(shot: Snapshot) -> bool:
        new = shot.at > asked_at or time.time() > asked_at + NEW_STACKS_AFTER_S
        return all(is_fresh(view) or (new and view.why and not view.asked) for view in views_of(shot))

    last = wait(source, MAX_STACKS_WAIT_S, settled) or source.snapshot() or shot
    views = views_of(last)
    return views, {view.rank for view in views if is_fresh(view)}, world_size
