"""Operations of a step's model are counted, and nothing of what it computes changes."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from ddpmon.probe import flop_counter
from ddpmon.probe.flop_counter import FlopCounter


class Model(nn.Module):
    """What models of the field are made of: a convolution, attention, a linear layer of three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 5)

    def forward(self, images):
        tokens = self.norm(self.convolution(images)).relu().flatten(2).transpose(1, 2)
        q, k, v = self.qkv(tokens).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.out(functional.dropout(mixed, 0.1)).mean(1)


def trained(around, steps=3):
    """The weights after some steps, each within what `around` begins and ends."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        end = around()
        functional.cross_entropy(model(torch.randn(4, 3, 6, 6)), torch.tensor([0, 1, 2, 3])).backward()
        end()
        optimizer.step()
        optimizer.zero_grad()
    return list(model.state_dict().values())


def counting(counters):
    def around():
        counters.append(FlopCounter())
        counters[-1].__enter__()
        return counters[-1].end

    return around


def test_weights_are_the_same_and_the_count_is_torchs():
    counters = []
    with FlopCounterMode(display=False) as theirs:
        trained(lambda: lambda: None)
    counted, alone = trained(counting(counters)), trained(lambda: lambda: None)
    assert all(torch.equal(one, other) for one, other in zip(counted, alone, strict=True))
    assert sum(one.flops for one in counters) == theirs.get_total_flops() > 0


def test_an_evaluation_is_not_counted():
    model, counter = nn.Linear(4, 4), FlopCounter()
    counter.__enter__()
    with torch.no_grad():
        model(torch.ones(2, 4))
    counter.end()
    assert counter.flops == 0


def test_ended_by_another_thread_it_counts_no_more():
    counter = FlopCounter()
    with counter:
        other = threading.Thread(target=counter.end)
        other.start()
        other.join()
        nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()
    assert counter.flops == 0


@pytest.mark.parametrize(("graphs", "compiled"), [(0, False), (1, True)])
def test_compiled_code_is_noticed(monkeypatch, graphs, compiled):
    import torch._dynamo.utils as dynamo

    monkeypatch.setitem(dynamo.counters["stats"], "unique_graphs", graphs)
    assert flop_counter.is_compiled() is compiled
