"""`--hub HOST:PORT`: where the hub of the whole job is to listen, and whether it is this machine's."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ddpmon import addresses
from ddpmon.errors import UsageError
from ddpmon.runs import job_key

_WITHOUT = "--hub and --hub-key belong together: give --hub HOST:PORT and --hub-key FILE"


@dataclass(frozen=True)
class GivenHub:
    """A hub's place from `--hub`, and its key, checked."""

    endpoint: str
    """HOST:PORT"""
    is_here: bool
    """The hub of this machine is the one that the others connect to."""
    key: str = field(repr=False)


def given_hub(
    endpoint: str | None, key_file: Path | None, environment: Mapping[str, str], node: int | None = None
) -> GivenHub | None:
    """None: no hub is given. node: this machine's number, where it is said. UsageError says what is wrong.

    It is here where HOST is this machine, and not numbered otherwise: two nodes may be on one machine.
    """
    if endpoint is None:
        if key_file is not None:
            raise UsageError(_WITHOUT)
        return None
    try:
        host, port = addresses.split(endpoint)
    except ValueError as error:
        raise UsageError(f"--hub {error}") from None
    if not port:
        raise UsageError(
            f"--hub {endpoint}: port 0 is not possible, because every machine needs the same port; give a fixed port"
        )
    key = job_key.given(key_file, environment)
    return GivenHub(endpoint, not node and addresses.is_own(host, port), key)


def check_free(endpoint: str) -> None:
    """UsageError where nothing can listen there on this machine."""
    host, port = addresses.split(endpoint)
    address = addresses.own_for_others(host)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as ZeroMQ does it
        try:
            tried.bind((address, port))
            tried.listen(1)
        except OSError as error:
            raise UsageError(
                f"--hub {endpoint}: the hub cannot listen at this address: {error.strerror}; give another port"
            ) from None
