"""Counts the samples and tokens in the input of a model or in a batch of a DataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from torch import Tensor, float32, long


def count_batch(batch: Any, depth: int = 3) -> tuple[int, int]:
    """Return the samples and tokens in a batch, by the first tensor in it; 0 where unknown. Never raises.

    Samples are the tensor's first dimension. A tensor of integers with two dimensions is taken for token ids.
    """
    try:
        kind = type(batch)
        first = batch[0] if (kind is tuple or kind is list) and batch else batch
        if type(first) is Tensor:  # Most batches take this fast path, which runs twice in each step.
            shape = first.shape
            if shape and shape[0]:
                if len(shape) != 2 or first.dtype is float32 or first.is_floating_point():
                    return shape[0], 0
                return shape[0], shape[0] * shape[1]
        if isinstance(batch, Tensor):
            tokens = batch.numel() if batch.ndim == 2 and not batch.is_floating_point() else 0
            return (batch.shape[0] if batch.ndim else 0), tokens
        if hasattr(batch, "edge_index") or hasattr(batch, "adj_t") or hasattr(kind, "edge_types"):
            return _graphs(batch), 0
        if kind is dict and "edge_index" in batch:
            return 0, 0
        if depth:
            for part in _parts(batch):
                samples, tokens = count_batch(part, depth - 1)
                if samples:
                    return samples, tokens
    except Exception:  # A nested tensor has no shape; a class of the script's own may raise anything.
        return 0, 0
    return 0, 0


def links_nodes(samples: int, second: Any) -> bool:
    """Return whether a model's second input links the nodes of a graph, so that rows of the first are nodes.

    A list of edges has two rows. samples: number of rows of the first input. If there are two, a second input with two
    rows may as well be an ordinary one, so the answer is False.
    """
    if isinstance(second, Tensor):
        shape = second.shape
        return len(shape) == 2 and shape[0] == 2 != samples and second.dtype == long
    return type(second).__name__ == "SparseTensor"


def _graphs(batch: Any) -> int:
    """Return the samples in a PyG batch: graphs, or the nodes around which it was sampled; 0 if it has neither."""
    for name in ("num_graphs", "batch_size"):
        number = getattr(batch, name, None)
        if isinstance(number, int):
            return number
    return 0


def _parts(batch: Any) -> Iterable[Any]:
    if isinstance(batch, (tuple, list)):
        return batch
    if callable(getattr(batch, "values", None)):
        return cast("Iterable[Any]", batch.values())
    return [getattr(batch, name) for name in getattr(batch, "__dataclass_fields__", ())]
