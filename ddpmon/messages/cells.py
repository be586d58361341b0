"""Packs values into the bytes of a heat map, or of a rank's series through time."""

from __future__ import annotations

NOTHING, LEAST, MOST, NOT_FINITE = 0, 1, 254, 255
"""No value; the lower to the upper end of the scale; a value that is NaN or infinite."""
