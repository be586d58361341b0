"""Ranges of the values in messages: the decoder refuses a message in which a value is outside its range."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from ddpmon.messages.vocabulary import MAX_NAME, MAX_STEP, MAX_TEXT, MAX_US, MAX_WORLD

Rank: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_WORLD)]
WorldSize: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_WORLD)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_US)]
"""Number of steps, bytes and whatever else is counted."""
Seconds: TypeAlias = Annotated[float, Meta(ge=-MAX_US, le=MAX_US)]
"""A moment or a span of time: finite."""
Text: TypeAlias = Annotated[str, Meta(max_length=4 * MAX_TEXT)]
Pid: TypeAlias = Annotated[int, Meta(gt=0, le=1 << 22)]
Micros: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_US)]
"""A moment or a span of time in microseconds, or a number of bytes."""
StepCount: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_STEP)]
StepNumber: TypeAlias = Annotated[int, Meta(gt=0, lt=MAX_STEP)]
"""Counts from 1."""
SmallCount: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_WORLD)]
Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
Amount: TypeAlias = Annotated[float, Meta(ge=0, lt=MAX_US)]
"""A measured value: finite."""
Celsius: TypeAlias = Annotated[float, Meta(ge=-300, lt=MAX_US)]
