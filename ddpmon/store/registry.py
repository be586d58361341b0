"""Assigns processes to ranks and attempts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ddpmon.messages import NO_USER_RANK, PHASES, STAGE_ENDED, STAGE_GROUP, GpuUser, Hello
from ddpmon.runs import Process
from ddpmon.store.peers import STRANGER, Peer, Refusals, process_key
from ddpmon.store.processes import RankProcess

STANDS_S = 10.0
"""Seconds since a live rank's last message for which the current attempt counts as running."""
UNHEARD_RANK_S = 2.5
"""Seconds without a message, while other ranks send some, after which steps are aligned without this
rank. Ranks send a heartbeat every second."""
PAST_WORLDS = 1000
UNSEATED_MOST = 1024
"""Largest number of processes that sent a Hello but have no rank."""


@dataclass
class Registry:
    """The processes of a run. `process_of_rank` has those of the current attempt."""

    run_id: str
    world_size: int
    """Number of ranks, or 0 until the ranks report it."""
    host: str
    attempt: int = 0
    restarts: dict[int, int] = field(default_factory=dict)
    """torchrun's restart count in the current attempt, by node. Each torchrun counts only its own failures."""
    world: str = ""
    """Name of the current attempt's process group, or "" if unknown."""
    process_of_rank: dict[int, RankProcess] = field(default_factory=dict)
    processes: dict[int, RankProcess] = field(default_factory=dict)
    """Processes by `key`: the pid on this machine. The key of an earlier process with the same pid is -`id`."""
    refusals: Refusals = field(default_factory=Refusals)
    """Counts of messages that cannot come from a rank of this run, and of impossible values from ranks."""
    reseated: list[RankProcess] = field(default_factory=list)
    """Processes that became a rank again without a new Hello message. The recorder has yet to write this change."""
    heard_nodes: set[int] = field(default_factory=set)
    """Numbers of other nodes whose hubs send messages. The state of processes on silent nodes is unknown."""
    _speakers: dict[bytes, int] = field(default_factory=dict)
    _unseated: dict[int, None] = field(default_factory=dict)
    """Keys of processes without a rank, in the order in which they lost it or arrived."""
    _last_id: int = 0
    _past_worlds: deque[str] = field(default_factory=lambda: deque(maxlen=PAST_WORLDS))

    @property
    def records_lost(self) -> int:
        """Return how many step records were lost, over all ranks and all attempts."""
        return sum(self.lost_by_rank().values())

    def lost_by_rank(self) -> Counter[int]:
        """Count the lost records of each rank that lost some, in all attempts."""
        lost: Counter[int] = Counter()
        for process in self.processes.values():
            if process.attempt >= 0 and process.lost_records:  # Other processes never had a rank.
                lost[process.rank] += process.lost_records
        return lost

    def covers_all(self, ranks: Sequence[int]) -> bool:
        """Return whether these are all ranks that train: all others have ended, or send messages but no steps.

        A silent rank may still train, and the others may wait for it.
        """
        if len(ranks) >= self.world_size:
            return True
        return len(self.process_of_rank) >= self.world_size and not set(self.unheard_ranks).difference(ranks)

    @property
    def node_count(self) -> int:
        """Return the number of nodes with ranks, which is the number of hubs to which ranks are connected."""
        return len({process.hello.through for process in self.process_of_rank.values()})

    @property
    def parallelism(self) -> str:
        """Return the kind of parallel training, or "" if no rank has reported it."""
        hellos = (self.process_of_rank[rank].hello for rank in sorted(self.process_of_rank))
        return next((hello.parallelism for hello in hellos if hello.parallelism), "")

    @property
    def unmeasured(self) -> list[str]:
        """Return the names of PHASES that some rank does not measure."""
        missing = {name for process in self.process_of_rank.values() for name in process.hello.unmeasured}
        return [name for name in PHASES if name in missing]

    def host_is_silent(self, process: RankProcess) -> bool:
        """Return whether a process that is not known to have ended is on a node whose hub sends no messages."""
        through = process.hello.through
        return through > 0 and through not in self.heard_nodes and not (process.left or process.dead)

    @property
    def unheard_ranks(self) -> list[int]:
        """Return the ranks that are silent, that sent no message in this attempt, or whose step records are missing."""
        heard_at = max((process.heard_at for process in self.process_of_rank.values()), default=0.0) - UNHEARD_RANK_S
        return [
            rank
            for rank in range(self.world_size)
            if (process := self.process_of_rank.get(rank)) is None
            or (not process.left and not process.dead and (process.heard_at < heard_at or process.loses_records))
        ]

    def register(
        self, hello: Hello, identity: bytes, now: float, peer: Peer | None = None, *, ended: bool = False
    ) -> RankProcess | None:
        """Register a rank that sent its Hello, and return its process, or None if it cannot be a rank of this run.

        peer: the sender, or None if the Hello was read from a file in the run's folder. ended: True if the process has
        ended, so that its pid may belong to another process.
        """
        hello.through = peer.through if peer else 0
        key = _key(hello.pid, peer)
        if hello.run_id != self.run_id:
            return self._refuse(f"the process belongs to run {hello.run_id[:40]}")
        own = peer is None or peer.has_pid(hello.pid)
        if not own and peer is not None and peer.pid and hello.host == self.host:
            return self._refuse(f"process {peer.pid} sent the process id {hello.pid}")
        process = self._process_of(hello, peer) if own and not ended else None
        rank_process = self.processes.get(key)
        if rank_process and rank_process.process and process and rank_process.process != process:
            rank_process = None  # The pid now belongs to another process.
        elif rank_process and hello.began_us > rank_process.hello.began_us:
            rank_process = self._replace_program(rank_process, hello)
        if rank_process and peer and rank_process.peer and rank_process.peer != peer:
            if not (own and process) or (rank_process.process and rank_process.process.alive()):
                return self._refuse(
                    f"process {peer.pid} sent the process id {hello.pid}, which belongs to another process"
                )
            self._unseat(rank_process)  # The earlier process used the pid only as a name.
            rank_process = None
        launched = own and peer is not None and peer.launched_as(self.run_id, hello.rank)
        if not self._is_possible_world(hello, key, launched=launched) or not self._may_speak(identity, key):
            return self._refuse(f"process {hello.pid} is not rank {hello.rank} of {hello.world_size}")
        if rank_process and rank_process.rank != hello.rank and rank_process.last_step:
            return self._refuse(f"process {hello.pid} was rank {rank_process.rank} before")
        if rank_process is None:
            if not self._has_room():
                return self._refuse("the run already has too many processes")
            self._last_id += 1
            rank_process = RankProcess(self._last_id, -1, hello, process, stage=hello.stage)
            self._add(rank_process)
            self._unseated[key] = None
        if rank_process.rank != hello.rank and rank_process.attempt == self.attempt:
            self._unseat(rank_process)
        rank_process.hello = hello
        rank_process.note_cores()
        rank_process.stage = max(rank_process.stage, hello.stage)
        rank_process.process = rank_process.process or process
        rank_process.peer = peer or rank_process.peer
        rank_process.launched = launched if peer else rank_process.launched
        rank_process.greeted = rank_process.introduced = True
        rank_process.heard_at = now
        self._bind(rank_process, identity)
        self.assign_rank(rank_process, now)
        return rank_process

    def _replace_program(self, before: RankProcess, hello: Hello) -> RankProcess | None:
        """Replace a process that now runs another program (exec). If it made steps before, mark it as ended instead."""
        if before.last_step:
            before.dead = not before.left
            return None
        self._unseat(before)
        self.processes[before.key] = fresh = RankProcess(before.id, -1, hello, before.process)
        return fresh

    def _add(self, process: RankProcess) -> None:
        """Add a process to `processes`. An earlier rank with the same pid gets its negative `id` as key."""
        before = self.processes.get(process.key)
        if before is not None and before is not process and before.attempt >= 0:
            self.processes[-before.id] = before
        self.processes[process.key] = process

    def _refuse(self, why: str) -> RankProcess | None:
        """Count a refusal, and return None for the caller to return."""
        self.refusals.add_refusal(STRANGER, why=why)
        return None

    def _process_of(self, hello: Hello, peer: Peer | None) -> Process | None:
        """Return the process that sent a Hello, or None if it is not visible on this machine."""
        if peer is None:
            return Process.of(hello.pid) if hello.host == self.host else None
        return Process.of(peer.pid) if peer.pid else None

    def _has_room(self) -> bool:
        """Return whether a process can be added. If necessary, remove an ended process that has no rank."""
        if len(self._unseated) < UNSEATED_MOST:
            return True
        for key in self._unseated:
            if self.processes[key].gone:
                self._unseated.pop(key)
                self._speakers.pop(self.processes.pop(key).identity, None)
                return True
        return False

    def sender_of(self, identity: bytes, rank: int, pid: int, now: float, peer: Peer | None) -> RankProcess | None:
        """Return the sender of a message other than Hello, or None if it sent no Hello or a wrong pid or rank."""
        process = self.processes.get(_key(pid, peer))
        if process is None or not process.greeted:
            return None
        other_peer = peer is not None and process.peer is not None and peer != process.peer
        if other_peer or process.rank != rank or not self._may_speak(identity, process.key):
            another = f", but {peer.pid}" if other_peer and peer else ""
            return self._refuse(f"the sender is not process {pid} with rank {rank}{another}")
        self._bind(process, identity)
        process.heard_at = now
        if process.dead:
            process.dead, process.ended_us = False, None
        if not self.is_seated(process):
            self.assign_rank(process, now)
            if self.is_seated(process):
                self.reseated.append(process)
        return process

    def process_on(self, identity: bytes, peer: Peer | None) -> RankProcess | None:
        """Return the process that sent the last message on a connection, or None if there was none."""
        process = self.processes.get(self._speakers.get(identity, -1))
        return process if process and (peer is None or process.peer == peer) else None

    def has_hello(self, pid: int, peer: Peer | None) -> bool:
        """Return whether the process has sent its Hello to this hub."""
        process = self.processes.get(_key(pid, peer))
        return process is not None and process.greeted

    def is_seated(self, process: RankProcess) -> bool:
        """Return whether a process is a rank of the current attempt."""
        return self.process_of_rank.get(process.rank) is process

    def assign_rank(self, new: RankProcess, now: float) -> None:
        """Assign a process to its rank, in a new attempt if necessary. A live process that has the rank keeps it."""
        order = self._order(new)
        if order < 0:
            self._seat_in_past(new)
            return
        if order > 0:
            if self._attempt_alive(new, now):
                return  # A launcher does not restart ranks before the old ones are gone.
            self._begin_attempt(new)
        elif not self._seat_is_free(new, now):
            return
        if new.is_proven_rank and new.hello.world_size != self.world_size:
            self.world_size = new.hello.world_size
            self.process_of_rank = {rank: p for rank, p in self.process_of_rank.items() if rank < self.world_size}
        self.world = self.world or new.hello.world
        self.restarts[new.hello.through] = new.hello.restart
        new.attempt = self.attempt
        self.process_of_rank[new.rank] = new
        self._unseated.pop(new.key, None)

    def _seat_in_past(self, new: RankProcess) -> None:
        """Assign a process to an attempt that ended before its Hello arrived, unless another process had its rank."""
        if new.attempt >= 0 or not new.is_proven_rank:
            return
        there = [
            process
            for process in self.processes.values()
            if 0 <= process.attempt < self.attempt and _attempt_said(process.hello) == _attempt_said(new.hello)
        ]
        if there and all(process.rank != new.rank for process in there):
            new.attempt = there[0].attempt
            self._unseated.pop(new.key, None)

    def _order(self, new: RankProcess) -> int:
        """Return the attempt of a process: -1 for an earlier attempt, 0 for the current one, 1 for a later one."""
        world = new.hello.world
        if world and self.world:
            if world == self.world:  # After a restart, torchrun may reuse a store and the group's name in it.
                return -1 if new.last_step and 0 <= new.attempt != self.attempt else 0
            return -1 if world in self._past_worlds else 1
        if new.attempt >= 0 and new.attempt != self.attempt:
            return -1
        restart = self.restarts.get(new.hello.through, new.hello.restart)
        if new.hello.restart >= restart:
            return int(new.hello.restart > restart)
        if not new.launched or any(process.launched for process in self.process_of_rank.values()):
            return -1
        self._begin_attempt(new)  # The earlier processes were not started by the launcher.
        return 0

    def _seat_is_free(self, new: RankProcess, now: float) -> bool:
        """Return whether a process may get its rank in the current attempt. If it has ended, begin the next."""
        holder = self.process_of_rank.get(new.rank)
        if holder is None or holder is new:
            # Before it has a process group, a process with another world size belongs to a later attempt.
            return new.is_proven_rank or new.hello.world_size == self.world_size or not self.process_of_rank
        if not new.is_proven_rank and not holder.gone:
            return False  # The process may be a child of the rank and have inherited the rank's environment.
        if not holder.is_proven_rank:
            return True
        if not holder.gone:
            if holder.launched or not new.launched:
                self._refuse(f"rank {new.rank} is process {holder.hello.pid}, and not process {new.hello.pid}")
                return False
            self._unseat(holder)
            return True
        if self._attempt_alive(new, now):
            return False
        self._begin_attempt(new)
        return True

    def _attempt_alive(self, new: RankProcess, now: float) -> bool:
        """Return whether the current attempt is still running, so that `new` cannot belong to a later one."""
        return any(
            process.process is not None
            and now - process.heard_at < STANDS_S
            and process.launched >= new.launched
            and not process.gone
            and process.process.alive()
            for process in self.process_of_rank.values()
        )

    def _unseat(self, impostor: RankProcess) -> None:
        if self.process_of_rank.get(impostor.rank) is impostor:
            del self.process_of_rank[impostor.rank]
        impostor.attempt = -1
        self._unseated[impostor.key] = None

    def add_recorded(self, processes: Iterable[RankProcess]) -> None:
        """Add the processes from an earlier hub's recording."""
        for process in processes:
            self._add(process)
            self._last_id = max(self._last_id, process.id)
            if process.attempt < 0:
                self._unseated[process.key] = None
                continue
            if process.attempt > self.attempt:
                self.attempt = process.attempt
                self.process_of_rank, self.restarts = {}, {}
                self._leave_world("")
            self.restarts[process.hello.through] = process.hello.restart
            self.world = process.hello.world or self.world
            self.process_of_rank[process.rank] = process
            if process.is_proven_rank:
                self.world_size = process.hello.world_size

    def _begin_attempt(self, new: RankProcess) -> None:
        self.attempt += 1
        self.process_of_rank, self.restarts = {}, {}
        self._leave_world(new.hello.world)
        self.world_size = new.hello.world_size

    def _leave_world(self, next_world: str) -> None:
        if self.world and self.world != next_world:
            self._past_worlds.append(self.world)
        self.world = next_world

    def _is_possible_world(self, hello: Hello, key: int, *, launched: bool) -> bool:
        """Return whether the world size in a Hello is that of the run, or can replace it."""
        if hello.world_size == self.world_size or not self.world_size:
            self.world_size = hello.world_size
            return True
        if hello.restart > self.restarts.get(hello.through, hello.restart):
            return True
        if launched and (hello.stage < STAGE_GROUP or (hello.world and hello.world != self.world)):
            return True  # The process belongs to a new attempt.
        others = [p for p in self.process_of_rank.values() if p.key != key and p.is_proven_rank and not p.gone]
        return hello.stage >= STAGE_GROUP and not any(other.launched >= launched for other in others)

    def _may_speak(self, identity: bytes, key: int) -> bool:
        return self._speakers.get(identity, key) == key

    def _bind(self, process: RankProcess, identity: bytes) -> None:
        if process.identity != identity:
            self._speakers.pop(process.identity, None)
            self._speakers[identity] = process.key
            process.identity = identity

    def gpu_users(self, process: RankProcess) -> list[GpuUser]:
        """Return the other processes on a rank's GPU, with their rank numbers if they are ranks."""
        others = [self.processes.get(process_key(user.pid, process.hello.through)) for user in process.hello.gpu_users]
        return [
            replace(user, rank=other.rank if other and self.is_seated(other) else NO_USER_RANK)
            for user, other in zip(process.hello.gpu_users, others, strict=True)
        ]

    def mark_dead(self, now: float) -> list[RankProcess]:
        """Mark the ranks on this machine whose processes have ended since the last call, and return them."""
        fallen = []
        for process in self.process_of_rank.values():
            if process.process and not process.left and not process.dead and not process.process.alive():
                # A rank that had sent all its records may have had no time to send its Bye.
                process.mark_ended(now, left=process.stage == STAGE_ENDED)
                fallen.append(process)
        return fallen


def _key(pid: int, peer: Peer | None) -> int:
    """Return the key of a process. peer: the sender, or None if the process is known from a file on this machine."""
    return peer.process_key(pid) if peer else pid


def _attempt_said(hello: Hello) -> tuple[int, int, str]:
    """Return the facts in a Hello that are the same for all ranks of an attempt on a node."""
    return hello.through, hello.restart, hello.world
