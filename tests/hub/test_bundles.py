"""What a node keeps for the root."""

from ddpmon.hub.bundles import BUNDLE_ITEMS, Bundles
from ddpmon.messages.nodes import Item


def item(number, size=100):
    return Item(1 + number, bytes(size))


def sent(bundles):
    """Send all that waits."""
    out = []
    while bundle := bundles.next(0):
        bundles.sent()
        out.append(bundle)
    return out


def test_what_is_not_taken_goes_out_again_in_order_and_once_taken_it_does_not():
    bundles = Bundles()
    for number in range(3):
        bundles.add(item(number))
        bundles.close()
    assert [bundle.seq for bundle in sent(bundles)] == [1, 2, 3]
    bundles.recorded(1)
    bundles.send_again()
    again = sent(bundles)
    assert [(bundle.seq, bundle.first) for bundle in again] == [(2, 2), (3, 2)]
    assert [bundle.items[0].pid for bundle in again] == [2, 3]
    bundles.recorded(3)
    bundles.send_again()
    assert sent(bundles) == []
    assert bundles.settled


def test_a_heartbeat_is_empty_and_a_bundle_is_bounded():
    bundles = Bundles()
    bundles.close()
    assert sent(bundles) == []
    bundles.close(even_empty=True)
    assert [bundle.items for bundle in sent(bundles)] == [[]]
    for number in range(BUNDLE_ITEMS + 1):
        bundles.add(item(number, 1))
    bundles.close()
    assert [len(bundle.items) for bundle in sent(bundles)] == [BUNDLE_ITEMS, 1]


def test_of_too_much_the_oldest_goes_is_counted_and_the_rest_says_where_it_begins():
    bundles = Bundles(kept_bytes=1000)
    for number in range(15):
        bundles.add(item(number))
        bundles.close()
        if number == 3:
            sent(bundles)
    assert bundles.dropped == 5
    bundles.send_again()
    left = sent(bundles)
    assert [bundle.seq for bundle in left] == list(range(6, 16))
    assert {bundle.first for bundle in left} == {6}
    assert left[-1].dropped == 5
