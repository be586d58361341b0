"""The loss: the scalar on which the script calls backward, as the script means it."""

from __future__ import annotations

import weakref

import torch

from ddpmon.probe.cuda import Readings


class Loss:
    """Reads it, unscaled under GradScaler, added up under gradient accumulation, without waiting for a GPU."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._scaled: tuple[weakref.ref[torch.Tensor], torch.Tensor] | None = None

    def scaled(self, scaled: object, loss: object) -> None:
        """Remember what a scaled loss was made from."""
        if isinstance(scaled, torch.Tensor) and isinstance(loss, torch.Tensor):
            self._scaled = (weakref.ref(scaled), loss.detach())

    def read(self, output: object, before: object) -> object:
        """The step's loss after a backward of `output`. before: what it was, with what earlier ones gave."""
        if not isinstance(output, torch.Tensor) or output.numel() != 1:
            return before
        loss = output
        if self._scaled is not None:
            scaled, unscaled = self._scaled
            if scaled() is output:
                loss = unscaled
            self._scaled = None
        if loss.is_cuda:
            return self._readings.read(loss)
        # Gradient accumulation: the parts of a step's loss add up, as its gradients do.
        return loss.item() + (before if isinstance(before, float) else 0.0)
