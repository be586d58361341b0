"""Test how the way in which a process trains is detected, on torch's real wrappers."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddpmon.probe import parallel_wrappers, parallelism
from ddpmon.probe.identity import Identity
from ddpmon.probe.listener import CAPTURED, Listener
from ddpmon.probe.records import FORWARD, RawStep

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    """The first of four ranks; the others are made up, and nobody waits for them.

    Every test worker imports this file, and one runs its tests: what takes long to import is imported here.
    """
    for name in ("fsdp", "tensor.parallel.ddp"):
        importlib.import_module(f"torch.distributed.{name}")
    fake = importlib.import_module("torch.testing._internal.distributed.fake_pg")
    dist.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=4)
    yield
    dist.destroy_process_group()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    """One of four ranks that hears the wrappers of torch until the test is over."""
    for owner, names in (
        (
            dist.fsdp._fully_shard._fsdp_state.FSDPState,
            ("_root_pre_forward", "_cast_output_dtype", "_register_pre_backward_hook"),
        ),
        (dist.fsdp.FullyShardedDataParallel, ("forward",)),
        (nn.DataParallel, ("forward",)),
    ):
        for name in names:
            if hasattr(owner, name):
                monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setenv("WORLD_SIZE", "4")
    listener = Listener(Identity("test"))
    parallel_wrappers.hook_wrappers(listener)
    return listener


def step(listener: Listener, model: Callable[[torch.Tensor], torch.Tensor], optimizer: Any) -> RawStep:
    """One step of a real model, the listener told of it as torch's hooks would."""
    listener.set_up()
    with_gradients = model(torch.randn(6, 8)).sum()
    listener.backward_begins(((with_gradients,),), {"accumulate_grad": True})
    with_gradients.backward()
    listener.backward_ends(None, ())
    listener.optimizer_begins(optimizer)
    optimizer.step()
    listener.optimizer_ends(optimizer)
    return listener.clock.finished[-1]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))


def spread() -> dict[str, Any]:
    return {"0": dist.tensor.parallel.ColwiseParallel(), "1": dist.tensor.parallel.RowwiseParallel()}


def mesh(*names: str) -> Any:
    return dist.init_device_mesh("cpu", (4,) if len(names) == 1 else (2, 2), mesh_dim_names=names)


def fsdp2() -> nn.Module:
    model = net()
    dist.fsdp.fully_shard(model[0], mesh=mesh("dp"))
    return dist.fsdp.fully_shard(model, mesh=mesh("dp"))


def fsdp2_hybrid() -> nn.Module:
    return dist.fsdp.fully_shard(net(), mesh=mesh("replicate", "shard"))


def fsdp2_and_tensor_parallel() -> nn.Module:
    both = mesh("dp", "tp")
    model = dist.tensor.parallel.parallelize_module(net(), both["tp"], spread())
    return dist.fsdp.fully_shard(model, mesh=both["dp"])


def fsdp(**around: Any) -> nn.Module:
    inner = net()
    inner[0] = dist.fsdp.FullyShardedDataParallel(inner[0], device_id=CPU, **around)
    return dist.fsdp.FullyShardedDataParallel(inner, device_id=CPU, **around)


def fsdp_hybrid() -> nn.Module:
    return dist.fsdp.FullyShardedDataParallel(
        net(),
        device_id=CPU,
        device_mesh=mesh("replicate", "shard"),
        sharding_strategy=dist.fsdp.ShardingStrategy.HYBRID_SHARD,
    )


def tensor_parallel() -> nn.Module:
    return dist.tensor.parallel.parallelize_module(net(), mesh("tp"), spread())


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (fsdp2, "FSDP2"),
        (fsdp2_hybrid, "FSDP2 (hybrid)"),
        pytest.param(
            *(fsdp2_and_tensor_parallel, "FSDP2 + tensor parallel"),
            marks=pytest.mark.filterwarnings("ignore:FSDP2-wrapped module"),  # torch of its own output
        ),
        (fsdp, "FSDP"),
        (lambda: fsdp(use_orig_params=True), "FSDP"),
        (fsdp_hybrid, "FSDP (hybrid)"),
        (lambda: nn.DataParallel(net()), "DataParallel"),
    ],
)
def test_a_wrapper_at_work_names_the_kind_and_its_forward_is_measured(
    listener: Listener, make: Callable[[], nn.Module], kind: str
) -> None:
    model = make()
    optimizer = sgd(model)
    for _ in range(2):
        done = step(listener, model, optimizer)
        assert done.phases[FORWARD] > 0
        assert done.fed[0][0] == 6
    hello = listener.identity.facts
    assert (hello.parallelism, hello.unmeasured) == (kind, [])


