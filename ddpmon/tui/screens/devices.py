"""Devices: what are the machines doing?"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from ddpmon.tui import keys
from ddpmon.tui.screens.view import OnePane
from ddpmon.tui.widgets.devicelist import DeviceList


class Devices(OnePane):
    """GPUs, cores, memory and disk of every rank, by host."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("devices")]

    def __init__(self) -> None:
        self.devices = DeviceList(id="devices")
        super().__init__(self.devices)

    @property
    def cursor(self) -> DeviceList:
        return self.devices

    def action_sort(self) -> None:
        self.devices.cycle_sort()

    def action_fold(self) -> None:
        self.devices.fold()
