"""Hosts with their ports, as people type them."""

from __future__ import annotations

import socket

import pytest

from ddpmon import addresses


@pytest.mark.parametrize(
    ("typed", "host", "port"),
    [("127.0.0.1:9846", "127.0.0.1", 9846), ("node0:0", "node0", 0), ("[::1]:65535", "::1", 65_535)],
)
def test_a_host_and_its_port_are_told_apart_and_put_together(typed, host, port):
    assert addresses.split(typed) == (host, port)
    assert f"{addresses.bracketed(host)}:{port}" == typed


NO_PORT = ["", "node0", ":1", "node0:", "node0:x", "node0:65536", "node0:٣", f"node0:{'1' * 5000}"]
NO_HOST = ["[]:1", f"{'a' * 70}:1", "a..b:1"]


@pytest.mark.parametrize("typed", NO_PORT + NO_HOST)
def test_what_is_no_host_with_a_port_is_refused(typed):
    with pytest.raises(ValueError, match="give HOST:PORT"):
        addresses.split(typed)


def test_the_way_to_this_machine_is_its_loopback():
    assert addresses.own_towards("127.0.0.1", 9) == "127.0.0.1"
    with pytest.raises(socket.gaierror):
        addresses.own_towards("127.0.0.1", 9, socket.AF_INET6)
    with pytest.raises(OSError, match="no host has this name"):
        addresses.own_towards("a" * 70, 9)
