"""Attack ddpmon with invalid input, drawn at random from a seed: frames or recordings.

    python benchmarks/hostile.py frames                             100,000 frames of each kind at a real hub
    python benchmarks/hostile.py recordings --seed 7                300 damaged recordings, read by every command
    python benchmarks/hostile.py recordings --seed 7 --only 217     one of them again, and the output of each command

It prints each fault, what was refused, and the number of faults. A fault is a crash, a hang, or a step of an honest
rank that is not recorded exactly. The exit code is 1 if there was one. The files hostile_*.py describe their kinds of
input.
"""

import importlib

from launching import options


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("input", choices=("frames", "recordings"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="recordings, or frames of each kind")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="only the recordings N")
    given = parser.parse_args()
    if given.only and given.input == "frames":
        parser.error("--only N needs recordings: frames act together")
    attacked = importlib.import_module(f"hostile_{given.input}")
    faults = attacked.hunt(given.seed, given.only or range(given.count or attacked.COUNT))
    print(f"faults: {len(faults)}")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
