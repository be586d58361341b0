"""Keep a core busy for a minute and a half at most, and end with the parent process."""

import os
import time

parent, end = os.getppid(), time.monotonic() + 90
while time.monotonic() < end and os.getppid() == parent:
    sum(range(100_000))
