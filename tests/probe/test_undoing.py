"""Everything that the probe changes in torch can be taken back, one by one."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

import pytest
import torch
from torch.optim import optimizer

from ddpmon.probe import early_exit, hooks, parallel_wrappers, trainers
from ddpmon.probe.buckets import Buckets
from ddpmon.probe.identity import Identity
from ddpmon.probe.listener import Listener
from ddpmon.probe.undo import Changes


def attributes() -> dict[tuple[str, str], Any]:
    """All attributes of torch's modules, of the classes in them, and of `os`; what else hooks are kept in."""
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "torch" or name == "os"]
    found: dict[tuple[str, str], Any] = {}
    for module in modules:
        for name, value in list(getattr(module, "__dict__", {}).items()):
            found[module.__name__, name] = value
            if issubclass(type(value), type) and str(value.__module__).startswith("torch"):
                found |= {(f"{module.__name__}.{name}", each): one for each, one in vars(value).items()}
    found["gc", "callbacks"] = tuple(gc.callbacks)
    for kind in ("pre", "post"):
        found["hooks", kind] = tuple(getattr(optimizer, f"_global_optimizer_{kind}_hooks").values())
    return found


def differing(before: dict[tuple[str, str], Any]) -> set[tuple[str, str]]:
    """Attributes that are others now. torch's count of the handles that it gave out goes on."""
    now = attributes()
    keys = {key for key in before.keys() | now.keys() if key[1] != "next_id"}
    same = {key for key in before.keys() & now.keys() if before[key] is now[key]}
    return {key for key in keys - same if not (isinstance(now.get(key), tuple) and now[key] == before.get(key))}


def test_each_change_is_taken_back() -> None:
    importlib.import_module("torch.distributed.fsdp")  # not by every test worker that collects this file
    listener = Listener(Identity("test"))
    before = attributes()
    hooks.install_all(listener)
    parallel_wrappers.hook_wrappers(listener)
    trainers.install(listener)
    listener.record_buckets(Buckets(listener))
    early_exit.install_exit_hooks(listener.changes, lambda: None, listener.disable)
    listener.pauses.compiler_there(None, None)
    changed = differing(before)
    assert len(changed) > 70
    assert {("os", "_exit"), ("torch.autograd", "_engine_run_backward"), ("gc", "callbacks")} <= changed
    listener.let_go()
    listener.changes.undo_all()
    assert differing(before) == set()
    assert listener.changes.left == []


def test_what_somebody_else_replaced_afterwards_stays_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "save", torch.save)
    changes = Changes()
    changes.patch(torch, "save", lambda: "ours")
    changes.patch(torch, "load", torch.load)
    theirs = torch.save = lambda: "theirs"
    changes.undo_all()
    assert torch.save is theirs
    assert changes.left == ["torch.save"]


def test_an_inherited_attribute_is_inherited_again() -> None:
    class Base:
        def act(self) -> str:
            return "base"

    class Child(Base):
        pass

    changes = Changes()
    changes.patch(Child, "act", lambda _self: "ours")
    assert Child().act() == "ours"
    changes.undo_all()
    assert "act" not in vars(Child)
    assert Child().act() == "base"