@pytest.mark.parametrize(("make", "kind"), [(tensor_parallel, "tensor parallel"), (net, "none")])
def test_without_a_wrapper_forward_is_not_measured(
    listener: Listener, make: Callable[[], nn.Module], kind: str
) -> None:
    model = make()
    assert step(listener, model, sgd(model)).phases[FORWARD] == 0
    hello = listener.identity.facts
    assert (hello.parallelism, hello.unmeasured) == (kind, ["forward"])


def test_one_process_waits_for_nobody(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    listener.reset(Identity("test"))
    model = net()
    step(listener, model, sgd(model))
    hello = listener.identity.facts
    assert (hello.parallelism, hello.unmeasured) == ("one process", ["forward", "wait", "transfer"])


def test_the_gpu_of_parameters_that_no_ddp_model_has_is_the_ranks(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FSDP trains so. The parameter says that it is on a GPU; there is none here."""
    listener.parallelism._stepped = "torch.optim.sgd", [SimpleNamespace(is_cuda=True, device=torch.device("cuda", 3))]
    settled = listener.parallelism.decide_from_evidence(4, ddp=False, forward=True, on_device=False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU of {device}")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=f"uuid of {device}"))
    listener.identity.set_parallelism(*settled)
    hello = listener.identity.facts
    assert (hello.device, hello.device_name, hello.gpu) == ("cuda:3", "GPU of cuda:3", "uuid of 3")
    assert listener.identity.cuda_device == 3


def test_training_that_a_cuda_graph_captures_is_noted_as_uncounted(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: SimpleNamespace(record=lambda: None))
    events = listener._follow_device()
    assert events.event() is not None
    assert listener.identity.facts.notes == []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert events.event() is events.event() is None
    assert listener.identity.facts.notes == [CAPTURED]


def test_ddp_around_sharded_layers_names_both(listener: Listener) -> None:
    both = mesh("dp", "tp")
    inner = dist.tensor.parallel.parallelize_module(net(), both["tp"], spread())
    dist.tensor.parallel.ddp._pre_dp_module_transform(inner)
    model = DistributedDataParallel(inner, process_group=both["dp"].get_group())
    listener.model_wrapped(None, (model,))
    optimizer = sgd(model)
    listener.optimizer_begins(optimizer)
    listener.backward_begins(((torch.ones((), requires_grad=True),),), {})
    listener.backward_ends(None, ())
    listener.optimizer_ends(optimizer)
    hello = listener.identity.facts
    assert hello.parallelism == "DDP + tensor parallel"
    assert hello.unmeasured == ["forward"], "the model inside was called, not DDP's"


def test_a_script_that_goes_on_with_another_kind_is_told_anew(listener: Listener) -> None:
    alone = net()
    step(listener, alone, sgd(alone))
    assert listener.identity.facts.parallelism == "none"
    sharded = fsdp2()
    step(listener, sharded, sgd(sharded))
    assert (listener.identity.facts.parallelism, listener.identity.facts.unmeasured) == ("FSDP2", [])


def test_a_forward_that_raised_does_not_hide_the_next_one(listener: Listener) -> None:
    model = nn.DataParallel(net())
    listener.set_up()
    with pytest.raises(RuntimeError):
        model(torch.randn(6, 7))
    model = nn.DataParallel(net())
    assert step(listener, model, sgd(model)).phases[FORWARD] > 0


def test_deepspeeds_engine_is_heard(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its engine has been this for years: a module that is called, around the one that is trained."""

    class DeepSpeedEngine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = net()

        def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> Any:
            return self.module(*inputs, **named)

    engine = types.ModuleType("deepspeed.runtime.engine")
    engine.DeepSpeedEngine = DeepSpeedEngine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "deepspeed.runtime.engine", engine)
    model = DeepSpeedEngine()
    done = step(listener, model, sgd(model))
    assert done.phases[FORWARD] > 0
    assert done.fed[0][0] == 6
    assert listener.identity.facts.parallelism == "DeepSpeed"


def test_what_torch_no_longer_has_makes_the_kind_unknown_and_ends_nothing(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fsdp2()
    optimizer = sgd(model)
    listener.set_up()
    monkeypatch.setattr(parallelism, "_meshes", lambda *_: (_ for _ in ()).throw(AttributeError("mesh_info")))
    step(listener, model, optimizer)
    assert listener.identity.facts.parallelism == ""
    assert listener.listening
