"""A digest tells replicas apart by any of the elements it takes, in any type and memory format."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ddpmon.probe.digest import is_digest_due, next_due, sample_elements, tensors_in


def value(model: nn.Module) -> int:
    sampled = sample_elements(list(model.parameters()), 0)
    assert sampled is not None
    result = sampled.value()
    assert result is not None
    return result


def make(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Linear(7, 5), nn.Linear(5, 2)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_same_weights_have_the_same_digest(dtype: torch.dtype) -> None:
    assert value(make(dtype)) == value(make(dtype))


def test_one_bit_of_one_element_changes_it() -> None:
    model = make()
    before = value(model)
    with torch.no_grad():
        weight = model[1].weight
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(10.0))
    assert value(model) != before


def test_channels_last_and_tiny_parameters_are_taken_as_they_lie() -> None:
    model = make().to(memory_format=torch.channels_last)
    assert value(model) == value(make().to(memory_format=torch.channels_last))
    empty = nn.ParameterList([nn.Parameter(torch.zeros(0)), nn.Parameter(torch.ones(()))])
    assert isinstance(value(empty), int)
    assert sample_elements([], 0) is None


def test_digests_are_taken_early_and_then_now_and_then() -> None:
    moments = [0]
    while moments[-1] < 600:
        moments.append(next_due(moments[-1]))
    assert moments == [0, 1, 10, 30, 100, 200, 300, 400, 500, 600]
    assert [step for step in range(1600) if is_digest_due(step)] == [1, 10, 30, 100, 500, 1000, 1500]


def test_inputs_are_told_apart_by_more_than_the_first_token_of_each_row() -> None:
    first, second = torch.ones(8, 128, dtype=torch.long), torch.ones(8, 128, dtype=torch.long)
    second[:, 1:] = 7
    digests = [sample_elements([one], 0, elements_each=64) for one in (first, second)]
    assert len({one.value() for one in digests if one}) == 2


def test_tensors_are_found_in_what_a_model_is_given() -> None:
    x, wide = torch.ones(3), torch.ones(4).expand(2, 4)
    given = [(x, "a text", wide), {"deep": {"deeper": [x]}, "none": None}]
    assert [one is x for one in tensors_in(given)] == [True, True], (
        "of one that is expanded, elements do not lie side by side"
    )
