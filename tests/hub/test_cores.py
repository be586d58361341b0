"""Test the load of each core of the hub's machine: read once a second, in bounded memory, never asked of a rank."""

import os
import sys

import numpy as np
import pytest

from ddpmon.hub.cores import KEPT_CORES_S, Cores, Ticks, core_counters
from ddpmon.messages import SeriesRequest

IDLE, HALF, FULL, NONE = 1, 127, 254, 0


class Machine:
    """A machine whose cores are as busy as a test says."""

    def __init__(self, *cores):
        self.cores, self.busy, self.all = cores, np.zeros(len(cores)), np.zeros(len(cores))

    def run(self, *shares):
        """Another second."""
        self.busy, self.all = self.busy + 100 * np.array(shares), self.all + 100

    def read(self):
        return Ticks(self.cores, self.busy, self.all)


def cells(cores, seconds=1, columns=4):
    view = cores.view(SeriesRequest(per_column=seconds, columns=columns))
    return {each.rank: list(each.cells) for each in view.courses}


def measured(machine, *seconds):
    cores = Cores("here", machine.read)
    cores.measure(100.0)
    for number, shares in enumerate(seconds):
        machine.run(*shares)
        cores.measure(101.0 + number)
    return cores


def test_each_core_has_its_course():
    cores = measured(Machine(0, 1, 5), (0, 1, 0.5), (1, 0, 0.5))
    assert cells(cores) == {0: [NONE, NONE, IDLE, FULL], 1: [NONE, NONE, FULL, IDLE], 5: [NONE, NONE, HALF, HALF]}
    assert cores.view(SeriesRequest()).host == "here"


def test_a_column_of_several_seconds_is_their_mean():
    cores = measured(Machine(0), *[(second % 2,) for second in range(43)])
    assert cells(cores, 16, 2) == {0: [HALF, HALF]}


def test_it_reads_once_a_second_and_seconds_it_could_not_read_are_alike():
    machine = Machine(0)
    cores = measured(machine, (1,))
    machine.run(0)
    cores.measure(101.5)
    assert cells(cores) == {0: [NONE, NONE, NONE, FULL]}, "too soon to read again"
    cores.measure(104.0)
    assert cells(cores) == {0: [FULL, IDLE, IDLE, IDLE]}


def test_what_is_older_than_is_kept_is_gone():
    machine = Machine(0)
    cores = measured(machine, (1,))
    machine.run(0)
    cores.measure(101.0 + KEPT_CORES_S)
    assert set(cells(cores, 16, 512)[0]) == {IDLE}


def test_a_core_that_is_switched_off_starts_anew_and_a_silent_kernel_has_none():
    machine = Machine(0, 1)
    cores = measured(machine, (1, 1))
    machine.__init__(0)
    cores.measure(102.0)
    assert cells(cores) == {}
    machine.run(0)
    cores.measure(103.0)
    assert cells(cores) == {0: [NONE, NONE, NONE, IDLE]}
    assert measured(Machine(), ()).view(SeriesRequest()).columns == 0


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_the_kernel_s_own_count_is_read():
    ticks = core_counters()
    assert len(ticks.cores) == os.cpu_count()
    assert (ticks.busy > 0).all()
    assert (ticks.busy < ticks.all).all()
