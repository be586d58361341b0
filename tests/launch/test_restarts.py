"""A process that is to live on is started again after pauses that grow, and shrink again once it was well."""

import re

from ddpmon.launch.kept_process import LONGEST_PAUSE_S, WELL_AFTER_S, KeptProcess


class Unstartable(KeptProcess):
    NAME, MEANWHILE, FIRST_PAUSE_S, END_S = "it", "", 0.5, 1.0

    def _start_process(self):
        raise OSError("no")


def test_pauses_grow_while_it_fails_and_begin_anew_after_it_lived():
    lines = []
    process, at, pauses = Unstartable("run", lines.append), 100.0, []
    for _ in range(9):
        assert not process.start_if_due(at)
        pauses.append(float(re.search(r"again in ([\d.]+) s", lines[-1])[1]))
        tries = len(lines)
        assert not process.start_if_due(at + pauses[-1] - 0.01)
        assert len(lines) == tries, "the pause is not over"
        at += pauses[-1]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    process.record_end(at + WELL_AFTER_S + 1, -9)
    assert re.fullmatch(r"it ended with -9 after .* again in 0\.5 s", lines[-1])
