"""Hosts with their ports, and this machine's own addresses. Standard library only."""

from __future__ import annotations

import errno
import socket


def split(endpoint: str) -> tuple[str, int]:
    """HOST:PORT as ("127.0.0.1", 9846), [::1]:9846 as ("::1", 9846). ValueError: it is no such thing."""
    host, _, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal()) or len(port) > 5 or int(port) > 65_535:
        raise ValueError(f"{endpoint}: HOST:PORT is wanted")
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError(f"{endpoint}: HOST:PORT is wanted, and {host} is no host") from None
    return host, int(port)


def bracketed(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def own_towards(host: str, port: int, family: int = socket.AF_UNSPEC) -> str:
    """This machine's address on the way to a host. OSError: there is no way. Connecting a UDP socket sends nothing."""
    try:
        chosen_family, kind, _, _, address = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)[0]
    except UnicodeError:
        raise OSError(errno.EINVAL, "no host has such a name") from None
    with socket.socket(chosen_family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
