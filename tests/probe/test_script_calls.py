"""Test arguments of ddpmon.log and ddpmon.step: accepted as meant, or left out with one warning."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import ddpmon
from ddpmon import api
from ddpmon.messages import MAX_LOGGED
from ddpmon.probe.common_start import CommonStart
from ddpmon.probe.identity import NOTES, Identity
from ddpmon.probe.listener import Listener


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener(Identity("test"))
    api.attach(listener)
    yield listener
    api.detach()


class Odd:
    """A metric of the script's own that is not ready."""

    def __float__(self) -> float:
        raise RuntimeError("no value yet")


NUMBERS = [
    0.5, np.float64(0.5), np.array([0.5]), torch.tensor(0.5), torch.full((1, 1), 0.5),
    torch.tensor(0.5, requires_grad=True), torch.tensor(0.5, dtype=torch.bfloat16), "0.5",
]  # fmt: skip
NO_NUMBERS = [None, torch.ones(2), np.ones(3), [0.5], "high", 1j, torch.tensor(1j), 10**400, Odd(), object()]


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
def test_a_number_in_any_form_is_logged(listener: Listener, value: Any) -> None:
    ddpmon.log(accuracy=value)
    assert [(name, number) for _, name, number in listener.account.scalars] == [("accuracy", 0.5)]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: type(value).__name__)
def test_what_is_no_number_is_left_out_with_one_warning(
    listener: Listener, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        ddpmon.log(accuracy=value, loss=0.25)
    assert [name for _, name, _ in listener.account.scalars] == ["loss"] * 3
    (note,) = listener.identity.facts.notes
    assert note.startswith("ddpmon.log(accuracy=…) needs a number; the script passed ")
    assert note.endswith(", and ddpmon ignores it")
    assert capsys.readouterr().err == f"ddpmon: {note}\n"
    assert listener.listening


@pytest.mark.parametrize("name", ["", "x" * (MAX_LOGGED + 1), "two\nlines", "\ud800"], ids=ascii)
def test_a_name_that_the_wire_could_not_carry_is_left_out(listener: Listener, name: str) -> None:
    ddpmon.log(**{name: 1.0, "loss": 0.25})
    assert [name for _, name, _ in listener.account.scalars] == ["loss"]
    assert len(listener.identity.facts.notes) == 1


@pytest.mark.parametrize("value", [16, 16.0, np.int64(16), np.uint8(16), torch.tensor(16), torch.tensor([16.0])])
def test_a_whole_number_in_any_form_counts_samples_and_steps(listener: Listener, value: Any) -> None:
    with ddpmon.step(samples=value, total=value):
        assert listener.clock.marked_samples == 16
    assert listener.account.total_steps == 16
    assert listener.identity.facts.notes == []


def test_after_an_attach_the_scripts_total_is_left_out_as_steps_do_not_count_from_its_start(listener: Listener) -> None:
    listener.account.start = CommonStart(1)
    with ddpmon.step(total=16):
        pass
    assert listener.account.total_steps is None


@pytest.mark.parametrize("value", [-1, 2.5, math.nan, math.inf, 10**400, 1 << 60, "many", torch.ones(2), [3], Odd()])
def test_what_counts_nothing_is_left_out_with_one_warning_each(
    listener: Listener, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    listener.account.total_steps = 40
    for _ in range(3):
        with ddpmon.step(samples=value, total=value):
            assert listener.clock.marked_samples is None
    assert listener.account.total_steps == 40
    notes = listener.identity.facts.notes
    assert [note.partition("=")[0] for note in notes] == ["ddpmon.step(samples", "ddpmon.step(total"]
    assert capsys.readouterr().err.count("\n") == 2


def test_an_endless_variety_of_mistakes_does_not_fill_what_the_hub_is_told(listener: Listener) -> None:
    for number in range(1000):
        ddpmon.log(**{f"{number} {'x' * 200}": None})
    notes = listener.identity.facts.notes
    assert len(notes) == NOTES


def test_a_probe_that_fails_in_a_call_of_the_scripts_leaves_and_raises_nothing(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(listener.account, "scalars", None)
    ddpmon.log(loss=0.5)
    assert not listener.listening
    assert "training continues" in capsys.readouterr().err


def test_a_closed_stderr_stops_no_warning_from_being_harmless(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    ddpmon.log(accuracy=None)
    listener.disable(ValueError("ours"))
    assert not listener.listening


def test_flops_are_logged_as_a_share_of_the_peak_from_the_second_call_on(listener: Listener, monkeypatch: Any) -> None:
    monkeypatch.setattr(api, "_flops_at", 0.0)
    moments = iter((10.0, 10.5, 12.5))
    monkeypatch.setattr(api.time, "monotonic", lambda: next(moments))
    for _ in range(3):
        ddpmon.flops(1e12, peak=10e12)
    assert [(name, number) for _, name, number in listener.account.scalars] == [("mfu", 0.2), ("mfu", 0.05)]


@pytest.mark.parametrize("value", [0, "high", None, 10**400, 1j])
def test_flops_that_mean_nothing_raise_nothing(listener: Listener, monkeypatch: Any, value: Any) -> None:
    monkeypatch.setattr(api, "_flops_at", 1.0)
    ddpmon.flops(1e12, peak=value)
    ddpmon.flops(value, peak=1e12)
    ddpmon.flops(value, peak=0)
