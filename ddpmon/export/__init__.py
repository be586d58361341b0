"""Exports runs to other eyes and tools: the report, two runs compared, and files for other programs."""
