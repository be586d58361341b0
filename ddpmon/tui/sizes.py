"""From which sizes of the terminal on how much is shown."""

LEAST_WIDTH, LEAST_HEIGHT = 60, 12
"""Below this the head is all there is."""
WIDE = 150
"""From here on the events have a place beside the charts."""
