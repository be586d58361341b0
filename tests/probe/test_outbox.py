"""Test that the outbox is bounded, ordered and counted."""

from __future__ import annotations

from ddpmon.messages.folder import MAX_FOLDER_FRAME_BYTES
from ddpmon.probe.hub_socket import Outbox, PendingFrame


def drain(outbox: Outbox) -> list[int]:
    sent = []
    while (frame := outbox.next_frame()) is not None:
        sent.append(frame.seq)
        outbox.mark_sent()
    return sent


def filled(count: int, capacity: int = 1000) -> Outbox:
    outbox = Outbox(capacity)
    for seq in range(1, count + 1):
        outbox.add(PendingFrame(seq, b"x", 10))
    return outbox


def test_a_new_hub_gets_the_old_frames_before_the_new_ones() -> None:
    outbox = filled(2)
    drain(outbox)
    outbox.add(PendingFrame(3, b"x", 1))
    outbox.send_again()
    assert drain(outbox) == [1, 2, 3]


def test_a_frame_that_no_hub_takes_is_counted_and_holds_up_no_other() -> None:
    outbox = filled(1)
    outbox.add(PendingFrame(2, bytes(MAX_FOLDER_FRAME_BYTES + 1), 7))
    outbox.add(PendingFrame(3, bytes(MAX_FOLDER_FRAME_BYTES), 1))
    assert drain(outbox) == [1, 3]
    assert outbox.dropped == 7


def test_the_rest_is_what_nobody_acknowledged_sent_or_not() -> None:
    outbox = filled(3)
    drain(outbox)
    outbox.add(PendingFrame(4, b"x", 1))
    outbox.acknowledged(2)
    assert [frame.seq for frame in outbox.unacknowledged()] == [3, 4]
    assert not outbox.is_all_recorded


def test_unsent_frames_beyond_the_capacity_are_dropped_oldest_first_and_counted() -> None:
    outbox = filled(12, capacity=100)
    assert outbox.dropped == 20
    assert drain(outbox) == list(range(3, 13))


def test_frames_that_were_sent_go_first_and_do_not_count_as_dropped() -> None:
    """The hub most likely has them; it sees holes in the step numbers if not."""
    outbox = filled(10, capacity=100)
    drain(outbox)
    outbox.add(PendingFrame(11, b"x", 10))
    assert outbox.dropped == 0
    outbox.send_again()
    assert drain(outbox) == list(range(2, 12))
