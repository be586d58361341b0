"""Checks `--hub HOST:PORT`, where the root hub of a job listens, and finds out whether that is this machine."""

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
    """Address and key of the root hub, from `--hub` and `--hub-key`, checked."""

    endpoint: str
    """The address, as HOST:PORT."""
    is_here: bool
    """True if the hub of this machine is the root hub, to which the others connect."""
    key: str = field(repr=False)


def given_hub(
    endpoint: str | None, key_file: Path | None, environment: Mapping[str, str], node: int | None = None
) -> GivenHub | None:
    """Return the root hub from the options, or None if there are none.

    The root hub is here if HOST is an address of this machine and `node` is 0 or None: two nodes may share a machine.

    Args:
        endpoint: The value of `--hub`.
        key_file: The value of `--hub-key`.
        environment: Environment variables, which may contain the key instead of a file.
        node: This node's number, if it has one.

    Raises:
        UsageError: The options are wrong or incomplete.

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
    """Raise UsageError if no hub can listen at this address on this machine."""
    host, port = addresses.split(endpoint)
    address = addresses.own_for_others(host)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ZeroMQ sets this option too.
        try:
            tried.bind((address, port))
            tried.listen(1)
        except OSError as error:
            raise UsageError(
                f"--hub {endpoint}: the hub cannot listen at this address: {error.strerror}; give another port"
            ) from None
