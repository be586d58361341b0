"""Recognises gradient caching, so that a step's loss and batches are those of its loss and not of its chunks.

A script that caches gradients runs its model without gradients, calls backward on a loss of those outputs, and then
runs the model once more, chunk by chunk. It calls backward on each chunk's outputs times their cached gradients: the
values of these products are no loss. The chunks may run in a hook of the loss, inside its backward. Some scripts
compute the loss in chunks too: together they are one loss, the value of a backward around the model's chunks.
"""

from __future__ import annotations

NONE, EMBEDDED, CACHED, REPLAYED = range(4)
"""Stages: no caching; outputs without gradients; a loss of those; a forward of the same with gradients."""


class GradientCache:
    """Follows the forward and backward calls of a step."""

    __slots__ = ("_awaits_backward", "_has_loss", "_latest", "_stage")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """An optimizer steps: its gradients are complete."""
        self._stage = NONE
        self._awaits_backward = False
        """True if a forward with gradients still waits for its backward: then a teacher runs in between."""
        self._has_loss = False
        """True if the loss of the cached outputs is among those of the step."""
        self._latest: object = None
        """The value of the latest backward's output; None: it has no single one."""

    def forward_without_gradients(self) -> None:
        """A model runs without gradients."""
        if not self._awaits_backward:
            self._stage = EMBEDDED

    def forward(self, losses: list[object], *, inside_backward: bool) -> None:
        """A model runs with gradients. losses: those of the step, in which a backward around it replaces its parts."""
        if not inside_backward:
            self._awaits_backward = True
            self._stage = REPLAYED if self._stage >= CACHED else NONE
            return
        if self._stage == CACHED and self._has_loss and self._latest is not None:
            losses[-1] = self._latest
        self._stage = NONE

    def backward(self, losses: list[object], loss: object) -> None:
        """Add the loss of a backward to those of the step, unless it is none. loss: its output's value, or None."""
        self._awaits_backward = False
        self._latest = loss
        if self._stage == EMBEDDED:
            self._stage, self._has_loss = CACHED, False
        if loss is None or self._stage == REPLAYED:
            return
        if self._stage == CACHED and self._has_loss:
            losses[-1] = (losses[-1], loss)
            return
        losses.append(loss)
        self._has_loss = True
