"""A GradScaler skips many updates: gradients overflow again and again."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import SCALED_UPDATES, Finding

SKIPPED = Threshold(
    20,
    of=f"of the latest {SCALED_UPDATES} updates through a GradScaler: those that it skipped",
    why="torch begins with a scale of 65,536, which 16 skipped updates make 1; later one in 2,000 is usual.",
    keeps=0.5,
)
MOSTLY = Threshold(90, of="the same, from which on hardly anything is learnt", why="A judgement: nine of ten.")


def detect(moment: Moment) -> Iterator[Finding]:
    """Yield it for the rank with the most: gradients are the same on all ranks of DDP, and so are the skips."""
    skipped = moment.evidence.skipped
    most = max(skipped.values(), default=0)
    if not SKIPPED.reached(most, held=moment.held_one(KIND) is not None):
        return
    words = Words(
        f"{most} of the last {SCALED_UPDATES} updates were skipped: gradients are infinite or NaN",
        "GradScaler skips an update whose gradients overflowed, and halves its scale. So many in a row mean that the"
        " model itself yields NaN or numbers beyond float16: use bfloat16, lower the learning rate, clip gradients"
        " after scaler.unscale_(), and look for a division by 0 or a log of 0 (torch.autograd.set_detect_anomaly).",
    )
    counts = {str(rank): count for rank, count in skipped.items()}
    yield KIND.finding("critical" if MOSTLY.reached(most) else "warn", words, evidence={"skipped": counts})


KIND = Kind("updates_skipped", gone="the GradScaler skips few updates again", detect=detect)
