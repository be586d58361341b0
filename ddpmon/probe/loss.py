"""Reads the loss: the scalar on which the script calls backward, before any scaling."""

from __future__ import annotations

import weakref

import torch

from ddpmon.probe.cuda import Readings

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
                return _tolist(output)  # the usual loss; with cold caches this takes a third of the time of `item`
            return self._read(output)
        except RuntimeError:
            return None  # a tensor without values, with which a script counts operations or estimates memory

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
