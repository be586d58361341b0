"""Signals that a rank answers.

Viewers do not import this module, because not every system has SIGRTMIN. It imports the standard library only.
"""

from __future__ import annotations

import signal

STACK_SIGNAL = int(signal.SIGRTMIN) + 7
"""Asks for the stack of a thread. A handler in C answers this signal, so that code which holds the GIL cannot delay the
answer."""
SAMPLE_SIGNAL = STACK_SIGNAL + 1
"""Takes one sample of the training thread's stack. A timer of the rank's own process sends this signal to that
thread."""
