"""ddpmon: the terminal dashboard for PyTorch DistributedDataParallel.

A script never needs this import. With it, a script can tell more: `ddpmon.log(accuracy=…)`, `ddpmon.flops(…)`,
`with ddpmon.step(samples=…)`, `with ddpmon.phase("augment")`. All of it does nothing, and costs next to nothing, when
no probe is armed.
"""

import importlib

from ddpmon.api import attached, flops, log, phase, step

__version__ = "0.1.0"

__all__ = ["__version__", "flops", "init", "log", "phase", "step"]


def init() -> bool:
    """Arm the probe where the environment could not (python -E, python -I); says whether it is armed now."""
    if not attached():
        # By name: everything of ddpmon is imported through this package, and nearly none of it goes with the probe.
        importlib.import_module("ddpmon.probe.arm").from_environment()
    return attached()
