"""Whoever connects to a run's sockets gives nothing to a folder that a stranger put in the place of theirs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from ddpmon import runs, source
from ddpmon.errors import UnsafePathError
from ddpmon.messages import Batch, Bye, Hello, encode
from ddpmon.messages.guarded_socket import GuardedSocket, folder_problem
from tests.conftest import short_folder
from tests.probe.conftest import SCRIPTS, Ear, environment

STRANGER = """
import os, sys, zmq
folder = sys.argv[1]
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
    mode = 0o755
else:
    mode = 0o777  # the same user plays the stranger: others could have made what is in there
os.umask(0)
os.mkdir(folder, mode)
hub = zmq.Context().socket(zmq.ROUTER)
hub.bind(f"ipc://{folder}/{sys.argv[2]}")
print("bound", flush=True)
while True:
    hub.recv_multipart()
    print("frame", flush=True)
"""
"""A program that runs as another user where the tests may become one, and prints how many frames it received."""


FRAME = encode(Bye(0, 1, 0, 0))


class Stranger:
    """Remakes a folder that was taken away, and listens in it."""

    def __init__(self, folder: Path, name: str) -> None:
        command = [sys.executable, "-c", STRANGER, str(folder), name]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._heard = self._process.stdout
        assert self._heard.readline() == "bound\n"

    def frames(self) -> int:
        """Ends it."""
        self._process.terminate()
        count = self._heard.read().count("frame")
        self._heard.close()
        self._process.wait()
        return count


@pytest.fixture
def place() -> Iterator[Path]:
    """Yield a folder in which anybody may make a folder, as in /tmp."""
    folder = short_folder()
    folder.chmod(0o777)
    (folder / "s").mkdir(mode=0o700)
    yield folder / "s"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def dealer() -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context:
        dealer = context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.RECONNECT_IVL, 10)
        yield dealer
        dealer.close()


def test_a_connection_that_is_made_again_by_itself_never_leads_to_a_stranger(
    place: Path, dealer: zmq.Socket[bytes]
) -> None:
    ear = Ear(f"ipc://{place}/ingest.sock")
    door = GuardedSocket(dealer, ear.address)
    try:
        assert door.reconnect()
        dealer.send(FRAME)
        assert dealer.poll(30_000)
        dealer.recv()
        assert not door.reconnect()
    finally:
        ear.close()
    shutil.rmtree(place)
    stranger = Stranger(place, "ingest.sock")
    for _ in range(20):
        assert not door.reconnect()
        dealer.send(FRAME)
        assert not dealer.poll(20)
    assert stranger.frames() == 0


def test_a_folder_that_was_made_again_by_its_owner_is_connected_to(place: Path, dealer: zmq.Socket[bytes]) -> None:
    door = GuardedSocket(dealer, f"ipc://{place}/ingest.sock")
    assert door.reconnect()
    shutil.rmtree(place)
    assert not door.reconnect()
    place.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(place / "ingest.sock"))
        listening.listen()
        listening.settimeout(30)
        assert door.reconnect()
        listening.accept()[0].close()


@pytest.mark.e2e
def test_a_rank_gives_a_stranger_nothing_and_goes_on_with_the_next_hub(place: Path) -> None:
    address = f"ipc://{place}/ingest.sock"
    first = Ear(address)
    launched = dict(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    rank = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "small_ddp.py"), "--steps", "400", "--slow", "other:0"],
        env=environment(address, **launched),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        first.wait(lambda: len(first.steps(0)) > 10)
        first.close()
        shutil.rmtree(place)
        stranger = Stranger(place, "ingest.sock")
        with pytest.raises(subprocess.TimeoutExpired):
            rank.wait(3)  # the time in which it would connect again many times
        assert stranger.frames() == 0
        shutil.rmtree(place)
        place.mkdir(mode=0o700)
        second = Ear(address)
        second.epoch = "second"
        try:
            second.wait(lambda: any(isinstance(message, Batch) for message in second.messages))
            assert any(isinstance(message, Hello) for message in second.messages)
            second.wait(lambda: second.goodbyes() == {0})
            known = {step.step for step in [*first.steps(0), *second.steps(0)]}
            assert known == set(range(1, 401))
        finally:
            second.close()
    finally:
        rank.kill()
        rank.wait()


@pytest.mark.parametrize("above", [False, True], ids=["its folder", "the folder above"])
def test_a_viewer_says_whose_folder_it_is_and_does_not_connect(
    home: Path, monkeypatch: pytest.MonkeyPatch, above: bool
) -> None:
    run = runs.Run("20260101-000000-aaaa", "test", ["true"], "true", [], "/", "here", runs.boot_id(), 0.0, 1)
    folder = runs.make_socket_dir(run.id)
    (folder.parent if above else folder).chmod(0o777)
    with pytest.raises(UnsafePathError, match=r"other users can enter the folder .*, so ddpmon does not use it"):
        source.LiveSource(run)


def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.mkdir(mode=0o700)
    assert folder_problem(str(ours)) == ""
    assert folder_problem(str(tmp_path / "none")) == ""
    (tmp_path / "link").symlink_to(ours)
    assert "is not a folder" in folder_problem(str(tmp_path / "link"))
    ours.chmod(0o701)
    assert "other users can enter the folder" in folder_problem(str(ours))
    if os.getuid() == 0:
        ours.chmod(0o700)
        os.chown(ours, 65534, -1)
        assert "belongs to another user" in folder_problem(str(ours))
