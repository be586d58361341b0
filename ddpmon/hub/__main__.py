"""python -m ddpmon.hub RUN_ID: serve one run."""

from __future__ import annotations

import argparse
import sys

from ddpmon.hub.hub import main

parser = argparse.ArgumentParser(prog="ddpmon.hub", description=__doc__)
parser.add_argument("run_id")
sys.exit(main(parser.parse_args().run_id))
