"""Signals that a rank answers. Viewers do not import this: other systems have no SIGRTMIN. Standard library only."""

from __future__ import annotations

import signal

STACK_SIGNAL = int(signal.SIGRTMIN) + 7
"""Answered by a handler in C: code that keeps the GIL cannot hold it up."""
SAMPLE_SIGNAL = STACK_SIGNAL + 1
"""Sent to a training thread by a timer of its own process, while its stack is sampled."""
