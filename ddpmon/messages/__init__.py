"""Typed messages: everything that probe, hub and viewers send to each other is declared in this package.

- Shared: `vocabulary` declares constants and ranges of values, `quantities` the quantities measured of a rank.
- Between ranks and hub: `ranks` declares the messages, `steps` the record of a step, `stack_samples` and `profiles`
  the measurements that the hub requests of slow ranks.
- Between the hubs of several machines: `nodes`.
- Between viewers and hub: `view_requests` declares the requests, `viewers` the snapshot, `rank_view` its row of a rank,
  `view_parts` its parts that are sent on request, `cells` the byte values of its charts, `changes` its delta encoding.
- Encoding: `wire` encodes, decodes and checks messages.
- Files: `folder` describes the files that ranks write to the run's folder, `guarded_socket` connects to a run's
  sockets.

Encoding is msgpack through msgspec, structs as arrays. Fields are only ever appended, with defaults, so that old and
new versions can decode each other's messages. A damaged frame can still decode, so the structs declare the ranges of
their fields, and check that the fields fit together. A message with an invalid value is refused as a whole.

Clocks: `_us` times are CLOCK_MONOTONIC of the sending node in microseconds; `_at` times are Unix seconds.
Times inside a step are whole microseconds.
"""

from __future__ import annotations

from ddpmon.messages.competitors import *
from ddpmon.messages.profiles import *
from ddpmon.messages.quantities import *
from ddpmon.messages.rank_view import *
from ddpmon.messages.ranks import *
from ddpmon.messages.setup import *
from ddpmon.messages.stack_samples import *
from ddpmon.messages.steps import *
from ddpmon.messages.view_parts import *
from ddpmon.messages.view_requests import *
from ddpmon.messages.viewers import *
from ddpmon.messages.vocabulary import *
from ddpmon.messages.wire import *
