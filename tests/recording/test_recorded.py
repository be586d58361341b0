"""What a report reads of a recording."""

import pytest

from ddpmon.recording import recorded
from tests.two_hosts import FIRST_US, Root
from tests.worlds import own_times, records


@pytest.mark.parametrize(("step_ms", "readings"), [(30, 1), (2000, 2)])
def test_a_run_whose_end_is_all_of_it_is_read_once(home, monkeypatch, step_ms, readings):
    root = Root(ranks=2, here=2)
    for rank in range(2):
        root.join(rank)
    slower = step_ms / 27
    told = records(own_times(60, 2, noise=0.02) * slower, transfer=6.0 * slower, first=1, start_us=FIRST_US)
    root.train(told, 1, 60)
    run = root.end()
    read = []
    monkeypatch.setattr(
        recorded, "restored_store", lambda *args, real=recorded.restored_store: read.append(args) or real(*args)
    )
    assert recorded.recorded_report(run)["steps"]["count"] == 60
    assert len(read) == readings
