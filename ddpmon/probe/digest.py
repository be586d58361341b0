"""Samples elements of a model's parameters, inputs and buffers, and reduces them to a digest that the hub compares.

DDP's replicas are bit-identical after every step, and nothing in torch reports when they are not. Every rank samples
the same elements after the same number of synchronised backward calls, and the hub compares the digests. If an
optimizer steps on gradients that DDP never reduced, digests are also taken after these steps: they show whether the
weights of the ranks have become different.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from ddpmon.messages import WEIGHTS
from ddpmon.probe.cuda import HostCopy

PARAMETERS = 32
ELEMENTS = 8
"""PARAMETERS: number of parameters to sample in a model. ELEMENTS: number of elements to sample in each parameter.
Sampling costs 0.1 ms for any model."""
FIRST_DIGEST_COUNTS = (1, 10, 30, 100)
EVERY = 500
"""Steps between two digests after those of FIRST_DIGEST_COUNTS, which reveal a fault that exists from the start."""
BRIEF_EVERY = 100
"""Steps between two brief digests, which sample only two parameters. They narrow down when the ranks diverged, because
most faults change all parameters."""
SOON = 20
"""Number of backward calls after a digest during which a changed learning rate or mode schedules no further digest."""
INPUT_TENSORS, INPUT_ELEMENTS = 8, 64
_PLAIN = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
"""Types whose samples can be concatenated as they are. The digest converts them to float64, which is exact."""


def is_digest_due(count: int) -> bool:
    """Return whether a full digest is due after this number of backward calls or optimizer steps."""
    return count % EVERY == 0 if count > FIRST_DIGEST_COUNTS[-1] else count in FIRST_DIGEST_COUNTS


def next_due(count: int) -> int:
    """Return the number of backward calls after which the next digest, full or brief, is due."""
    return min([first for first in FIRST_DIGEST_COUNTS if first > count] + [(count // BRIEF_EVERY + 1) * BRIEF_EVERY])


def two_parameters(parameters: Sequence[Any]) -> Sequence[Any]:
    """Return the two parameters that a brief digest samples."""
    return [parameters[(len(parameters) - 1) // 2], parameters[-1]] if parameters else parameters


def tensors_in(arguments: Iterable[Any], depth: int = 3) -> Iterator[torch.Tensor]:
    """Yield the tensors in a model's arguments."""
    for one in arguments:
        if isinstance(one, torch.Tensor):
            if type(one) is torch.Tensor and one.layout is torch.strided and _lies_dense(one):
                yield one
        elif depth and isinstance(one, list | tuple):
            yield from tensors_in(one, depth - 1)
        elif depth and callable(getattr(one, "values", None)):
            yield from tensors_in(one.values(), depth - 1)


def _lies_dense(tensor: torch.Tensor) -> bool:
    if tensor.is_contiguous():
        return True
    return tensor.ndim == 4 and bool(tensor.is_contiguous(memory_format=torch.channels_last))


class SampledElements:
    """Sampled elements that may still be on their way from the device; `value()` is None until they have arrived."""

    __slots__ = ("_elements", "group", "model", "of", "sequence", "step", "updates")

    def __init__(self, model: int, group: str, sequence: int, updates: int, elements: HostCopy) -> None:
        self.of = WEIGHTS
        """Index into DIGESTS: the kind of tensor that was sampled."""
        self.step = 0
        """Number of the step that the elements belong to; 0 until it is known."""
        self.model = model
        self.group = group
        self.sequence = sequence
        self.updates = updates
        """Number of optimizer steps on unreduced gradients, if such a step caused the sampling; else 0."""
        self._elements = elements

    def value(self) -> int | None:
        """Return the digest, or None if the elements have not arrived."""
        if not self._elements.has_arrived:
            return None
        return zlib.crc32(bytes(self._elements.tensor.to(torch.float64).view(torch.uint8).tolist()))


def sample_elements(
    tensors: Sequence[Any],
    model: int,
    group: str = "",
    sequence: int = 0,
    updates: int = 0,
    elements_each: int = ELEMENTS,
) -> SampledElements | None:
    """Sample evenly spaced elements of evenly spaced tensors; return None if there are none.

    Args:
        tensors: Tensors to sample.
        model: Number of the model that the tensors belong to.
        group: Name of the process group whose ranks hold replicas.
        sequence: Number of the group's last collective. Only samples with the same group and sequence are comparable.
        updates: See `SampledElements.updates`.
        elements_each: Largest number of elements per tensor.

    """
    chosen = tensors[:: max(1, len(tensors) // PARAMETERS)][:PARAMETERS]
    slices = []
    with torch.no_grad():
        for tensor in chosen:
            size = tensor.numel()
            count = min(elements_each, size)
            if count:
                # Read straight from memory: a view in another order (channels last) would be copied whole. An odd
                # distance avoids sampling only the first element of each row where rows have an even length.
                distance = size // count
                slices.append(tensor.as_strided((count,), (distance - (distance % 2 == 0),)))
        if not slices or (slices[0].is_cuda and torch.cuda.is_current_stream_capturing()):
            return None
        if len({(one.dtype, one.device) for one in slices}) > 1 or slices[0].dtype not in _PLAIN:
            slices = [one.to(slices[0].device, torch.float64) for one in slices]
        return SampledElements(model, group, sequence, updates, HostCopy(torch.cat(slices)))
