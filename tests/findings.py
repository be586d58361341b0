"""Made-up findings that say of a run's state and of machines what those that are found say."""

from typing import Any

from ddpmon.analysis.kinds import kind_of
from ddpmon.messages import Finding


def finding(kind: str, severity: str, text: str, ranks: list[int], **more: Any) -> Finding:
    """A finding as `analysis.findings` makes it."""
    made = Finding(kind, severity, text, ranks, **more)
    return kind_of(made).complete(made)
