"""Leaves for a later hub what none took before this rank ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from ddpmon.messages.folder import TAILS, pack_tail
from ddpmon.probe.folder import folder


def leave(rank: int, frames: Sequence[bytes]) -> bool:
    """Write frames into the run's folder, whole or not at all; says whether that was possible."""
    inside = folder(TAILS)
    if inside is None:
        return False
    path = os.path.join(inside, f"{rank}-{os.getpid()}")
    draft = f"{path}.new"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(pack_tail(frames))
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        return False
    return True
