"""`python -m ddpmon` is `ddpmon`."""

from ddpmon.cli import main

main()
