"""A hub's ear for tests of the probe: a real ROUTER that keeps what ranks send and answers as a hub would."""

from __future__ import annotations

import ast
import dataclasses
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zmq

from ddpmon import messages
from ddpmon.messages import Ack, Batch, Bye, Failure, Hello, Step, Welcome
from tests import ranks
from tests.deadlines import Deadline, busy_factor

if TYPE_CHECKING:
    from ddpmon.probe.stepclock import StepClock

SCRIPTS = Path(__file__).parent / "scripts"
MODULES = (
    *ranks.TORCH,
    "ddpmon.probe.arm",
    "torch._inductor.compile_fx",
    "torch._dynamo.backends.debugging",
    "ddpmon.probe.sender",
)
"""Imports of ranks: also all that the first torch.compile would import in each of them, for three seconds."""


class Ear:
    """Receives on an ipc address in a thread of its own until closed."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.epoch = "first"
        self.messages: list[messages.FromRank] = []
        self.answering = True
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        context = zmq.Context()
        router = context.socket(zmq.ROUTER)
        router.setsockopt(zmq.LINGER, 0)
        router.bind(self.address)
        known: set[bytes] = set()
        while not self._closing.is_set():
            if not router.poll(50):
                continue
            identity, frame = router.recv_multipart()
            message = messages.decode_from_rank(frame)
            self.messages.append(message)
            if not self.answering:
                continue
            if isinstance(message, Hello):
                known.add(identity)
                router.send_multipart([identity, messages.encode(Welcome(self.epoch))])
            elif identity not in known:
                router.send_multipart([identity, messages.encode(Welcome(self.epoch, has_hello=False))])
            elif isinstance(message, Batch | Bye):
                router.send_multipart([identity, messages.encode(Ack(message.seq))])
        router.close()
        context.term()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def steps(self, rank: int) -> list[Step]:
        """Steps of one rank in order of arrival, repeats left out."""
        found = {s.step: s for b in self.batches(rank) for s in b.steps}
        return list(found.values())

    def batches(self, rank: int) -> list[Batch]:
        return [m for m in self.messages if isinstance(m, Batch) and m.rank == rank]

    def hellos(self) -> list[Hello]:
        return [m for m in self.messages if isinstance(m, Hello)]

    def failures(self) -> list[Failure]:
        return [m for m in self.messages if isinstance(m, Failure)]

    def goodbyes(self) -> set[int]:
        return {m.rank for m in self.messages if isinstance(m, Bye)}

    def wait(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Wait until something has been heard; fails after `seconds`."""
        deadline = Deadline(seconds)
        while not condition():
            assert not deadline.passed, "not heard in time"
            time.sleep(0.02)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, in the hands of the test."""
    from ddpmon.probe import every_step, journal, listener, thread_listener  # with torch, which few tests here need

    time = [1000]
    for module in (listener, every_step, thread_listener, journal):
        monkeypatch.setattr(module, "monotonic_ns", lambda: time[0])
    return time


def close(clock: StepClock, end: int) -> None:
    """The step ends here, whatever parts it has, and the next begins."""
    clock.cut(end)
    clock.finish(len(clock.held))


def adds_up(step: Step) -> bool:
    """Return whether a step's phases, synchronisations and pauses are all of its time."""
    own_us = step.data_us + step.forward_us + step.backward_us + step.optimizer_us + step.other_us
    blocked_us = sum(sync.end_us - sync.arrival_us for sync in step.syncs)
    paused_us = sum(pause.end_us - pause.start_us for pause in step.pauses)
    return own_us + blocked_us + paused_us == step.length_us


@pytest.fixture(scope="session")
def socket_dir() -> Iterator[Path]:
    """One for all tests: ranks that were armed before they were forked know no other."""
    with tempfile.TemporaryDirectory(prefix="ddpmon-t") as folder:
        yield Path(folder)


@pytest.fixture
def ear(socket_dir: Path) -> Iterator[Ear]:
    with listening(socket_dir) as ear:
        yield ear


@contextmanager
def listening(folder: Path) -> Iterator[Ear]:
    """An ear at the socket of a folder, one at a time."""
    ear = Ear(f"ipc://{folder}/ingest.sock")
    try:
        yield ear
    finally:
        ear.close()


