"""Fast processing of the blocks that other nodes' hubs send, each with steps of many ranks.

A batch that directly follows its rank's last one is processed here. The collector processes all others one by one:
batches that were sent again, follow a gap, come from a process without a Hello, or have steps that do not fit into a
table row.
"""

from __future__ import annotations

from collections.abc import Callable

from ddpmon.analysis.steps.table import Table, concatenate_rows
from ddpmon.messages import Batch
from ddpmon.recording import plausible
from ddpmon.recording.node_blocks import NodeBlock
from ddpmon.recording.recorder import Recorder
from ddpmon.store.peers import process_key
from ddpmon.store.processes import RankProcess
from ddpmon.store.store import Store

TakeAlone = Callable[[Batch], None]
"""Function of the collector that processes a single batch with all of its steps."""


class BlockIntake:
    """Gathers the rows of all blocks that arrive between two flushes, and passes them to store and recorder
    together.
    """

    def __init__(self, store: Store, recorder: Recorder) -> None:
        self._store, self._recorder = store, recorder
        self._processes: list[RankProcess] = []
        self._counts: list[int] = []
        """Number of rows of each process, in the order of `_processes`."""
        self._tables: list[Table] = []

    def process_block(
        self, block: NodeBlock, node: int, now: float, later_us: int, take_alone: TakeAlone
    ) -> RankProcess | None:
        """Process a block of a node. Return the sender of the last batch that was processed without `take_alone`."""
        last = None
        registry, recorder = self._store.registry, self._recorder
        steps, ends_us = block.table["step"].tolist(), block.table["end_us"].tolist()
        begin = taken = 0
        for place, (batch, end) in enumerate(zip(block.batches, block.ends, strict=True)):
            process = registry.processes.get(process_key(batch.pid, node))
            count = end - begin
            if (
                process is None
                or not process.greeted
                or process.rank != batch.rank
                or registry.process_of_rank.get(batch.rank) is not process
                or batch.first_seq != process.seq + 1
                or batch.steps
                or batch.layouts
                or batch.closing_pauses
                or batch.dropped != process.dropped
                or (
                    count
                    and (
                        steps[begin] != process.last_step + 1
                        or steps[end - 1] - steps[begin] != count - 1
                        or ends_us[end - 1] > batch.now_us + plausible.AHEAD_US
                    )
                )
            ):
                self._add(block.table[taken:begin])
                self.pass_on_rows(now)
                take_alone(block.whole_batch(place))
                begin = taken = end
                continue
            process.heard_at, process.later_us = now, later_us
            process.dead = process.introduced = False
            if count:
                process.last_step, process.last_end_us = steps[end - 1], ends_us[end - 1]
                process.records += count
                process.hole, process.missing, process.doubted = False, 0, 0
                self._processes.append(process)
                self._counts.append(count)
            begin = end
            self._take_rest(process, batch, now)
            recorder.record_batch(process, batch, ())
            last = process
        self._add(block.table[taken:])
        return last

    def _add(self, rows: Table) -> None:
        if len(rows):
            self._tables.append(rows)

    def _take_rest(self, process: RankProcess, batch: Batch, now: float) -> None:
        """Pass the logged values, samples and digests of a batch to the store."""
        store = self._store
        latest = batch.now_us + plausible.AHEAD_US
        if (
            batch.scalars
            or batch.digests
            or batch.step > process.last_step + 1
            or any(sample.time_us > latest for sample in batch.samples)
        ):
            for part in plausible.leave_out(process, batch, None):
                store.registry.refusals.add_refusal(part, process.rank)
        process.take_batch(batch, now)
        if batch.samples:
            store.add_samples(process, batch.samples)
        if batch.digests:
            store.add_digests(process, batch.digests)
        if batch.scalars:
            store.add_logged(process, batch.scalars)

    def pass_on_rows(self, now: float) -> None:
        """Pass the gathered rows to store and recorder."""
        if self._processes:
            processes, counts, table = self._processes, self._counts, concatenate_rows(self._tables)
            self._processes, self._counts, self._tables = [], [], []
            self._store.add_rows(processes, counts, table, now)
            self._recorder.record_rows(processes, counts, table)
