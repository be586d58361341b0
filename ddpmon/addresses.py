"""Parses hosts with ports, and finds this machine's own addresses. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket

UNUSED_ADDRESSES = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))
"""Reserved addresses (RFC 5737, RFC 3849) that no machine has, so the route to them is this machine's default route."""
DISCARD = 9
"""Port to look up a route with. Any number works, because nothing is sent."""


def split(endpoint: str) -> tuple[str, int]:
    """Parse HOST:PORT into ("127.0.0.1", 9846), or [::1]:9846 into ("::1", 9846). Raise ValueError for other text."""
    host, _, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal()) or len(port) > 5 or int(port) > 65_535:
        raise ValueError(f"{endpoint}: give HOST:PORT")
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError(f"{endpoint}: give HOST:PORT; {host} is no host") from None
    return host, int(port)


def bracketed(host: str) -> str:
    """Return a host in the form that can precede `:PORT`: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


def own_towards(host: str, port: int, family: int = socket.AF_UNSPEC) -> str:
    """Return this machine's address on the route to a host. Raise OSError if there is no route.

    The function connects a UDP socket, which sends nothing over the network.
    """
    try:
        chosen_family, kind, _, _, address = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)[0]
    except UnicodeError:
        raise OSError(errno.EINVAL, "no host has this name") from None
    with socket.socket(chosen_family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def is_own(host: str, port: int) -> bool:
    """Return whether a host is this machine."""
    with contextlib.suppress(OSError, UnicodeError):
        return own_towards(host, port) in {info[4][0] for info in socket.getaddrinfo(host, port)}
    return False


def own_for_others(host: str) -> str:
    """Return the address of this machine under which the other nodes can reach it, given a host that every node
    reaches.

    If the host is this machine, its name may resolve to loopback on this machine only (Debian's 127.0.1.1). Then the
    route out of this machine is used.
    """
    ways: list[tuple[str, int]] = [(host, socket.AF_UNSPEC), *UNUSED_ADDRESSES]
    everywhere_loopback = host in {"localhost", "127.0.0.1", "::1", "[::1]"}
    for name, wanted in ways:
        with contextlib.suppress(OSError):
            own = own_towards(name.strip("[]"), DISCARD, wanted)
            if everywhere_loopback or not ipaddress.ip_address(own.partition("%")[0]).is_loopback:
                return own
    return "127.0.0.1"
