"""Take a few elements of a model's parameters, inputs and buffers now and then, as one number that ranks compare by.

DDP's replicas are bit-identical after every step, and nothing in torch says so when they are not. Every rank takes the
same elements after as many synchronised backward calls; the hub compares. Where an optimizer steps on gradients that
DDP never reduced, they are taken after such steps too: without DDP's forward there is no other moment, and they show
whether it did any harm.
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
"""So many parameters of a model, and of each so many elements: taking them costs 0.1 ms for any model."""
FIRST = (1, 10, 30, 100)
EVERY = 500
"""Steps between two digests. A fault that is there from the start shows at once; later digests cost next to nothing."""
BRIEF_EVERY = 100
"""In between, two parameters tell since when replicas differ: most faults change all of them."""
SOON = 20
"""Backward calls after a digest in which a change of the rate or the mode asks for no further one."""
INPUT_TENSORS, INPUT_ELEMENTS = 8, 64
_PLAIN = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
"""Types of which tensors are joined as they are: float64, as which they are compared, is exact for them."""


def due(count: int) -> bool:
    """Return whether whole digests are taken after so many backward calls, or optimizer steps."""
    return count % EVERY == 0 if count > FIRST[-1] else count in FIRST


def next_due(count: int) -> int:
    """Return after how many backward calls digests, whole or brief, are taken next."""
    return min([first for first in FIRST if first > count] + [(count // BRIEF_EVERY + 1) * BRIEF_EVERY])


def few(parameters: Sequence[Any]) -> Sequence[Any]:
    """Return the parameters of a brief digest."""
    return [parameters[(len(parameters) - 1) // 2], parameters[-1]] if parameters else parameters


def tensors_in(arguments: Iterable[Any], depth: int = 3) -> Iterator[torch.Tensor]:
    """Yield the tensors in what a model is given."""
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
    """Elements on their way from the device; `value()` is None until they have arrived."""

    __slots__ = ("_elements", "group", "model", "of", "sequence", "step", "updates")

    def __init__(self, model: int, group: str, sequence: int, updates: int, elements: HostCopy) -> None:
        self.of = WEIGHTS
        """Index into DIGESTS."""
        self.step = 0
        """The one that it is of, once that is worked out."""
        self.model = model
        self.group = group
        self.sequence = sequence
        self.updates = updates
        """Optimizer steps so far on gradients that were not reduced, if it was taken after one of them."""
        self._elements = elements

    def value(self) -> int | None:
        """Return the digest, once the elements have arrived."""
        if not self._elements.arrived:
            return None
        return zlib.crc32(bytes(self._elements.tensor.to(torch.float64).view(torch.uint8).tolist()))


def sample(
    tensors: Sequence[Any],
    model: int,
    group: str = "",
    sequence: int = 0,
    updates: int = 0,
    elements_each: int = ELEMENTS,
) -> SampledElements | None:
    """Take every few elements of every few tensors; None without any.

    group, sequence: where the ranks that hold replicas stand: only what was taken at the same moment can be compared.
    """
    chosen = tensors[:: max(1, len(tensors) // PARAMETERS)][:PARAMETERS]
    slices = []
    with torch.no_grad():
        for tensor in chosen:
            size = tensor.numel()
            count = min(elements_each, size)
            if count:
                # Straight from memory: a view in another order (channels last) would be copied whole. The distance is
                # odd, so that of rows of even length it does not take the first elements alone.
                distance = size // count
                slices.append(tensor.as_strided((count,), (distance - (distance % 2 == 0),)))
        if not slices or (slices[0].is_cuda and torch.cuda.is_current_stream_capturing()):
            return None
        if len({(one.dtype, one.device) for one in slices}) > 1 or slices[0].dtype not in _PLAIN:
            slices = [one.to(slices[0].device, torch.float64) for one in slices]
        return SampledElements(model, group, sequence, updates, HostCopy(torch.cat(slices)))
