"""ddpmon: the terminal dashboard for PyTorch DistributedDataParallel.

A script never needs this import. With it, a script can report more: `ddpmon.log(accuracy=…)`, `ddpmon.flops(…)`, `with
ddpmon.step(samples=…)`, `with ddpmon.phase("augment")`. Without an active probe these calls do nothing, and cost next
to nothing.
"""

import importlib

from ddpmon.api import attached, flops, log, phase, step

__version__ = "0.1.0"

__all__ = ["__version__", "flops", "init", "log", "phase", "step"]


def init() -> bool:
    """Load the probe where the environment could not (python -E, python -I); return whether it is active now."""
    if not attached():
        # By name: the whole package is imported through this module, and the probe needs almost none of it.
        importlib.import_module("ddpmon.probe.arm").from_environment()
    return attached()
