"""torch without its compiler, for trainings of tests that are not about it: imported before torch.

DDP and every optimizer import torch._dynamo to keep it off them, and it imports a thousand modules; here it is what
they ask of it. Nor is garbage collected, of which there is little. A rank that trains a few steps costs two thirds of
what it did. What tests say of scripts as people write them, of frameworks and of torch.compile is tested with all of
torch.
"""

import atexit
import gc
import sys
import types


def _compiler() -> types.ModuleType:
    """Return what torch._dynamo is to who does not compile."""
    made = types.ModuleType("torch._dynamo")
    made.disable = lambda fn=None, recursive=True, *, reason=None, wrapping=True: fn
    made.graph_break = lambda: None
    made.is_compiling = lambda: False
    made.utils = types.SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer")
    made.trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)
    return made


if "torch" not in sys.modules:  # ranks that are forked have all of it
    sys.modules["torch._dynamo"] = _compiler()
gc.disable()  # what torch imports takes a third less
atexit.register(gc.freeze)  # else all that was imported is looked through for garbage at the exit: half a second
