"""Test that the loss on which backward is called is read, and that other tensors are left alone."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from ddpmon.probe.cuda import Readings
from ddpmon.probe.loss import Loss


@pytest.mark.parametrize(
    ("output", "value"),
    [
        (torch.tensor(0.5), 0.5),
        (torch.tensor([0.5]), 0.5),
        (torch.ones(2), None),
        ("no tensor", None),
        (torch.ones((), device="meta"), None),
        (torch.ones(1, device="meta"), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_one_value_is_a_loss(output, value):
    assert Loss(Readings()).read_output(output) == value


def test_a_tensor_that_has_no_data_is_no_loss():
    """Made here and not where tests are collected: torch loads its compiler for it, a second in each worker."""
    with FakeTensorMode():
        fake = torch.ones(())
    assert Loss(Readings()).read_output(fake) is None
