"""Comes to torch in the ways that libraries do, then prints what is left in the import system."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import threading
import traceback
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "light"))
import eager  # noqa: F401  for what it does: torch comes without its compiler

import ddpmon.api


def looked_up() -> None:
    """datasets, evaluate and transformers ask so whether it is installed."""
    assert importlib.util.find_spec("torch") is not None
    assert importlib.util.find_spec("torch") is not None
    import torch  # noqa: F401


def loaded_lazily() -> None:
    spec = importlib.util.find_spec("torch")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch"] = module
    spec.loader.exec_module(module)
    import decimal  # noqa: F401  an import between must not execute it

    assert object.__getattribute__(module, "__class__") is not type(sys), "still lazy"
    assert module.ones(1).item() == 1


def at_once() -> None:
    """Threads that all import it, and one that looks it up meanwhile."""
    threads = [threading.Thread(target=importlib.import_module, args=("torch",)) for _ in range(4)]
    threads += [threading.Thread(target=importlib.util.find_spec, args=("torch",)) for _ in range(4)]
    threads += [threading.Thread(target=importlib.import_module, args=(name,)) for name in ("wave", "chunk", "netrc")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class _Refuses(importlib.abc.MetaPathFinder):
    """Something that torch needs cannot be imported."""

    def find_spec(self, name, path=None, target=None):
        if name == "torch._utils_internal":
            raise ImportError("not yet")


def second_try() -> None:
    refuses = _Refuses()
    sys.meta_path.insert(0, refuses)
    try:
        import torch
    except ImportError:
        print(traceback.format_exc())
    assert "torch" not in sys.modules
    sys.meta_path.remove(refuses)
    for name in [name for name in sys.modules if name.startswith("torch.")]:
        del sys.modules[name]  # else they are no attributes of the new one
    import torch  # noqa: F401


class _Wrapping(importlib.abc.MetaPathFinder):
    """Asks everybody behind it, and wraps the loader, as import hooks for type checks do."""

    class Loader(importlib.abc.Loader):
        def __init__(self, inner):
            self.inner = inner

        def create_module(self, spec):
            return self.inner.create_module(spec)

        def exec_module(self, module):
            self.inner.exec_module(module)

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = self.Loader(spec.loader)
                return spec
        return None


def wrapped() -> None:
    finder = _Wrapping()
    sys.meta_path.insert(0, finder)
    import torch  # noqa: F401

    sys.meta_path.remove(finder)


def main(way: str) -> None:
    globals()[way]()

    found = importlib.util.find_spec("torch")
    facts = {
        "finders": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
        "loader": sorted(vars(getattr(found.loader, "inner", found.loader))),
        "again": sorted(vars(importlib.machinery.PathFinder.find_spec("torch").loader)),
    }
    print(json.dumps(facts))
    print(f"armed: {ddpmon.api.attached()}")


if __name__ == "__main__":
    main(sys.argv[1])
