"""Test what holds for every kind of finding."""

import importlib
import pkgutil
import re
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import ddpmon
from ddpmon.analysis import findings as finding
from ddpmon.analysis import kinds
from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.kinds import KINDS, gpu_memory, kind_of
from ddpmon.analysis.kinds.kind import Kind, Moment, Words, named_as, worded
from ddpmon.messages import QUANTITIES, SAMPLED, Finding, Sample, Step
from tests.findings import judged
from tests.worlds import own_times, world_with


def test_every_kind_of_a_file_is_in_the_list_once_under_its_own_name():
    modules = [importlib.import_module(f"{kinds.__name__}.{one.name}") for one in pkgutil.iter_modules(kinds.__path__)]
    made = {id(one): one for module in modules for one in vars(module).values() if isinstance(one, Kind)}
    assert {kind.name: kind for kind in KINDS} == {kind.name: kind for kind in made.values()}
    assert len(KINDS) == len(made)


def test_words_are_made_of_facts_and_of_what_ranks_are_called():
    told = worded("{who} {have} {n:.1f} ms:| {share:.0%} of it|, for long", "Look at {who}.", FACTS | named_as([2], 4))
    assert told == Words("rank 2 has 1.5 ms: 25% of it, for long", "Look at rank 2.", lead="rank 2 has 1.5 ms:")
    assert worded("|{who} wait{s}|, with {name}", "", FACTS | named_as([0, 1], 4)).text == "ranks 0-1 wait, with {n}|x"
    assert worded("{who} wait{s}|| and {name}", "", FACTS | named_as([0, 1], 2)).lead == "both ranks wait"
    assert worded("{who}", "", named_as([0, 1], 0)) == Words("ranks 0-1")


FACTS = {"n": 1.5, "share": 0.25, "name": "{n}|x"}


def test_what_a_kind_says_of_others_is_said_of_kinds_that_there_are():
    names = {kind.name for kind in KINDS}
    for kind in KINDS:
        assert set(kind.outdoes) <= names - {kind.name}
        family = [other for other in KINDS if other.family == kind.family] if kind.family else [kind]
        assert any(other.detect for other in family), kind.name
        assert len({other.gone for other in family}) == 1, "its end is told by whatever name it went last"


def names_of_kinds(source):
    """Kinds that strings name; one that a measured value or a cause of lateness is called by is no sign."""
    metrics = {row.metric for row in QUANTITIES.values()}
    values = {*QUANTITIES, *metrics, *Sample.__struct_fields__, *Step.__struct_fields__, "cpu_starved"}
    names = {kind.name for kind in KINDS} - values
    return names & set(re.findall(r'"(\w+)"', source))


def test_nobody_but_the_kinds_themselves_names_one():
    """Whoever treats kinds differently asks for a field of Kind."""
    package = Path(ddpmon.__file__).parent
    others = [path for path in package.rglob("*.py") if Path(kinds.__file__).parent not in path.parents]
    assert {path: named for path in others if (named := names_of_kinds(path.read_text()))} == {}


def test_what_a_kind_says_of_machines_it_says_of_quantities_that_there_are():
    sampled = {row.name for row in SAMPLED}
    for kind in KINDS:
        assert set(kind.quantities) <= sampled
        assert kind.device is None or set(kind.device.columns) <= sampled


def test_kinds_that_are_listed_by_cost_stand_together():
    assert [by_cost for by_cost, _ in groupby(KINDS, key=lambda kind: kind.by_cost)].count(True) == 1


def test_a_kind_of_another_version_is_one_that_nothing_follows_from():
    kind = kind_of(Finding("from_the_future", "warn", "x", [1]))
    assert (kind.name, kind.gone, kind.slows, kind.explains, kind.device) == ("from_the_future", "", "", "", None)


def test_evidence_that_is_not_there_is_left_out():
    moment = Moment(Evidence(), None, asked=gpu_memory)
    assert moment.finding({"a": None, "c": 1.0}, [0], words=Words("x")).evidence == {"c": 1.0}


def test_a_kind_that_is_a_reason_to_act_leaves_its_parts_out_unless_they_are_over(monkeypatch):
    def made(name, severity="warn", until=None, outdoes=()):
        kind = Kind(name=name, outdoes=outdoes)
        moment = Moment(Evidence(), None, asked=kind)
        found = moment.finding({}, [0], severity=severity, words=Words("x"), until_step=until)
        return replace(kind, detect=lambda _: [found])

    def told(*them):
        monkeypatch.setattr(finding, "KINDS", them)
        monkeypatch.setattr(finding, "kind_of", lambda f: next(kind for kind in them if kind.name == f.kind))
        return [f.kind for f in judged(None, Evidence())]

    assert told(made("part"), made("whole", outdoes=("part",))) == ["whole"]
    assert told(made("part", until=9), made("whole", outdoes=("part",))) == ["part", "whole"]
    assert told(made("part"), made("whole", "info", outdoes=("part",))) == ["part", "whole"]


def test_advice_about_a_stretch_that_is_over_does_not_grow():
    own = own_times(300, 4, noise=0.02)
    own[60:160, 2, 4] += 20
    world, before = world_with(own), []
    advice = set()
    for _ in range(3):
        before = judged(world, Evidence(unmeasured=["forward"]), before)
        advice |= {f.advice for f in before if f.until_step is not None}
    assert len(advice) == 1
    assert advice.pop().count("ddpmon does not measure forward here") == 1
