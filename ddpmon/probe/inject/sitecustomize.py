"""Python imports this by itself when its folder is on PYTHONPATH: it arms the probe once `import torch` has returned.

It runs in every Python that a run starts, so it imports next to nothing, leaves `sys.path` and the script's world
as they would be without it, hands over to another sitecustomize if there is one, and never raises.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _arm_after(torch_loader):
    """Have the loader of torch arm the probe when it has executed the module, then be itself again."""
    execute = torch_loader.exec_module

    def exec_module(module):
        del torch_loader.exec_module
        execute(module)
        try:
            from ddpmon.probe import arm

            arm.from_environment()
        except Exception as error:  # the training must not notice
            print(f"ddpmon: not watching this process: {type(error).__name__}: {error}", file=sys.stderr)

    torch_loader.exec_module = exec_module


class _TorchFinder:
    """Finds torch as Python would, once, and takes itself away."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(cls)
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            try:
                _arm_after(spec.loader)
            except Exception as error:
                print(f"ddpmon: not watching this process: {type(error).__name__}: {error}", file=sys.stderr)
        return spec


def _is_agent():
    """Whether this process is torchrun itself, whose ranks are the ones to watch."""
    return "torch.distributed.run" in sys.orig_argv[1:4]


def _hand_over():
    """Take our folder off sys.path and run the sitecustomize that would have run without us."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _FOLDER]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


if os.environ.get("DDPMON_SOCKET"):
    if _is_agent():
        os.environ["DDPMON_AGENT_PID"] = str(os.getpid())
    else:
        sys.meta_path.insert(0, _TorchFinder)
_hand_over()
