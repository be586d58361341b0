"""Prints what a script sees of its own interpreter, then does one after the other what its arguments say."""

import json
import multiprocessing
import os
import sys
import traceback
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "light"))
import eager  # noqa: F401  for what it does: torch comes without its compiler

WHATS = ("facts", "caught", "backward", "workers", "children")


class Wrong:
    """A dataset that raises."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        raise KeyError(f"item {index}")


def child(queue) -> None:
    name = multiprocessing.current_process().name
    if name == "fork":  # a spawned worker of a DataLoader imports it anew
        import torch

        assert torch.get_num_threads() > 0
    queue.put([name, __name__])


class Plain:
    """A dataset that works."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int):
        import torch.utils.data

        return index, torch.utils.data.get_worker_info().id, sys.argv[1:]


def main(whats: list[str]) -> None:
    import torch

    facts = {
        "argv": sys.argv[1:],
        "path0": sys.path[0],
        "path": sys.path,
        "main": [__name__, __file__, type(sys.modules["__main__"].__loader__).__name__, __spec__ is None],
        "excepthook": sys.excepthook is sys.__excepthook__,
        "meta_path": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
        "loader": sorted(vars(torch.__spec__.loader)),
        "threads": len(os.listdir("/proc/self/task")),
    }
    print(json.dumps(facts))
    for what in whats:
        print("now:", what)
        do(what)


def do(what: str) -> None:
    import torch
    from torch.utils.data import DataLoader

    if what == "caught":
        try:
            next(iter(DataLoader(Wrong())))
        except KeyError:
            traceback.print_exc()
    if what == "backward":
        (torch.ones(2, requires_grad=True) * 2).backward()
    if what == "workers":
        for method in ("fork", "spawn"):
            workers = 2 if method == "fork" else 1  # which imports torch
            loader = DataLoader(Plain(), batch_size=2, num_workers=workers, multiprocessing_context=method)
            print([[batch[0].tolist(), batch[1].tolist()] for batch in loader])
    if what == "children":
        for method in ("fork", "spawn", "forkserver"):
            context = multiprocessing.get_context(method)
            queue = context.Queue()
            process = context.Process(target=child, args=(queue,), name=method)
            process.start()
            print(queue.get(timeout=60))
            process.join()
            print(process.exitcode)


if __name__ == "__main__":
    main([word for word in sys.argv[1:] if word in WHATS])
