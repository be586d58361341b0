"""Divides the room between a screen's head and its keys among its blocks.

The first block is what the screen is for, and is always whole. What a person would ask next stands below it where it
leaves room, else beside it, else it is not there. Below or beside, blocks stand in bands: as many beside each other as
their least widths allow, in their order, so that the first in the list is the last to go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

LEAST_WIDTH, LEAST_HEIGHT = 60, 12
"""Below this the head is all there is."""
WIDE = 150
"""Width from which on the events have a place beside the charts."""
TALL = 60
"""Lines between head and keys from which on few ranks leave room for what a person would ask after the next."""


AIR = 1
"""Columns between two blocks that stand beside each other."""
ALL = 1 << 20
"""The width or height of who can use as much as there is."""


def _all_of_them(lines: int) -> int:
    return lines


@dataclass(frozen=True)
class Block:
    """Size that a block needs, in columns and lines."""

    least_width: int
    least_height: int
    width: int = ALL
    """More is of no use to it."""
    height: int = ALL
    """More is of no use to it."""
    used: Callable[[int], int] = _all_of_them
    """Returns the lines, of so many, that it can use below another block; beside one it has that one's."""


@dataclass(frozen=True)
class Box:
    """Place of a block."""

    x: int
    y: int
    width: int
    height: int


def arrange(blocks: Sequence[Block], width: int, height: int) -> list[Box | None]:
    """A place for each block, None for those without; the first has one in whatever room there is.

    Lines that are left over once every band has its least go to the bands from the first on, as far as they wish for
    them; columns of a band to its blocks in their order, the rest to the last, so that no margin is ragged.
    """
    first, others = blocks[0], list(blocks[1:])
    whole = min(height, first.height)
    below = _flow(others, Box(0, whole, width, height - whole))
    beside_width = width - first.least_width - AIR
    others = [replace(block, used=_all_of_them) for block in others]
    beside = _flow(others, Box(width - beside_width, 0, beside_width, height))
    if any(below) or not any(beside):
        return [Box(0, 0, width, whole), *below]
    # What is beside it wishes for no more than the first block leaves.
    wished = max(block.width for block, box in zip(others, beside, strict=True) if box is not None)
    least = max(block.least_width for block, box in zip(others, beside, strict=True) if box is not None)
    column = max(least, min(wished, width - AIR - max(first.width, first.least_width)))
    return [
        Box(0, 0, width - column - AIR, whole),
        *_flow([block if box else replace(block, least_width=ALL) for block, box in zip(others, beside, strict=True)],
               Box(width - column, 0, column, height)),
    ]  # fmt: skip


def _flow(blocks: Sequence[Block], room: Box) -> list[Box | None]:
    """Blocks in bands below one another. One that does not fit is left out; a smaller one after it may."""
    bands: list[list[int]] = []
    for place in range(len(blocks)):
        if bands:
            together = [*bands[-1], place]
            if _fits(blocks, [*bands[:-1], together], room):
                bands[-1] = together
                continue
        if _fits(blocks, [*bands, [place]], room):
            bands.append([place])
    heights = [max(blocks[place].least_height for place in band) for band in bands]
    spare = room.height - sum(heights)
    for number, band in enumerate(bands):
        more = max(0, min(spare, max(blocks[place].height for place in band) - heights[number]))
        used = max(blocks[place].used(heights[number] + more) for place in band)
        more = max(0, used - heights[number])
        heights[number] += more
        spare -= more
    boxes: list[Box | None] = [None] * len(blocks)
    y = room.y
    for band, high in zip(bands, heights, strict=True):
        x = room.x
        for place, wide in zip(band, _widths([blocks[place] for place in band], room.width), strict=True):
            boxes[place] = Box(x, y, wide, min(high, max(blocks[place].height, blocks[place].least_height)))
            x += wide + AIR
        y += high
    return boxes


def _fits(blocks: Sequence[Block], bands: Sequence[Sequence[int]], room: Box) -> bool:
    wide = all(sum(blocks[i].least_width for i in band) + AIR * (len(band) - 1) <= room.width for band in bands)
    return wide and sum(max(blocks[i].least_height for i in band) for band in bands) <= room.height


def _widths(blocks: Sequence[Block], width: int) -> list[int]:
    widths = [block.least_width for block in blocks]
    spare = width - sum(widths) - AIR * (len(blocks) - 1)
    for place, block in enumerate(blocks):
        more = max(0, min(spare // (len(blocks) - place), block.width - widths[place]))
        widths[place] += more
        spare -= more
    widths[-1] += spare
    return widths
