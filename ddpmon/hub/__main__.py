"""python -m ddpmon.hub RUN_ID: serve one run."""

from __future__ import annotations

import argparse
import gc
import sys


def serve(run_id: str) -> int:
    """Import the hub, serve the run until it ends, and return the exit code."""
    gc.disable()  # Imports create no garbage, and collections would take a seventh of the hub's start time.
    from ddpmon.hub.hub import main

    gc.enable()
    return main(run_id)


parser = argparse.ArgumentParser(prog="ddpmon.hub", description=__doc__)
parser.add_argument("run_id")
sys.exit(serve(parser.parse_args().run_id))
