"""Splits the time for which ranks were blocked into wait and transfer, by comparing the arrivals of ranks."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ddpmon.analysis.statistics.arrays import Bools, Ints
from ddpmon.analysis.statistics.excess import over_peers
from ddpmon.analysis.steps.table import ARRIVAL, KIND, PHASE_FIELDS, Rows
from ddpmon.analysis.steps.world import World
from ddpmon.messages import SYNC_GRADIENTS, SYNC_KINDS, Phase


def split_waits(
    rows: Rows,
    clock_offset_us: Ints | None = None,
    own_clocks: Collection[int] = frozenset(),
    *,
    whole: bool | Bools = True,
) -> World:
    """Return own time, wait and transfer of every rank in every step.

    In each synchronisation, the wait is the last arrival in the world minus the rank's own arrival, at most as long as
    the rank was blocked; the transfer is the rest. The n-th synchronisation of a kind on one
    rank is matched with the n-th of that kind on the other ranks. If ranks have different numbers of synchronisations
    of a kind in a step (collectives of a subgroup), the last arrival is unknown. All blocked time then counts as wait,
    so that it is not mistaken for work or for a slow network. All blocked time also counts as wait if some ranks of the
    world have not sent records, because any of these may have arrived last.

    Lateness is a rank's arrival minus the median arrival of the others. It is measured at the last gradient
    synchronisation of a step. From each arrival, the time that the rank has already waited in this step is
    subtracted. A rank that delayed the others at an earlier synchronisation (a broadcast of buffers, the gradients of
    another model) arrives together with them. The subtraction shows that it is still as late as before.

    Args:
        rows: The steps.
        clock_offset_us: [S, R] offset from a rank's clock to the world's (see `clocks`); ranks of one host share a
            clock.
        own_clocks: Ranks whose steps are timed by a clock of their own, such as their GPU's. A gradient synchronisation
            ends at the same moment everywhere, so the ends of these ranks' steps are set to the world's.
        whole: True if every rank of the world has sent records, so that the last rank to arrive is known; or [S] for
            each step. If not, lateness and the critical rank refer only to ranks with records.

    """
    shape = rows.table.shape
    end, length = rows.integer_field("end_us"), rows.integer_field("length_us")
    phases = np.stack([rows.integer_field(name) for name in PHASE_FIELDS], axis=-1)
    if clock_offset_us is not None:
        end = end + clock_offset_us
    if own_clocks:
        apart = np.array([rank in own_clocks for rank in rows.ranks])
        end = np.where(apart, end.max(axis=1, keepdims=True), end)
    start = end - length
    if (paused := rows.paused_us()) is not None:  # Steps with pauses are kept only if most steps have pauses.
        length = length - paused
    owner, syncs = rows.syncs()

    wait, blocked, exposed, exposed_wait, gradient_bytes, arrived_last, waited_last = np.zeros((7, *shape), np.int64)
    gradients = np.zeros(shape, bool)
    heard_all = np.broadcast_to(whole, shape[:1])[:, None, None]
    for kind in range(len(SYNC_KINDS)):
        mine = syncs[:, KIND] == kind
        if not mine.any():
            continue
        count, arrival, left, payload = _slots(owner[mine], syncs[mine, ARRIVAL:], shape)
        valid = np.arange(arrival.shape[2]) < count[..., None]
        arrived = arrival + start[..., None]
        stuck = np.where(valid, left - arrival, 0)
        matched = (count.min(axis=1) == count.max(axis=1))[:, None, None] & valid
        last = np.where(matched, arrived, np.iinfo(np.int64).min).max(axis=1, keepdims=True)
        waited = np.where(matched & heard_all, np.clip(last - arrived, 0, stuck), stuck)
        wait += waited.sum(axis=2)
        blocked += stuck.sum(axis=2)
        if kind == SYNC_GRADIENTS:
            exposed = stuck.sum(axis=2)
            exposed_wait = waited.sum(axis=2)
            gradient_bytes = np.where(valid, payload, 0).sum(axis=2)
            final = np.maximum(count - 1, 0)[..., None]
            gradients = matched[..., 0]
            arrived_last = np.take_along_axis(arrived, final, axis=2)[..., 0]
            waited_last = np.take_along_axis(waited, final, axis=2)[..., 0]

    blocked = np.minimum(blocked, length)
    wait = np.minimum(wait, blocked)
    ready = arrived_last - (wait - waited_last)
    late = np.where(gradients, over_peers(ready.astype(np.float64)) / 1e3, np.nan)
    # With one synchronisation, the rank that waits least is the last to arrive. With several, only the least wait
    # identifies the critical rank: in a model with buffers, rank 0 waits for a late rank in forward, and both arrive
    # last at the gradients.
    critical = np.where(wait.max(axis=1) > 0, wait.argmin(axis=1), -1)
    # The time that rounding left over is assigned to `other`, so that the phases add up to the step.
    phases[..., Phase.OTHER] += length - blocked - phases.sum(axis=2)
    np.maximum(phases, 0, out=phases)
    loss, has_loss = rows.losses()
    return World(
        ranks=rows.ranks,
        step=np.array(rows.step_numbers(), np.int64),
        end_us=end.max(axis=1),
        length_ms=length / 1e3,
        phases_ms=phases / 1e3,
        own_ms=phases.sum(axis=2) / 1e3,
        wait_ms=wait / 1e3,
        transfer_ms=(blocked - wait) / 1e3,
        exposed_ms=exposed / 1e3,
        exposed_wait_ms=exposed_wait / 1e3,
        late_ms=late,
        critical=critical.astype(np.int64),
        gradient_bytes=gradient_bytes,
        samples=rows.integer_field("samples"),
        loss=loss,
        has_loss=has_loss,
        tokens=rows.integer_field("tokens"),
        gc_ms=rows.integer_field("gc_us") / 1e3,
        learning_rate=rows.rates(),
    )


def _slots(owner: Ints, values: Ints, shape: tuple[int, int]) -> tuple[Ints, Ints, Ints, Ints]:
    """Arrange synchronisations of one kind by rank: counts [S, R], then arrival, end and bytes [S, R, max count]."""
    counts = np.bincount(owner, minlength=shape[0] * shape[1])
    ordinal = np.arange(len(owner)) - np.searchsorted(owner, owner)
    flat = np.zeros((shape[0] * shape[1], int(counts.max()), 3), np.int64)
    flat[owner, ordinal] = values
    arrival, end, payload = np.moveaxis(flat.reshape(*shape, -1, 3), -1, 0)
    return counts.reshape(shape), arrival, end, payload
