"""Recognises gradient caching, so that a step shows the loss and batch of the whole, not those of a chunk.

A script that caches gradients runs its model without gradients, and calls backward on a loss of these outputs. Then it
runs the model again, chunk by chunk, and calls backward on each chunk's outputs times their cached gradients. The
values of these products are no losses. The chunks may run in a hook of the loss, inside its backward. Some scripts
compute the loss in chunks too; then the step's loss is the value of the backward around the model's chunks.
"""

from __future__ import annotations

NONE, EMBEDDED, CACHED, REPLAYED = range(4)
"""Stages: no caching; outputs without gradients; a loss of these outputs; a second forward, with gradients."""


class GradientCache:
    """Follows the forward and backward calls of a step through the stages of gradient caching."""

    __slots__ = ("_awaits_backward", "_has_loss", "_latest", "_stage")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Return to the first stage at an optimizer's step, when the gradients are complete."""
        self._stage = NONE
        self._awaits_backward = False
        """True between a forward with gradients and its backward. A forward without gradients is then a teacher's."""
        self._has_loss = False
        """True if the loss of the cached outputs is among the losses of the step."""
        self._latest: object = None
        """Value of the latest backward's output; None if it had more than one."""

    def forward_without_gradients(self) -> None:
        """Enter the stage EMBEDDED, unless the forward is a teacher's, between a forward and its backward."""
        if not self._awaits_backward:
            self._stage = EMBEDDED

    def forward(self, losses: list[object], *, inside_backward: bool) -> None:
        """Handle a forward with gradients. losses: the step's; an outer backward's loss replaces inner ones."""
        if not inside_backward:
            self._awaits_backward = True
            self._stage = REPLAYED if self._stage >= CACHED else NONE
            return
        if self._stage == CACHED and self._has_loss and self._latest is not None:
            losses[-1] = self._latest
        self._stage = NONE

    def backward(self, losses: list[object], loss: object) -> None:
        """Add the loss of a backward, if any, to the step's losses, unless it only replays cached gradients."""
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
