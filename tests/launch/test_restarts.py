"""A process that is to live on is started again after pauses that grow, and shrink again once it was well."""

from ddpmon.launch.restarts import LONGEST_PAUSE_S, WELL_AFTER_S, Restarts


def test_pauses_grow_while_it_fails_and_begin_anew_after_it_lived():
    restarts = Restarts(0.5)
    assert restarts.due(0.0)
    at, pauses = 100.0, []
    for _ in range(9):
        restarts.started(at)
        pauses.append(restarts.failed(at))
        assert not restarts.due(at + pauses[-1] - 0.01)
        at += pauses[-1]
        assert restarts.due(at)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    restarts.started(at)
    assert restarts.failed(at + WELL_AFTER_S + 1) == 0.5
