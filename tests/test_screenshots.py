"""The pictures in the docs show the dashboard as it is."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "screenshots"
MAKE = FOLDER / "make.py"


@pytest.fixture
def png():
    spec = importlib.util.spec_from_file_location("screenshots_png", FOLDER / "png.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_picture_is_what_its_screen_shows_now():
    done = subprocess.run([sys.executable, str(MAKE), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_scene_that_does_not_exist_is_refused():
    done = subprocess.run([sys.executable, str(MAKE), "no-such"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no scene no-such; there are world, " in done.stderr


def test_a_png_is_known_by_the_digest_of_its_svg(png, tmp_path):
    svg, picture = (FOLDER / "world.svg").read_text(), FOLDER / "world.png"
    assert png.shows(picture) == png.digest(svg)
    assert png.digest(svg + " ") != png.digest(svg)
    (tmp_path / "cut.png").write_bytes(picture.read_bytes()[:20])
    assert png.shows(tmp_path / "cut.png") is None
    assert png.shows(tmp_path / "none.png") is None


def test_braille_is_drawn_as_dots_at_its_place_and_leaves_a_space(png):
    run = '<text class="r1" x="12.2" y="20" textLength="36.6" clip-path="c">a⢁&amp;</text>'
    drawn = png.TEXT.sub(png.with_dots, run)
    assert (
        '<text class="r1" x="12.2" y="20" xml:space="preserve" textLength="36.6" clip-path="c">a\u00a0&amp;<' in drawn
    )
    path = re.search(r'<path class="r1" d="([^"]*)"/>', drawn)[1]
    dots = [tuple(map(float, dot)) for dot in re.findall(r"M([\d.]+) ([\d.]+)a", path)]
    left, right = 24.4 + 12.2 * 0.27 - png.DOT, 24.4 + 12.2 * 0.73 - png.DOT
    assert dots == [(pytest.approx(left, abs=0.01), 4.55), (pytest.approx(right, abs=0.01), 22.85)]
    assert png.TEXT.sub(png.with_dots, '<text class="r1" x="0" y="20">plain</text>').count("<path") == 0


def test_without_a_program_that_draws_the_way_out_is_told(png, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="apt-get install librsvg2-bin"):
        png.png("<svg/>")
