"""Samples and tokens, from whatever a model is given."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass

import pytest
import torch

from ddpmon.probe.batch_size import count_batch, links_nodes


@dataclass
class Batch:
    label: str
    x: torch.Tensor


@dataclass(slots=True)
class SlottedBatch:
    label: str
    x: torch.Tensor


class NeedsAKey:
    def values(self, key):
        return [key]


class Closed:
    def __getattr__(self, name):
        raise RuntimeError("closed")


class HasNoShape(torch.Tensor):
    @property
    def shape(self):
        raise RuntimeError("NestedTensorImpl doesn't support sizes")


IDS = torch.zeros(4, 7, dtype=torch.long)
IMAGES = torch.zeros(5, 3, 8, 8)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ((IMAGES,), (5, 0)),
        ((IDS,), (4, 28)),
        ({"input_ids": IDS, "labels": torch.zeros(4)}, (4, 28)),
        (UserDict(input_ids=IDS), (4, 28)),
        (([IMAGES, IMAGES],), (5, 0)),
        ((Batch("x", IMAGES),), (5, 0)),
        (SlottedBatch("x", IMAGES), (5, 0)),
        (SlottedBatch, (0, 0)),
        ((NeedsAKey(), IMAGES), (5, 0)),
        ((Closed(), IDS), (4, 28)),
        (HasNoShape(), (0, 0)),
        (("text", 3, None, IMAGES), (5, 0)),
        ((torch.tensor(1.0),), (0, 0)),
        ((), (0, 0)),
        ((object(),), (0, 0)),
    ],
)
def test_the_first_tensor_tells(batch: object, expected: tuple[int, int]) -> None:
    assert count_batch(batch) == expected


class Graphs:
    """A batch as PyG makes it."""

    def __init__(self, **more: object) -> None:
        self.x, self.edge_index = torch.zeros(800, 3), torch.zeros(2, 3000, dtype=torch.long)
        vars(self).update(more)

    def values(self) -> list[object]:
        return list(vars(self).values())


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (Graphs(num_graphs=32), 32),
        (Graphs(batch_size=128), 128),  # nodes around which it was sampled
        ((Graphs(num_graphs=32),), 32),
        (Graphs(), 0),
        ({"x": torch.zeros(800, 3), "edge_index": torch.zeros(2, 3000, dtype=torch.long)}, 0),
    ],
)
def test_the_nodes_of_a_graph_are_no_samples(batch: object, samples: int) -> None:
    assert count_batch(batch) == (samples, 0)


def test_inputs_that_link_nodes_are_told_from_others() -> None:
    edges = torch.zeros(2, 3000, dtype=torch.long)
    assert links_nodes(800, edges)
    assert not links_nodes(2, edges), "two samples: token ids and their mask"
    assert not links_nodes(800, edges.float())
    assert not links_nodes(8, torch.zeros(8, 5, dtype=torch.long))
    assert not links_nodes(8, None)


def test_a_batch_that_holds_itself_ends() -> None:
    batch: list[object] = []
    batch.append(batch)
    assert count_batch(batch) == (0, 0)
