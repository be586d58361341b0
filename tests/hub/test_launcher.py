"""Warnings of a launcher whose ranks have not come yet."""

from __future__ import annotations

import dataclasses

from ddpmon.recording.recorded import recorded_report

ROUTINE = "W1125 21:54:36.04 70 torch/distributed/run.py:874] Setting OMP_NUM_THREADS environment variable for each\n"
WARNING = "[W1125 21:54:{second}.93 socket.cpp:764] [c10d] No address of (node0, {port}): name resolution failed.\n"
FAILURE = """Traceback (most recent call last):
  File "c10d_rendezvous_backend.py", line 156, in _create_tcp_store
torch.distributed.DistNetworkError: The client socket has timed out while trying to connect to (node0, 36521).

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "api.py", line 377, in create_handler
RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.
"""


def test_a_launcher_that_repeats_a_warning_is_quoted_once_and_its_inner_exception_is_the_cause(stage):
    log = stage.dir / "logs" / "launcher.log"
    log.write_text(ROUTINE)
    stage.save(agent=dataclasses.replace(stage.run.supervisor))
    stage.hub()
    viewer = stage.viewer()
    viewer.until(
        lambda shot: "torchrun is starting (the ranks first import torch)" in shot.verdict, "nothing but routine"
    )
    with log.open("a") as file:
        file.writelines(WARNING.format(second=second, port=30000 + second) for second in range(10, 14))
    shot = viewer.until(lambda shot: "warned" in shot.verdict, "a warning")
    assert shot.verdict == "torchrun is starting and has warned 4 times; waiting for 4 ranks"
    assert shot.severity == "info"
    quoted = [event.text for event in shot.events if "warns" in event.text]
    assert quoted == ["torchrun warns: No address of (node0, 30013): name resolution failed."]
    with log.open("a") as file:
        file.write(FAILURE)
    stage.finish(exit_code=1)
    assert "DistNetworkError: The client socket has timed out" in recorded_report(stage.run)["verdict"]
