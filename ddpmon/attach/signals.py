"""The signal of an attached run. Viewers do not import this: other systems have no SIGRTMIN. Standard library only."""

from __future__ import annotations

import signal

DETACH = signal.SIGRTMIN
"""Asks the supervisor of an attached run to leave the ranks."""
