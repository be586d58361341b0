"""The wrapper that listens: the call goes on as without it."""

from __future__ import annotations

import traceback

import pytest
import torch

from ddpmon.probe import hooks
from ddpmon.probe.identity import Identity
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
    hooks.replace(Torch, "double", listener, before=lambda *_: heard.append("call"), traced=True)
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

    hooks.replace(Torch, "double", listener, before=broken, after=broken)
    assert [Torch().double(torch.ones(1)).item() for _ in range(2)] == [2, 2]
    assert capsys.readouterr().err.count("ours") == 1


def test_an_exception_comes_through_without_a_frame_of_ours(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Torch, "fail", Torch.fail)
    failed = []
    hooks.replace(Torch, "fail", listener, failed=lambda: failed.append(True))
    with pytest.raises(KeyError) as caught:
        Torch().fail()
    assert failed == [True]
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][1:] == ["fail"]
