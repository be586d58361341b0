"""Divides the space between a screen's head and its key bar among the screen's blocks.

The first block is the screen's main content, and is always whole. The other blocks answer a person's next questions.
They are placed below the first block if there is room, else to its right, else they are left out. They are arranged in
bands: each band has as many blocks side by side as their minimum widths allow. Blocks keep their order, so a block
early in the list is left out later than the blocks after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

LEAST_WIDTH, LEAST_HEIGHT = 60, 12
"""Size in columns and lines below which a screen shows only its head."""
WIDE = 150
"""Screen width in columns from which the events are shown to the right of the charts."""
TALL = 60
"""Number of lines between head and key bar from which a screen with few ranks also has room for further blocks."""


AIR = 1
"""Columns between two blocks that stand side by side."""
ALL = 1 << 20
"""The width or height of a block that can use any amount of room."""


def _all_of_them(lines: int) -> int:
    return lines


@dataclass(frozen=True)
class Block:
    """The size that a block needs, in columns and lines."""

    least_width: int
    least_height: int
    width: int = ALL
    """Largest useful width in columns. In more columns, the block shows nothing further."""
    height: int = ALL
    """Largest useful height in lines. In more lines, the block shows nothing further."""
    used: Callable[[int], int] = _all_of_them
    """Returns how many of the given lines the block can use when it is below another block. A block to the right of
    another block always gets the full height."""


@dataclass(frozen=True)
class Box:
    """The place of a block on the screen, in columns and lines."""

    x: int
    y: int
    width: int
    height: int


def arrange_blocks(blocks: Sequence[Block], width: int, height: int) -> list[Box | None]:
    """Return a place for each block, or None for a block that is left out; the first block always has a place.

    Spare lines go to the bands in their order, up to the height that each band can use. Spare columns of a band go to
    its blocks in their order, and the rest to the band's last block, so that the right margin is even.
    """
    first, others = blocks[0], list(blocks[1:])
    whole = min(height, first.height)
    below = _flow(others, Box(0, whole, width, height - whole))
    beside_width = width - first.least_width - AIR
    others = [replace(block, used=_all_of_them) for block in others]
    beside = _flow(others, Box(width - beside_width, 0, beside_width, height))
    if any(below) or not any(beside):
        return [Box(0, 0, width, whole), *below]
    # The blocks on the right get only the width that the first block does not need.
    wanted = max(block.width for block, box in zip(others, beside, strict=True) if box is not None)
    least = max(block.least_width for block, box in zip(others, beside, strict=True) if box is not None)
    column = max(least, min(wanted, width - AIR - max(first.width, first.least_width)))
    return [
        Box(0, 0, width - column - AIR, whole),
        *_flow([block if box else replace(block, least_width=ALL) for block, box in zip(others, beside, strict=True)],
               Box(width - column, 0, column, height)),
    ]  # fmt: skip


def _flow(blocks: Sequence[Block], room: Box) -> list[Box | None]:
    """Arrange blocks in bands below one another. A block that does not fit is left out; a smaller block after it may
    fit.
    """
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
