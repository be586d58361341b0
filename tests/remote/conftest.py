"""A real sshd on loopback, which leads from a near side to a far side: two homes for runs on one machine.

The test itself plays the far side: its DDPMON_HOME is that of there. What it starts to look from here has another one.
"""

import contextlib
import dataclasses
import os
import pwd
import shutil
import signal
import subprocess
import sysconfig
from pathlib import Path

import psutil
import pytest

from benchmarks.ports import free_port
from tests.conftest import ddpmon_program, wait_for
from tests.deadlines import busy_factor
from tests.hub.conftest import stage  # noqa: F401  a fixture is used by its name
from tests.tui.terminal import Terminal
from tests.worlds import own_times, records

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
LOGIN = "there"
"""The alias of the far side in the near side's ssh configuration."""


@dataclasses.dataclass
class Far:
    """The way to the far side."""

    folder: Path
    port: int
    server: subprocess.Popen
    near: dict

    @property
    def log(self):
        return (self.folder / "sshd.log").read_text()

    def cli(self, *words, timeout=60, **more):
        """A command line here, to its end, away from any terminal."""
        return subprocess.run(
            [ddpmon_program(), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout * busy_factor(), check=False, env={**os.environ, **self.near, **more},
        )  # fmt: skip

    @contextlib.contextmanager
    def start(self, *words):
        """A command line here, that goes on until it is left."""
        with subprocess.Popen(
            [ddpmon_program(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, **self.near},
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                process.kill()

    def dashboard(self, *words, columns=120, rows=30, **more):
        """A command line here in a terminal of its own."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**self.near, **more}.items():
                patch.setenv(name, value)
            return Terminal("ddpmon", *words, columns=columns, rows=rows)

    def sessions(self):
        """The server's processes, one or two for each login."""
        return psutil.Process(self.server.pid).children(recursive=False)

    def relays(self):
        """Return the processes at the far side that serve someone here."""
        found = []
        for process in psutil.process_iter(["cmdline", "environ"]):
            words, around = process.info["cmdline"] or [], process.info["environ"] or {}
            if ("_relay" in words or "_there" in words) and around.get("DDPMON_HOME") == os.environ["DDPMON_HOME"]:
                found.append(process)
        return found

    def the_relay(self):
        """The relay, once there is exactly one."""
        return wait_for(lambda: len(found := self.relays()) == 1 and found, every_s=0.2)[0]

    def cut(self):
        """End every login, as a network that is gone does, only at once."""
        for session in self.sessions():
            for process in (*session.children(recursive=True), session):
                if "_relay" not in process.cmdline():
                    process.kill()

    @contextlib.contextmanager
    def locked(self):
        """Nobody is let in as long as this is entered: a line that is cut does not come back before it is looked at."""
        keys = self.folder / "authorized"
        keys.rename(self.folder / "kept")
        try:
            yield
        finally:
            (self.folder / "kept").rename(keys)

    def wrapped(self, text):
        """A far side whose ddpmon is this program; the variables that say so."""
        path = self.folder / "ddpmon-there"
        path.write_text(text)
        path.chmod(0o755)
        return {"DDPMON_REMOTE": str(path)}


@pytest.fixture
def far(home, tmp_path):
    """A server to log in to, and its end; nothing of it may be left."""
    if SSHD is None:
        pytest.skip("no sshd on this machine (OpenSSH's server): the way through ssh cannot be tried")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where its unprivileged half is locked up
    port, user = free_port(), pwd.getpwuid(os.geteuid()).pw_name
    for name in ("host", "identity"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    public = (tmp_path / "host.pub").read_text().split()[:2]
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {' '.join(public)}\n")
    shutil.copy(tmp_path / "identity.pub", tmp_path / "authorized")
    there = {
        "DDPMON_HOME": os.environ["DDPMON_HOME"],
        "DDPMON_RUNTIME_DIR": os.environ["DDPMON_RUNTIME_DIR"],
        "PATH": f"{sysconfig.get_path('scripts')}:/usr/bin:/bin",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/authorized\n"
        "UsePAM no\nStrictModes no\nPidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f"AllowTcpForwarding no\nSetEnv {' '.join(f'{name}={value}' for name, value in there.items() if value)}\n"
    )
    (tmp_path / "config").write_text(
        f"Host {LOGIN} stranger changed\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n"
        f"  IdentityFile {tmp_path}/identity\n  IdentitiesOnly yes\n  StrictHostKeyChecking yes\n"
        f"Host {LOGIN}\n  UserKnownHostsFile {tmp_path}/known\n"
        f"Host stranger\n  UserKnownHostsFile {tmp_path}/nobody\n"
        f"Host changed\n  UserKnownHostsFile {tmp_path}/another\n"
        f"Host keyless\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n  BatchMode yes\n"
        f"  UserKnownHostsFile {tmp_path}/known\n  IdentityFile {tmp_path}/none\n  IdentitiesOnly yes\n"
        f"Host closed\n  HostName 127.0.0.1\n  Port 1\n"
    )
    identity = (tmp_path / "identity.pub").read_text().split()[:2]
    (tmp_path / "another").write_text(f"[127.0.0.1]:{port} {' '.join(identity)}\n")
    log = (tmp_path / "sshd.log").open("wb")
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(tmp_path / "sshd_config")], stdout=log, stderr=log)
    log.close()
    near = {"DDPMON_HOME": str(home / "near"), "DDPMON_SSH": f"ssh -F {tmp_path}/config"}
    found = Far(tmp_path, port, server, near)
    try:
        wait_for(lambda: "listening" in found.log or server.poll() is not None)
        assert server.poll() is None, found.log
        yield found
        wait_for(lambda: not found.relays(), 20, every_s=0.2)
    finally:
        for session in found.sessions() if server.poll() is None else ():
            session.kill()
        server.send_signal(signal.SIGTERM)
        server.wait()


@pytest.fixture
def training(stage):  # noqa: F811
    """A run over there: a real hub, and one made-up rank that has trained 30 steps."""
    stage.save(world_size=1, name="mnist")
    stage.hub()
    rank = stage.rank(0, world_size=1)
    rank.join()
    rank.train(records(own_times(30, 1), first=1)[0])
    return stage
