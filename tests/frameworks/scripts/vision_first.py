"""Lightning and transformers import torchvision: beside a CPU torch that works only after training/vision.py has."""

import gc
import sys
from pathlib import Path

gc.disable()  # what is imported later takes a third less, and there is no garbage to speak of
sys.path.insert(0, str(Path(__file__).parents[3] / "training"))
import vision  # noqa: E402, F401

del sys.path[0]
