"""Test that a dump of faulthandler can be read back."""

import faulthandler
import os
import sys

from hypothesis import given
from hypothesis import strategies as st

from ddpmon.messages import MAX_FRAMES, Stack, decode_from_rank, encode
from ddpmon.messages.dumps import parse_frames
from ddpmon.messages.folder import Places

PLACES = Places("/x/ddpmon/", ["/usr/lib/python3/", "/v/site/"], ["/home/me/", "/home/me/job/"])
DUMP = b"""Stack (most recent call first):
  File "/v/site/torch/nn.py", line 12 in wait
  File "/x/ddpmon/probe/hooks.py", line 137 in wrapper
  File "/home/me/job/pr\\xfcfung.py", line 40 in spin
  File "<frozen importlib._bootstrap>", line 241 in _call_with_frames_removed
  File "/home/me/job/train.py", line 9 in <module>
  File "<frozen runpy>", line 88 in _run_code
"""


def test_frames_are_named_as_a_rank_names_them_itself():
    told, own = parse_frames(DUMP, PLACES)
    assert told == [
        "/v/site/torch/nn.py:12 wait",
        "prüfung.py:40 spin",
        "train.py:9 <module>",
        "<frozen runpy>:88 _run_code",
    ]
    assert own == [1, 2]


def test_a_line_that_is_still_being_written_is_left_out():
    told, own = parse_frames(DUMP[: DUMP.index(b"job/train") + 9], PLACES)
    assert (told[-1], own) == ("prüfung.py:40 spin", [1])


def test_what_this_python_writes_is_read(tmp_path):
    with (tmp_path / "dump").open("w+b") as file:
        faulthandler.dump_traceback(file=file, all_threads=False)
        file.seek(0)
        told, own = parse_frames(file.read(), Places("/nowhere/", [os.path.dirname(os.__file__)], sys.path))
    assert told[own[0]].endswith(" test_what_this_python_writes_is_read")


line = st.text() | st.from_regex(r"  File \"[^\n]*\", line \d+ in [^\n]*", fullmatch=True)


@given(st.binary() | st.lists(line).map(lambda lines: "\n".join([*lines, ""]).encode()))
def test_whatever_is_in_the_file_makes_a_stack_that_can_be_sent(content):
    told, own = parse_frames(content, PLACES)
    assert len(told) <= MAX_FRAMES
    assert decode_from_rank(encode(Stack(0, 1, 1, 0, 0, 4, told, own[0] if own else None)))
