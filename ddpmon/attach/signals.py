"""Defines the signal of attached runs. Standard library only.

Viewers do not import this file, because SIGRTMIN is missing on other systems than Linux.
"""

from __future__ import annotations

import signal

DETACH = signal.SIGRTMIN
"""Signal that asks the supervisor of an attached run to remove the probe from the ranks."""
