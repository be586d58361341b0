"""Adds a recording as this ddpmon writes it."""

import sys

from tests.recorded import add

add(sys.argv[1])