@dataclasses.dataclass
class Both:
    """The same script, bare and watched."""

    folder: Path
    """Weights of each way, if there are several, and rank: bare.WAY.RANK, watched.WAY.RANK."""
    ranks: int
    bare: str
    watched: str
    """The output of all ranks."""
    ear: Ear

    def same_weights(self, way: str = "") -> bool:
        """Return whether each rank's weights are the same, to the last bit."""
        return all(self._same(f".{way}.{rank}" if way else f".{rank}") for rank in range(self.ranks))

    def _same(self, suffix: str) -> bool:
        import torch  # other tests take only paths and environments from here

        bare, watched = (torch.load(self.folder / f"{kind}{suffix}") for kind in ("bare", "watched"))
        if isinstance(bare, dict):
            assert bare.keys() == watched.keys()
            bare, watched = bare.values(), watched.values()
        return len(bare) > 0 and all(torch.equal(*pair) for pair in zip(bare, watched, strict=True))


def environment(address: str | None, **more: str) -> dict[str, str]:
    """A rank's environment: armed for `address`, or bare."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DDPMON", "PYTHONPATH"))}
    env |= {"OMP_NUM_THREADS": "1", **more}
    if address is not None:
        python_path = [str(ranks.INJECT), *filter(None, [more.get("PYTHONPATH")])]
        env |= {"DDPMON_SOCKET": address, "DDPMON_RUN_ID": "test", "PYTHONPATH": os.pathsep.join(python_path)}
    return env


def forked(
    nproc: int | None, script: Path, *args: str, address: str | None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a script on real ranks that were forked with torch imported, or in one process, and wait for it."""
    return ranks.run(nproc, script, *args, environment=environment(address, **env), modules=MODULES)


def watched(ear: Ear, nproc: int | None, script: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script on ranks that an ear hears, until all have said goodbye."""
    done = forked(nproc, script, *args, address=ear.address, **env)
    assert done.returncode == 0, done.stderr
    ear.wait(lambda: ear.goodbyes() == set(range(nproc or 1)))
    return done


def bare_and_watched(ear: Ear, folder: Path, nproc: int, script: Path, *args: str, **env: str) -> Both:
    """Run a script once without us and once with an ear."""
    said = []
    for kind, address in (("bare", None), ("watched", ear.address)):
        done = forked(nproc, script, *args, "--save", str(folder / kind), address=address, **env)
        assert done.returncode == 0, done.stderr
        assert "ddpmon:" not in done.stderr
        assert "recompile_limit" not in done.stderr, "torch.compile compiled the probe"
        said.append(done.stdout)
    ear.wait(lambda: ear.goodbyes() == set(range(nproc)))
    return Both(folder, nproc, *said, ear)


@dataclasses.dataclass
class Ways(Both):
    """Several ways of training in one bare run and one watched run."""

    steps: dict[str, tuple[list[Step], ...]]
    """Steps of both ranks, by way."""

    def losses(self, way: str, rank: int) -> list[float]:
        """Return what the script printed as the loss of each step."""
        lines = [line for line in self.watched.splitlines() if line.startswith(f"{way} {rank} ")]
        return [loss for line in lines for loss in ast.literal_eval(line.split(" ", 2)[2])]


def ways(ear: Ear, folder: Path, script: Path, names: Iterable[str]) -> Ways:
    """Run ways of training once without us and once with an ear."""
    names = list(names)
    runs = bare_and_watched(ear, folder, 2, script, *names)
    steps: dict[str, tuple[list[Step], ...]] = {}
    for rank in (0, 1):
        scalars = [scalar for batch in ear.batches(rank) for scalar in batch.scalars if scalar.name == "way"]
        begins = [scalar.step for scalar in scalars]
        for way, begin, end in zip(names, begins, [*begins[1:], 1 << 40], strict=True):
            steps[way] = *steps.get(way, ()), [step for step in ear.steps(rank) if begin <= step.step < end]
    return Ways(**vars(runs), steps=steps)


def python(*words: str | Path, address: str | None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run an interpreter with these arguments, a script first, and wait for it."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env=environment(address, **env),
        capture_output=True,
        text=True,
        timeout=120 * busy_factor(),
        check=False,
    )
