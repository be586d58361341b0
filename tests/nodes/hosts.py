"""Two machines on this one: network namespaces joined by a cable, each with a name, a home and sockets of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import ddpmon_program, short_folder

TRAIN = Path(__file__).with_name("train.py")
ANSWERING = Path(__file__).with_name("answering.py")
PORT = 29_571
HUB_PORT = 29_572
LAUNCH_S = 120
APART_S = 18_000
"""Seconds between the monotonic clocks of the hosts."""


@dataclass
class Host:
    """A namespace with one end of the cable."""

    number: int
    namespace: str
    address: str
    folder: Path
    started: list[subprocess.Popen] = field(default_factory=list)
    entered: int = 0
    """A process whose namespaces command lines run in; 0: in those of this host."""
    answering: subprocess.Popen | None = None
    """The process that runs command lines there."""

    @property
    def name(self) -> str:
        return f"host{self.number}"

    @property
    def interface(self) -> str:
        return f"dm{os.getpid()}{'ab'[self.number]}"[-15:]

    def environment(self, **further: str) -> dict[str, str]:
        return os.environ | {
            "DDPMON_HOME": str(self.folder / "home"),
            "DDPMON_RUNTIME_DIR": str(self.folder / "s"),
            "GLOO_SOCKET_IFNAME": self.interface,
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "160",
        } | further  # fmt: skip

    def command(self, *words: str) -> list[str]:
        """A command line that runs on this host."""
        if self.entered:
            return ["nsenter", "--all", "--target", str(self.entered), *words]
        inside = f'hostname {self.name}; exec "$@"'
        clock = ["--time", "--monotonic", str(self.number * APART_S), "--fork"] if self.number else []
        return ["ip", "netns", "exec", self.namespace, "unshare", "--uts", *clock, "sh", "-c", inside, "sh", *words]

    def start(self, *words: str, **variables: str) -> subprocess.Popen:
        log = (self.folder / f"log{len(self.started)}").open("wb")
        self.started.append(
            subprocess.Popen(
                self.command(*words),
                env=self.environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        )
        log.close()
        return self.started[-1]

    def cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Return what `ddpmon WORDS` says on this host."""
        if self.answering is None:
            with (self.folder / "answering.err").open("wb") as errors:
                self.answering = subprocess.Popen(
                    self.command(sys.executable, str(ANSWERING)), env=self.environment(), stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
                )  # fmt: skip
        self.answering.stdin.write(json.dumps(words) + "\n")
        self.answering.stdin.flush()
        answer = self.answering.stdout.readline()
        assert answer, (self.folder / "answering.err").read_text()
        return subprocess.CompletedProcess(words, *json.loads(answer))

    def train(self, **variables: str) -> subprocess.Popen:
        """Start this host's ranks under `ddpmon run`, with host 0 as the rendezvous."""
        endpoint = f"{self.address.rpartition('.')[0]}.1:{PORT}"
        return self.start(
            ddpmon_program(), "run", "--headless", "--nnodes", "2", "--node-rank", str(self.number),
            "--rdzv-endpoint", endpoint, "--nproc", "2", "--name", self.name, str(TRAIN), **variables,
        )  # fmt: skip

    def train_as_srun_tasks(self, *options: str, **variables: str) -> None:
        """Two tasks of a job step of one task a rank, `srun ddpmon exec -- …`, whose script asks Slurm for its rank."""
        root = f"{self.address.rpartition('.')[0]}.1"
        for local in range(2):
            rank = str(2 * self.number + local)
            step = {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NODEID": str(self.number),
                    "SLURM_PROCID": rank, "SLURM_LOCALID": str(local), "SLURM_JOB_ID": "41878", "SLURM_STEP_ID": "0",
                    "MASTER_ADDR": root, "MASTER_PORT": str(PORT)}  # fmt: skip
            script = f"export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_STEP_NUM_TASKS; exec {sys.executable} {TRAIN}"
            words = ("exec", "--name", self.name, *options, "--", "sh", "-c", script)
            self.start(ddpmon_program(), *words, **step, **variables)

    def train_while_any_is_there(self, **variables: str) -> None:
        """Start a rank under a torchrun that goes on with one host or two, and looks often who is there."""
        root = f"{self.address.rpartition('.')[0]}.1"
        looks = f"is_host={int(self.number == 0)},last_call_timeout=15,keep_alive_interval=2"
        self.start(
            ddpmon_program(), "exec", "--name", self.name, "--", sys.executable, "-m", "torch.distributed.run",
            "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=9", "--rdzv-backend=c10d",
            "--monitor-interval=0.2",
            f"--rdzv-endpoint={root}:{PORT}", f"--rdzv-conf={looks}", f"--local-addr={self.address}", str(TRAIN),
            # else torch 2.13 has ranks that were restarted read in the store where those before them listened
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1", **variables,
        )  # fmt: skip

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("log*")))


def _ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0


class Cable:
    """Two hosts and what joins them."""

    def __init__(self, folder: Path) -> None:
        self.hosts = [
            Host(number, f"ddpmon-{os.getpid()}-{number}", f"10.231.7.{number + 1}", folder / str(number))
            for number in range(2)
        ]

    def lay(self) -> bool:
        """Make both; False: it is not allowed here."""
        one, two = self.hosts
        if os.getuid() != 0 or not all(_ip("netns", "add", host.namespace) for host in self.hosts):
            return False
        if not _ip("link", "add", one.interface, "netns", one.namespace, "type", "veth", "peer", "name", two.interface,
                   "netns", two.namespace):  # fmt: skip
            return False
        for host in self.hosts:
            (host.folder / "s").mkdir(parents=True, mode=0o700)
            for words in (
                ["addr", "add", f"{host.address}/24", "dev", host.interface],
                ["link", "set", host.interface, "up"],
                ["link", "set", "lo", "up"],
            ):
                if not _ip("-n", host.namespace, *words):
                    return False
        return True

    def cut(self) -> None:
        """Nothing goes through any more."""
        assert _ip("-n", self.hosts[1].namespace, "link", "set", self.hosts[1].interface, "down")

    def heal(self) -> None:
        host = self.hosts[1]
        assert _ip("-n", host.namespace, "link", "set", host.interface, "up")

    def remove(self) -> None:
        for host in self.hosts:
            for pid in subprocess.run(
                ["ip", "netns", "pids", host.namespace], capture_output=True, text=True, check=False
            ).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            for process in (*host.started, *filter(None, [host.answering])):
                process.communicate()
            _ip("netns", "del", host.namespace)


def cable():
    """Make two hosts for a fixture; skip where they cannot be made."""
    if shutil.which("ip") is None:
        pytest.skip("no ip here, which makes network namespaces (Debian: iproute2)")
    folder = short_folder()
    made = Cable(folder)
    try:
        if not made.lay():
            pytest.skip("network namespaces with a cable between them are not allowed here")
        yield made
    finally:
        made.remove()
        shutil.rmtree(folder, ignore_errors=True)
