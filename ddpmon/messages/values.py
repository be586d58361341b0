"""What values in messages to viewers may be: the decoder refuses others."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from ddpmon.messages.vocabulary import MAX_TEXT, MAX_US, MAX_WORLD

Rank: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_WORLD)]
WorldSize: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_WORLD)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_US)]
"""Of steps, bytes and whatever else is counted."""
Seconds: TypeAlias = Annotated[float, Meta(ge=-MAX_US, le=MAX_US)]
"""A moment or a span of time: finite."""
Text: TypeAlias = Annotated[str, Meta(max_length=4 * MAX_TEXT)]
