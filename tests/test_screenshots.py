"""The pictures in the docs show the dashboard as it is."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "screenshots"
MAKE = FOLDER / "make.py"


def test_each_picture_is_what_its_screen_shows_now():
    done = subprocess.run([sys.executable, str(MAKE), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
