"""Makes `python -m ddpmon` the same as `ddpmon`."""

from ddpmon.cli import main

main()
