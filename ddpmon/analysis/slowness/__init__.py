"""Detect which rank is slow, or that all ranks became slower, in a stream of steps."""
