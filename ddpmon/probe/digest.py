"""Whether replicas are still the same: now and then, a few of a model's parameters as one number.

DDP's replicas are bit-identical after every step, and nothing in torch says so when they are not. Every rank takes the
same elements after as many synchronised backward calls; the hub compares. Where an optimizer steps on gradients that
DDP never reduced, they are taken after such steps too: without DDP's forward there is no other moment, and they show
whether it did any harm.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch

PARAMETERS = 32
ELEMENTS = 8
"""So many parameters of a model, and of each so many elements: taking them costs 0.2 ms for any model."""
FIRST = (1, 10, 100)
EVERY = 500
"""What is wrong from the start shows at once; later, one in so many costs next to nothing."""


def due(count: int) -> bool:
    """Whether digests are taken after so many backward calls, or optimizer steps."""
    return count % EVERY == 0 if count > FIRST[-1] else count in FIRST


def next_due(count: int) -> int:
    """After how many digests are taken next, once there were so many."""
    return next((first for first in FIRST if first > count), (count // EVERY + 1) * EVERY)


class SampledElements:
    """Elements on their way from the device; `value()` is None until they have arrived."""

    __slots__ = ("_elements", "_event", "group", "model", "sequence", "step", "updates")

    def __init__(self, model: int, group: str, sequence: int, updates: int, elements: Any, event: Any) -> None:
        self.step = 0
        """The one that it is of, once that is worked out."""
        self.model = model
        self.group = group
        self.sequence = sequence
        self.updates = updates
        """Optimizer steps so far on gradients that were not reduced, if it was taken after one of them."""
        self._elements = elements
        self._event = event

    def value(self) -> int | None:
        """The digest, once the elements have arrived. Asks the driver, does not wait."""
        if self._event is not None and not self._event.query():
            return None
        return zlib.crc32(bytes(self._elements.view(torch.uint8).tolist()))


def sample(
    parameters: list[Any], model: int, group: str = "", sequence: int = 0, updates: int = 0
) -> SampledElements | None:
    """Take every few elements of every few parameters, as float64 (exact for every smaller type); None without any.

    group, sequence: where the ranks that hold replicas stand: only what was taken at the same moment can be compared.
    """
    chosen = parameters[:: max(1, len(parameters) // PARAMETERS)][:PARAMETERS]
    slices = []
    for parameter in chosen:
        count = min(ELEMENTS, parameter.numel())
        if count:
            # Straight from memory: a view in another order (channels last) would be copied whole.
            spread = parameter.detach().as_strided((count,), (parameter.numel() // count,))
            slices.append(spread.to(torch.float64))
    if not slices:
        return None
    elements = torch.cat(slices)
    if not elements.is_cuda:
        return SampledElements(model, group, sequence, updates, elements, None)
    if torch.cuda.is_current_stream_capturing():
        return None
    pinned = torch.empty(elements.shape, dtype=torch.float64, pin_memory=True)
    pinned.copy_(elements, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return SampledElements(model, group, sequence, updates, pinned, event)
