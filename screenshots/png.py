"""From a screen as SVG to the same as PNG, for places that show no SVG.

Drawn by rsvg-convert (Debian: librsvg2-bin) in DejaVu Sans Mono, which has every character of the dashboard but
braille: those are drawn here, dot by dot. The PNG has a palette, and carries the digest of the SVG that it shows.
"""

from __future__ import annotations

import hashlib
import html
import io
import re
import shutil
import subprocess
from pathlib import Path

from PIL import Image, PngImagePlugin

FONT = "DejaVu Sans Mono"
CELL_WIDTH, CELL_HEIGHT = 12.2, 24.4
"""Of Rich's SVG."""
ABOVE_BASELINE = 18.5
ADVANCE = 0.60205
"""Of the font, by its size."""
DOT = 1.9
"""Radius."""
COLOURS = 255
BEHIND = "#292929"
"""The window's own colour, behind its round corners too."""
DIGEST = "svg-sha256"
TEXT = re.compile(r'<text class="([^"]*)" x="([^"]*)" y="([^"]*)"([^>]*)>([^<]*)</text>')
_BITS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
"""Column and row of each of a braille character's dots, the lowest bit first."""


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


def with_dots(found: re.Match[str]) -> str:
    """A run of text, with its braille as dots where the characters would be."""
    role, x, y, rest, text = found.groups()
    text = html.unescape(text)
    dots = []
    for place, character in enumerate(text):
        bits = ord(character) - 0x2800
        if not 0 < bits < 256:
            continue
        left, top = float(x) + place * CELL_WIDTH, float(y) - ABOVE_BASELINE
        dots += [
            f"M{left + CELL_WIDTH * (0.27 + 0.46 * column) - DOT:.2f} {top + CELL_HEIGHT * (row + 0.5) / 4:.2f}"
            f"a{DOT} {DOT} 0 1 0 {2 * DOT} 0a{DOT} {DOT} 0 1 0 {-2 * DOT} 0"
            for bit, (column, row) in enumerate(_BITS)
            if bits >> bit & 1
        ]
    drawn = f'<path class="{role}" d="{"".join(dots)}"/>' if dots else ""
    plain = html.escape(re.sub("[\u2800-\u28ff]", "\u00a0", text))
    return f'<text class="{role}" x="{x}" y="{y}" xml:space="preserve"{rest}>{plain}</text>{drawn}'


def png(svg: str) -> bytes:
    """The picture. SystemExit says what this machine lacks."""
    if shutil.which("rsvg-convert") is None:
        raise SystemExit("no rsvg-convert here, which draws the PNGs: apt-get install librsvg2-bin")
    met = subprocess.run(["fc-match", "-f", "%{family}", FONT], capture_output=True, text=True, check=False).stdout
    if FONT not in met:
        raise SystemExit(f"{FONT} is not here, which the PNGs are drawn in: apt-get install fonts-dejavu-core")
    drawable = TEXT.sub(with_dots, svg).replace("font-size: 20px", f"font-size: {CELL_WIDTH / ADVANCE:.3f}px")
    drawable = re.sub(r"font-family: '[^;]*;", f"font-family: '{FONT}';", drawable)
    drawable = drawable.replace("font-family: arial", f"font-family: '{FONT}'")
    done = subprocess.run(["rsvg-convert"], input=drawable.encode(), capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"rsvg-convert: {done.stderr.decode(errors='replace').strip()}")
    image = Image.open(io.BytesIO(done.stdout))
    whole = Image.new("RGB", image.size, BEHIND)
    whole.paste(image, mask=image.getchannel("A"))
    facts = PngImagePlugin.PngInfo()
    facts.add_text(DIGEST, digest(svg))
    packed = io.BytesIO()
    small = whole.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    small.save(packed, "PNG", optimize=True, pnginfo=facts)
    return packed.getvalue()
