"""`--hub` and its key: what people may give, and which machine's hub it is."""

from __future__ import annotations

import os
import socket

import pytest

from ddpmon.errors import DdpmonError, UsageError
from ddpmon.launch import probe_environment
from ddpmon.launch.given_hub import check_free, given_hub
from ddpmon.runs import job_key

KEY = "0f" * 32


@pytest.fixture
def key_file(tmp_path):
    file = tmp_path / "key"
    job_key.make(file)
    return file


def test_a_key_is_made_once_for_this_user_alone_and_read_back(key_file):
    assert key_file.stat().st_mode & 0o777 == 0o600
    made = given_hub("127.0.0.1:9846", key_file, {})
    assert made.key == key_file.read_text().strip()
    assert made.key not in repr(made)
    with pytest.raises(DdpmonError, match="already exists"):
        job_key.make(key_file)
    with pytest.raises(DdpmonError, match=r"ddpmon cannot write .*: Not a directory"):
        job_key.make(key_file / "no" / "folder")


@pytest.mark.parametrize(
    ("endpoint", "node", "here"),
    [
        ("127.0.0.1:9846", None, True),
        ("127.0.0.1:9846", 0, True),
        ("127.0.0.1:9846", 1, False),  # another node on the same machine
        ("192.0.2.1:9846", None, False),
        ("192.0.2.1:9846", 0, False),
        ("no-such-host.invalid:9846", None, False),  # its name may come to be known: the hub goes on asking
    ],
)
def test_the_hub_is_the_one_of_the_machine_that_is_named(endpoint, node, here):
    assert given_hub(endpoint, None, {job_key.HUB_KEY_VARIABLE: KEY}, node).is_here == here


def test_no_hub_is_given_where_there_is_only_its_key_in_the_environment():
    assert given_hub(None, None, {job_key.HUB_KEY_VARIABLE: KEY}) is None


@pytest.mark.parametrize(
    ("endpoint", "key", "said"),
    [
        (None, "", "belong together"),
        ("node0", KEY, "--hub node0: give HOST:PORT"),
        ("node0:0", KEY, "port 0 is not possible"),
        ("node0:1", None, "needs a key: create one"),
        ("node0:1", "", "DDPMON_HUB_KEY is not a key: a key has 64 hexadecimal digits"),
        ("node0:1", KEY[1:], "64 hexadecimal digits"),
        ("node0:1", KEY.replace("f", "g"), "64 hexadecimal digits"),
    ],
)
def test_what_is_no_hub_or_no_key_is_one_line(tmp_path, endpoint, key, said):
    variables = {} if key is None else {job_key.HUB_KEY_VARIABLE: key}
    with pytest.raises(UsageError, match=said.replace("$", r"\$")) as raised:
        given_hub(endpoint, tmp_path / "key" if endpoint is None else None, variables)
    assert len(str(raised.value).splitlines()) == 1
    assert not key or key not in str(raised.value)


@pytest.mark.parametrize(
    ("mode", "content", "said"),
    [
        (0o640, KEY, "other users can read .* .mode 0640.: run chmod 600"),
        (0o604, KEY, "other users can read .* .mode 0604."),
        (0o600, "", "is not a key"),
        (0o600, "x" * 5_000_000, "is not a key"),
        (None, "", "No such file or directory; ddpmon key FILE creates a key file"),
    ],
)
def test_a_key_file_that_others_can_read_or_that_holds_none_is_refused(tmp_path, mode, content, said):
    file = tmp_path / "key"
    if mode is not None:
        file.write_text(content)
        file.chmod(mode)
    with pytest.raises(UsageError, match=said):
        given_hub("node0:1", file, {job_key.HUB_KEY_VARIABLE: KEY})


def test_a_key_file_of_another_user_is_refused(key_file, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    os.chown(key_file, 4712, -1) if os.getuid() == 0 else pytest.skip("only root gives files away")
    with pytest.raises(UsageError, match="belongs to another user"):
        given_hub("node0:1", key_file, {})


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "[::1]")])
def test_a_port_that_is_taken_is_said_before_anything_starts(family, host):
    try:
        taken = socket.create_server((host.strip("[]"), 0), family=family)
    except OSError:
        pytest.skip("no IPv6 on this machine's loopback")
    with taken:
        endpoint = f"{host}:{taken.getsockname()[1]}"
        with pytest.raises(UsageError, match="Address already in use; give another port"):
            check_free(endpoint)
    check_free(endpoint)


def test_ranks_are_told_that_a_hub_is_given_and_not_its_key():
    armed = probe_environment.rank_environment("x", {job_key.HUB_KEY_VARIABLE: KEY, "OTHER": "1"}, hub_given=True)
    assert job_key.HUB_KEY_VARIABLE not in armed
    assert (armed["OTHER"], armed["DDPMON_HUB_GIVEN"]) == ("1", "1")
    assert probe_environment.rank_environment("x", {})["DDPMON_HUB_GIVEN"] == "0"
