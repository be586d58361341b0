"""Arms the probe once torch has been imported. Python imports this file by itself if its folder is on PYTHONPATH.

It runs in every Python process of a run. So it imports next to nothing, leaves `sys.path` and the script's environment
as they would be without it, runs another sitecustomize if there is one, and never raises.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


class _TorchFinder:
    """An import finder, placed before all others, that notices when torch has been imported, in whatever way.

    It finds nothing itself. It returns what the finders after it find, with a loader that notices when torch has been
    executed. A module that is found need not be imported, and an import may fail and be repeated. A finder inserted
    before this one may load torch without it; this one then notices torch at the next import of any module.
    """

    def __init__(self):
        self._watched = []
        self._executing = 0
        self._over = False

    def find_spec(self, name, path=None, target=None):
        if self._over:
            self._leave()  # Other code restored an older sys.meta_path.
            return None
        if name != "torch" and not self._missed_torch():
            return None
        spec = self._find(name, path, target)
        try:
            self._watch(name, spec)
        except Exception:  # noqa: S110  This loader cannot be wrapped, but that of a later module can.
            pass
        return spec

    def _missed_torch(self):
        """Return whether torch was executed without this finder noticing it."""
        torch = sys.modules.get("torch")
        if torch is None or self._executing:
            return False
        try:
            # Read the module's dict directly: asking a lazy module for an attribute would execute it.
            own = object.__getattribute__(torch, "__dict__")
            return "__version__" in own and not getattr(own.get("__spec__"), "_initializing", True)
        except Exception:  # It may be an object that is no module.
            return False

    def _find(self, name, path, target):
        """Return what Python would find without this finder."""
        finders = sys.meta_path
        behind = finders[finders.index(self) + 1 :] if self in finders else finders
        for finder in behind:
            find_spec = getattr(finder, "find_spec", None)
            spec = None if find_spec is None else find_spec(name, path, target)
            if spec is not None:
                return spec
        return None

    def _watch(self, name, spec):
        """Wrap the loader of a module, to learn when the module has been executed."""
        loader = None if spec is None else spec.loader
        if loader is None or isinstance(loader, type) or any(loader is watched for watched, _ in self._watched):
            return
        own, execute = vars(loader), loader.exec_module
        before = own.get("exec_module")
        is_torch = name == "torch"

        def exec_module(module):
            self._executing += is_torch
            try:
                execute(module)
            except BaseException as error:
                # Drop our frame; a bare raise does not add it again.
                error.__traceback__ = error.__traceback__.tb_next
                raise
            finally:
                self._executing -= is_torch
            if not self._over and (module is sys.modules.get("torch") if is_torch else self._missed_torch()):
                self._arm()

        own["exec_module"] = exec_module
        self._watched.append((loader, before))

    def _arm(self):
        """Remove this finder and its wrappers from the import system, and arm the probe, now that torch is imported."""
        try:
            self._over = True
            for loader, before in self._watched:
                if before is None:
                    vars(loader).pop("exec_module", None)
                else:
                    vars(loader)["exec_module"] = before
            self._watched.clear()
            self._leave()
            from ddpmon.probe import arm

            arm.from_environment()
        except Exception as error:  # The training must not fail because of the probe.
            print(f"ddpmon: cannot watch this process: {type(error).__name__}: {error}", file=sys.stderr)

    def _leave(self):
        # Assign a new list: another thread that iterates over this one would skip a finder.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]


def _is_agent():
    """Return whether this process is torchrun itself, whose ranks are to be watched."""
    return "torch.distributed.run" in sys.orig_argv[1:4]


def _spare_collections():
    """Collect garbage rarely in torchrun. Collections of its many imports took a third of its time to start and end."""
    import atexit
    import gc

    gc.set_threshold(100_000, 50, 1_000)
    atexit.register(gc.freeze)


def _take_over_output():
    """Redirect the output of a torchrun rank from a file into a spool, so that a full disk does not stop the rank."""
    try:
        import ddpmon_spool

        ddpmon_spool.take_over()
    except Exception:  # noqa: S110  The output still goes to the file, which the drain reads too.
        pass
    finally:
        sys.modules.pop("ddpmon_spool", None)


def _hand_over():
    """Remove our folder from sys.path, and run the sitecustomize that Python would have run without us."""
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
        _spare_collections()
    else:
        if "RANK" in os.environ:
            _take_over_output()
        sys.meta_path.insert(0, _TorchFinder())
_hand_over()
