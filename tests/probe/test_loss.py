"""What backward is called on, read as the loss that it is, or left alone."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from ddpmon.probe.cuda import Readings
from ddpmon.probe.loss import Loss


def fake():
    with FakeTensorMode():
        return torch.ones(())


@pytest.mark.parametrize(
    ("output", "value"),
    [
        (torch.tensor(0.5), 0.5),
        (torch.tensor([0.5]), 0.5),
        (torch.ones(2), None),
        ("no tensor", None),
        (torch.ones((), device="meta"), None),
        (torch.ones(1, device="meta"), None),
        (fake(), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_one_value_is_a_loss(output, value):
    assert Loss(Readings()).read(output) == value
