"""Hosts with their ports, and this machine's own addresses. Standard library only."""

from __future__ import annotations

import socket


def split(endpoint: str) -> tuple[str, int]:
    """HOST:PORT as ("127.0.0.1", 9846), [::1]:9846 as ("::1", 9846). ValueError: it is no such thing."""
    host, _, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise ValueError(f"{endpoint}: HOST:PORT is wanted")
    return host, int(port)


def bracketed(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def own_towards(host: str, port: int, family: int = socket.AF_UNSPEC) -> str:
    """This machine's address on the way to a host. OSError: there is no way. Connecting a UDP socket sends nothing."""
    found, kind, _, _, address = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)[0]
    with socket.socket(found, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
