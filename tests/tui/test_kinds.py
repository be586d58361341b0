"""What is not DDP is said on every screen that speaks of it, and what is not measured is no 0.00."""

import pytest

from tests.tui import golden, kinds
from tests.tui.driving import drive


def test_kind():
    golden.check("world-tensor_parallel", drive(kinds.tensor_parallel(), "1")[1], golden.NARROW)
    golden.check("comm-fsdp2", drive(kinds.fsdp2(), "4", size=golden.WIDE)[1], golden.WIDE)
    golden.check("comm-alone", drive(kinds.alone(), "4")[1], golden.NARROW)


def test_heat_offers_what_is_measured():
    app, _ = drive(kinds.alone(), "3")
    assert not {"forward", "wait"} & set(app.views["heat"].main.metrics)


@pytest.mark.parametrize("kind", kinds.MADE)
@pytest.mark.parametrize("screen", "1245")
def test_no_screen_speaks_of_what_ddp_alone_has(kind, screen):
    text = drive(kinds.MADE[kind](), screen, size=(160, 50))[1]
    shown = "\n".join(text.splitlines()[:-1])  # the keys are those of every run
    assert "all-reduce" not in shown
    assert "bucket" not in shown
    assert "0.00" not in shown
