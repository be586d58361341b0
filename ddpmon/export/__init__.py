"""Exports runs for people and other tools: reports, comparisons of two runs, and files for other programs."""
