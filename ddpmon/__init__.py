"""ddpmon: the terminal dashboard for PyTorch DistributedDataParallel.

A script never needs this import. With it, a script can tell more: `ddpmon.log(accuracy=…)`,
`with ddpmon.step(samples=…)`, `with ddpmon.phase("augment")`. All of it does nothing, and costs next to nothing, when
no probe is armed.
"""

from ddpmon.api import init, log, phase, step

__version__ = "0.1.0"

__all__ = ["__version__", "init", "log", "phase", "step"]
