"""Exports runs for people and other tools: the report, the comparison of two runs, and files for other programs."""
