"""Judges the steps of a recording that no hub judged: as one would have, twice a second of the run.

A recording whose hub was killed has no findings about its last steps.
"""

from __future__ import annotations

from ddpmon.errors import RecordingError
from ddpmon.recording.merged import Merged
from ddpmon.recording.playback import TICK_S, Playback
from ddpmon.recording.recording import Recording
from ddpmon.store.intake import WINDOW_S, WINDOW_STEPS
from ddpmon.store.store import Store

MAX_RECORDS = 400_000
"""Step records that are judged, the last ones: some seconds of reading."""
JUDGEMENTS = 200
"""Limit of judgements. A longer run gets fewer than a hub would make, but several in each window of steps."""


def judge_unjudged(recording: Recording, store: Store) -> None:
    """Bring the ledger of a restored store up to its window, so that one more judgement makes it whole."""
    judged = store.ledger.judged.step
    if store.world is None or int(store.world.step[0]) <= judged + 1:
        return
    try:
        playback = Playback(recording, Merged(recording))
    except RecordingError:
        return
    last = max(track.at_end.last_step for track in playback.tracks)
    begin = playback.begin
    first = max(judged, last - MAX_RECORDS // len(store.world.ranks))
    for track in playback.tracks:
        if first > 0 and track.at_end.attempt == store.registry.attempt and (end_us := track.end_us(first)):
            begin = recording.clock.unix_at(end_us)
            break
    end, step_s = playback.end, float(store.world.step_ms.mean()) / 1e3
    spacing = max(TICK_S, min((end - begin) / JUDGEMENTS, WINDOW_S / 3, WINDOW_STEPS / 2 * step_s))
    playing, now = playback.store(begin, playback.lead(begin)), begin
    playing.ledger = store.ledger
    while now < end:
        now = playback.advance(playing, now, min(now + spacing, end))
        playing.judge(now, now)
