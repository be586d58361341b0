"""Runs the script that is its first argument, with the arguments after that, on torch without its compiler."""

import runpy
import sys
from pathlib import Path

import eager  # noqa: F401  for what it does: torch comes without its compiler

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)  # as Python does for a script there
    runpy.run_path(sys.argv[0], run_name="__main__")
