"""From a screen as SVG to the same as PNG, for places that show no SVG.

Drawn as `ddpmon snapshot` draws it. The PNG has a palette, and carries the digest of the SVG that it shows.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

from PIL import Image, PngImagePlugin

from ddpmon.errors import UsageError
from ddpmon.tui import picture

COLOURS = 255
BEHIND = "#292929"
"""The window's own colour, behind its round corners too."""
DIGEST = "svg-sha256"


def digest(svg: str) -> str:
    """What a PNG knows its SVG by."""
    return hashlib.sha256(svg.encode()).hexdigest()


def shows(path: Path) -> str | None:
    """The digest of the SVG that a PNG was made of; None: there is no such PNG."""
    try:
        with Image.open(path) as image:
            return str(image.info.get(DIGEST))
    except OSError:
        return None


def png(svg: str) -> bytes:
    """The picture. SystemExit says what this machine lacks."""
    try:
        image = Image.open(io.BytesIO(picture.svg_to_png(svg)))
    except UsageError as error:
        raise SystemExit(str(error)) from None
    whole = Image.new("RGB", image.size, BEHIND)
    whole.paste(image, mask=image.getchannel("A"))
    facts = PngImagePlugin.PngInfo()
    facts.add_text(DIGEST, digest(svg))
    packed = io.BytesIO()
    small = whole.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    small.save(packed, "PNG", optimize=True, pnginfo=facts)
    return packed.getvalue()
