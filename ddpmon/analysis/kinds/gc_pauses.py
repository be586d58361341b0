"""Python's garbage collection holds all ranks back."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind

KIND = Kind(
    "gc_pauses",
    subject="world",
    gone="garbage collection no longer holds the step back",
    by_cost=True,
    slows="garbage collection",
)
