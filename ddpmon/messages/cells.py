"""Byte values of the cells of a heat map, or of a rank's series over time."""

from __future__ import annotations

NOTHING, LEAST, MOST, NOT_FINITE = 0, 1, 254, 255
"""A cell holds NOTHING where there is no value, LEAST to MOST from the lower to the upper end of the scale, and
NOT_FINITE for a value that is NaN or infinite."""
