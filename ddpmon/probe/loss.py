"""Reads the loss: the scalar on which the script calls backward, before any scaling, and without cached gradients."""

from __future__ import annotations

import weakref

import torch

from ddpmon.probe.cuda import Readings

NONE, EMBEDDED, CACHED, REPLAYED = range(4)
"""Stages of gradient caching: no caching; a forward without gradients; a loss of its outputs; a second forward."""
_tolist, _numel, _item = torch.Tensor.tolist, torch.Tensor.numel, torch.Tensor.item


class Loss:
    """Reads losses, unscaled under GradScaler, without waiting for a GPU."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._scaled: tuple[weakref.ref[torch.Tensor], torch.Tensor] | None = None

    def remember_scaled(self, scaled: object, loss: object) -> None:
        """Remember the loss from which a scaled loss was made."""
        if isinstance(scaled, torch.Tensor) and isinstance(loss, torch.Tensor):
            self._scaled = (weakref.ref(scaled), loss.detach())

    def read_output(self, output: object) -> object:
        """Return the loss if `output` is one: a float, or a value on its way from the device; otherwise None."""
        if not isinstance(output, torch.Tensor):
            return None
        try:
            if type(output) is torch.Tensor and self._scaled is None and not output.ndim and not output.is_cuda:
                return _tolist(output)  # With cold caches, this takes a third of the time of `item`.
            return self._read(output)
        except RuntimeError:
            return None  # A tensor without values: some scripts use those to count operations or estimate memory.

    def _read(self, output: torch.Tensor) -> object:
        if _numel(output) != 1:
            return None
        loss = output
        if self._scaled is not None:
            scaled, unscaled = self._scaled
            if scaled() is output:
                loss = unscaled
            self._scaled = None
        return self._readings.start_copy(loss) if loss.is_cuda else _item(loss)


class GradientCache:
    """Follows the forward and backward calls of a step through the stages of gradient caching.

    A script that caches gradients runs its model without gradients, and calls backward on a loss of the outputs. Then
    it runs the model again, chunk by chunk, and calls backward on each chunk's outputs times their cached gradients.
    These products are not losses. The chunks may run in a hook of the loss, inside the loss's backward. Some scripts
    compute the loss in chunks too. Then the step's loss is the value of the backward that contains the model's chunks.
    """

    __slots__ = ("_awaits_backward", "_has_loss", "_latest", "_stage")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Return to the first stage at an optimizer's step, when the gradients are complete."""
        self._stage = NONE
        self._awaits_backward = False
        """True between a forward with gradients and its backward. A forward without gradients at that time is a
        teacher's."""
        self._has_loss = False
        """True if the loss of the cached outputs is among the losses of the step."""
        self._latest: object = None
        """Value of the latest backward's output; None if the backward had several outputs."""

    def forward_without_gradients(self) -> None:
        """Enter the stage EMBEDDED, but ignore a teacher's forward: one between another forward and its backward."""
        if not self._awaits_backward:
            self._stage = EMBEDDED

    def forward(self, losses: list[object], *, inside_backward: bool) -> None:
        """Handle a forward with gradients. losses: the step's losses. A forward inside the backward of a cached loss
        shows that the script computes the loss in chunks; the value of the outer backward then replaces the chunks'.
        """
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
