"""Sizes of the terminal from which on more is shown."""

LEAST_WIDTH, LEAST_HEIGHT = 60, 12
"""Below this the head is all there is."""
WIDE = 150
"""Width from which on the events have a place beside the charts."""
TALL = 60
"""Lines between head and keys from which on few ranks leave room for what a person would ask after the next."""
