"""The wrapper that listens: the call goes on as without it."""

from __future__ import annotations

import gc
import traceback
from collections import OrderedDict

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import optimizer
from torch.utils.data import dataloader

from ddpmon.probe import hooks
from ddpmon.probe.identity import Identity
from ddpmon.probe.interception import wrap_attribute
from ddpmon.probe.listener import Listener


class Torch:
    """Stands for a class of torch's."""

    def double(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    def fail(self) -> None:
        raise KeyError("theirs")


@pytest.fixture
def listener() -> Listener:
    return Listener(Identity("test"))


def test_torch_compile_sees_nothing_but_the_original(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Torch, "double", Torch.double)
    heard = []
    wrap_attribute(listener, Torch, "double", before=lambda *_: heard.append("call"), traced=True)
    theirs = Torch()
    compiled = torch.compile(lambda x: theirs.double(x) + 1, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [3, 3]
    assert heard == []
    assert Torch().double(torch.ones(1)).item() == 2
    assert heard == ["call"]


def test_a_listener_that_fails_leaves_and_the_call_goes_on(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Torch, "double", Torch.double)

    def broken(*_args: object) -> None:
        raise ValueError("ours")

    wrap_attribute(listener, Torch, "double", before=broken, after=broken)
    assert [Torch().double(torch.ones(1)).item() for _ in range(2)] == [2, 2]
    assert capsys.readouterr().err.count("ours") == 1


def test_an_exception_comes_through_without_a_frame_of_ours(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Torch, "fail", Torch.fail)
    failed = []
    wrap_attribute(listener, Torch, "fail", failed=lambda: failed.append(True))
    with pytest.raises(KeyError) as caught:
        Torch().fail()
    assert failed == [True]
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][1:] == ["fail"]


PLACES = [
    (DistributedDataParallel, "_ddp_init_helper"),
    (DistributedDataParallel, "_pre_forward"),
    (DistributedDataParallel, "_post_forward"),
    (DistributedDataParallel, "_sync_buffers"),
    (dataloader, "_BaseDataLoaderIter"),
    (torch.autograd, "_engine_run_backward"),
    (torch.amp, "GradScaler"),
    (optimizer.Optimizer, "_patch_step_function"),
    (optimizer, "register_optimizer_step_pre_hook"),
    (optimizer, "register_optimizer_step_post_hook"),
    (distributed_c10d, "init_process_group"),
    (distributed_c10d, "all_gather_single"),
    (dist, "Work"),
    (functional, "wait_tensor"),
]


@pytest.fixture
def torch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed into torch is taken out again."""
    for owner in (torch.autograd, torch.amp, optimizer, dataloader, distributed_c10d, dist, functional, dist.Work):
        for name, value in list(vars(owner).items()):
            if not name.startswith("__") and callable(value):
                monkeypatch.setattr(owner, name, value)
    owners = (DistributedDataParallel, DataParallel, dataloader._BaseDataLoaderIter, torch.amp.GradScaler)
    for owner in (*owners, optimizer.Optimizer):
        for name, value in list(vars(owner).items()):
            if name == "__next__" or (not name.startswith("__") and callable(value)):
                monkeypatch.setattr(owner, name, value)
    monkeypatch.setattr(gc, "callbacks", list(gc.callbacks))
    for hooks_of in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        monkeypatch.setattr(optimizer, hooks_of, OrderedDict(getattr(optimizer, hooks_of)))


@pytest.mark.usefixtures("torch_as_it_was")
@pytest.mark.parametrize(("owner", "name"), PLACES, ids=[name for _, name in PLACES])
def test_a_torch_that_lacks_a_place_is_heard_at_the_others(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    monkeypatch.delattr(owner, name)
    if hasattr(dist, name):
        monkeypatch.delattr(dist, name)
    hooks.install_all(listener)
    notes = listener.identity.facts.notes
    if name == "all_gather_single":
        assert notes == [], "collectives are those that there are"
    else:
        (note,) = notes
        assert name in note
        assert note.startswith(f"torch {torch.__version__} has no ")
    model = torch.nn.Linear(2, 1)
    if name != "_patch_step_function":
        torch.optim.SGD(model.parameters(), lr=0.1)
    if name != "_engine_run_backward":
        model(torch.ones(1, 2)).sum().backward()


def test_a_listener_that_fails_as_the_call_does_leaves_the_scripts_own_exception(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After an error of CUDA, to record an event raises too."""
    monkeypatch.setattr(Torch, "fail", Torch.fail)

    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    wrap_attribute(listener, Torch, "fail", failed=broken)
    with pytest.raises(KeyError, match="theirs") as caught:
        Torch().fail()
    assert caught.value.__context__ is None
    assert not listener.listening
    assert "training continues" in capsys.readouterr().err
