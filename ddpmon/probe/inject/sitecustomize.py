"""Python imports this by itself when its folder is on PYTHONPATH: it arms the probe once torch has been imported.

It runs in every Python that a run starts, so it imports next to nothing, leaves `sys.path` and the script's world
as they would be without it, hands over to another sitecustomize if there is one, and never raises.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


class _TorchFinder:
    """Stands before all finders until torch has been executed, whoever asked for it and however often.

    It finds nothing itself: it hands on what the finders behind it find, with a loader that notices when torch has
    been executed. To look torch up is not to import it, an import may fail and be tried again, and a finder that was
    put before this one may load torch without it: then the next module that is imported brings it to notice.
    """

    def __init__(self):
        self._watched = []
        self._executing = 0
        self._over = False

    def find_spec(self, name, path=None, target=None):
        if self._over:
            self._leave()  # somebody put back an older sys.meta_path
            return None
        if name != "torch" and not self._missed_torch():
            return None
        spec = self._find(name, path, target)
        try:
            self._watch(name, spec)
        except Exception:  # noqa: S110  a loader that cannot be watched: the next module's will do
            pass
        return spec

    def _missed_torch(self):
        """Return whether torch has been executed without this having seen it."""
        torch = sys.modules.get("torch")
        if torch is None or self._executing:
            return False
        try:
            # Not through the module's own attributes: to ask a lazy one for any would execute it.
            own = object.__getattribute__(torch, "__dict__")
            return "__version__" in own and not getattr(own.get("__spec__"), "_initializing", True)
        except Exception:  # something that is no module
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
        """Have the loader of a module notice when the module has been executed."""
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
                # Without our frame; a bare raise does not add it again.
                error.__traceback__ = error.__traceback__.tb_next
                raise
            finally:
                self._executing -= is_torch
            if not self._over and (module is sys.modules.get("torch") if is_torch else self._missed_torch()):
                self._arm()

        own["exec_module"] = exec_module
        self._watched.append((loader, before))

    def _arm(self):
        """Torch is there: leave no trace in the import system, then arm the probe."""
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
        except Exception as error:  # the training must not notice
            print(f"ddpmon: cannot watch this process: {type(error).__name__}: {error}", file=sys.stderr)

    def _leave(self):
        # A new list: another thread may be going through this one, and would pass over a finder.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]


def _is_agent():
    """Return whether this process is torchrun itself, whose ranks are the ones to watch."""
    return "torch.distributed.run" in sys.orig_argv[1:4]


def _spare_collections():
    """Keep garbage collection away from torchrun's imports, which stay until it ends: it was a third of its start and
    its end.
    """
    import atexit
    import gc

    gc.set_threshold(100_000, 50, 1_000)
    atexit.register(gc.freeze)


def _take_over_output():
    """Let a full disk be no matter of this process, if it is a rank that prints into a file of torchrun's."""
    try:
        import ddpmon_spool

        ddpmon_spool.take_over()
    except Exception:  # noqa: S110  it prints where it printed: the drain reads that too
        pass
    finally:
        sys.modules.pop("ddpmon_spool", None)


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
        _spare_collections()
    else:
        if "RANK" in os.environ:
            _take_over_output()
        sys.meta_path.insert(0, _TorchFinder())
_hand_over()
