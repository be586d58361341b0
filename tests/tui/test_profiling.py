"""The key P: the form for a profile, the operators side by side, and the line where no profile can be made."""

from msgspec.structs import replace

from ddpmon.messages import OperatorRow, ProfiledRank, ProfileView
from tests.fake_source import FakeSource
from tests.tui import golden, snapshots
from tests.tui.driving import drive, screen_text, until
from tests.tui.tape import replaying

ROWS = [
    OperatorRow("aten::mm", "forward", [32.3, 0.0], [0.0, 0.0], [4.0, 0.0]),
    OperatorRow("ampere_sgemm_128x64_tn", "backward", [0.0, 0.0], [14.0, 11.5], [2.0, 2.0]),
    *(OperatorRow(f"aten::op{i}", "optimizer", [0.1, 0.1], [0.0, 0.0], [1.0, 1.0]) for i in range(30)),
    OperatorRow("c10d::allreduce_", "backward", [0.2, 34.0], [0.0, 0.0], [1.0, 1.0], waits=True),
]
MADE = ProfileView(
    1,
    [
        ProfiledRank(2, "", True, 40, 45, 5, 63.04, 61.7, 459.0),
        ProfiledRank(0, "", True, 41, 46, 5, 69.1, 61.7, 500.0),
    ],
    waits=False,
    rows=ROWS,
    trace="/home/me/.ddpmon/runs/20260101-120000-0001/profiles/step-40-1.json",
)
ASKED = ProfileView(1, [ProfiledRank(2, steps=5), ProfiledRank(0, steps=5)], waits=True, rows=[])


class Profiled(FakeSource):
    """Ranks answer when `answer` is called."""

    asked = None

    def ask(self, ranks=(), profile_steps=0):
        super().ask(ranks, profile_steps)
        self.asked = list(ranks), profile_steps
        self.current = replace(self.current, version=self.current.version + 1, profile=ASKED)

    def answer(self, app, _):
        self.current = replace(self.current, version=self.current.version + 1, profile=MADE)
        app.tick()


def opened(app):
    return "Profile" in type(app.screen).__name__


@golden.both_sizes
def test_the_ranks_and_the_cost_come_first(size):
    source = Profiled(snapshots.slow())
    _, text = drive(source, "P", size=size)
    golden.check("profile-asks", text, size)
    assert source.asked is None


@golden.both_sizes
def test_operators_stand_side_by_side_once_the_ranks_have_answered(size):
    source = Profiled(snapshots.slow())
    waits = until(lambda app: "rank 2: waiting for the end of 5 steps" in screen_text(app))
    there = until(lambda app: "aten::mm" in screen_text(app))
    _, text = drive(source, "P", "enter", waits, source.answer, there, size=size)
    assert source.asked == ([], 5)
    golden.check("profile-operators", text, size)


def test_ranks_and_steps_may_be_chosen_and_what_is_none_is_told():
    source = Profiled(snapshots.slow())
    _, text = drive(source, "P", "x", "enter", until(lambda app: app.screen.box.error))
    assert "x is no list of ranks" in text
    _, text = drive(source, "P", *"3,1", "tab", "backspace", "2", "enter", until(opened))
    assert source.asked == ([3, 1], 2)


def test_it_goes_back_to_the_screen_and_asks_for_no_profile_any_more():
    source = Profiled(snapshots.slow())
    drive(source, "P", "enter", until(opened), source.answer, "escape", lambda app, _: app.tick())
    assert not source.requested.profile
    drive(source, "P", "escape", lambda app, _: app.tick())
    assert not source.requested.profile


def test_where_no_rank_can_be_profiled_one_line_says_why():
    assert "read-only: cannot profile ranks" in drive(Profiled(snapshots.slow()), "P", readonly=True)[1]
    assert "frozen: press space, then P" in drive(Profiled(snapshots.slow()), "space", "P")[1]
    ended = Profiled(snapshots.slow(), stoppable=False)
    assert "the run has ended: no rank can be profiled" in drive(ended, "P")[1]
    assert "a recording cannot be profiled" in drive(replaying(snapshots.slow()), "P")[1]
