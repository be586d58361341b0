"""Runs command lines of ddpmon on a host, one after the other: each would start an interpreter there otherwise.

A program: takes the words of one as a line of JSON, and answers with its exit code and what it wrote.
"""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])  # the tests are no package that is installed
    from tests.in_process import called

    answers = sys.stdout
    for line in sys.stdin:
        done = called(*json.loads(line))
        print(json.dumps([done.returncode, done.stdout, done.stderr]), file=answers, flush=True)
