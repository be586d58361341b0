"""Test thresholds, and that the page has each of them and each constant with its reason."""

import ast
import importlib
import pkgutil
import runpy
from pathlib import Path

import pytest

import ddpmon.analysis
from ddpmon.analysis.threshold import Threshold

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "thresholds.md"
FILES = sorted(Path(ddpmon.analysis.__file__).parent.rglob("*.py"))


def a(enter, **more):
    return Threshold(enter, of="share of a step", why="A judgement.", **more)


def test_what_reaches_it_makes_it_true_and_what_is_true_stays_so_while_it_keeps_enough():
    one = a(0.4, stay=0.2)
    assert [one.reached(value) for value in (0.39, 0.4, 0.41)] == [False, True, True]
    assert [one.reached(value, held=True) for value in (0.19, 0.2, 0.3)] == [False, True, True]
    assert (one.asked(), one.asked(True)) == (0.4, 0.2)


def test_it_keeps_as_much_as_it_asks_for_unless_it_says_less():
    assert a(3).stay == 3
    assert a(2.0, stay=1.3).stay == 1.3
    assert not a(0.4).reached(0.39, held=True)


def test_one_that_is_reached_from_above_stays_true_a_bit_higher():
    one = a(10.0, below=True, stay=20.0)
    assert [one.reached(value) for value in (9.9, 10.0, 10.1)] == [True, True, False]
    assert [one.reached(value, held=True) for value in (15.0, 20.0, 20.1)] == [True, True, False]


@pytest.mark.parametrize(
    "more",
    [{"stay": 0.5}, {"stay": 0.3, "below": True}],
    ids=["above", "below"],
)
def test_what_keeps_a_thing_true_is_no_more_than_what_makes_it_true(more):
    with pytest.raises(ValueError, match="easier to reach"):
        a(0.4, **more)


@pytest.fixture(scope="module")
def thresholds():
    """Every threshold that a module of the analysis has, wherever it came from, by its identity."""
    names = [each.name for each in pkgutil.walk_packages(ddpmon.analysis.__path__, "ddpmon.analysis.")]
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    return {id(value): value for value in values if isinstance(value, Threshold)}.values()


def test_the_page_tells_of_the_thresholds_as_they_are():
    written = runpy.run_path(str(DOCS / "thresholds.py"))["page"]()
    assert PAGE.read_text() == written, "python docs/thresholds.py brings it up to date"


def test_no_threshold_is_left_out_of_the_page(thresholds):
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(thresholds) > 40
    for one in thresholds:
        assert any(f"| {one.of} | " in row and row.endswith(f"| {one.why} |") for row in rows), one


def test_each_says_what_it_is_of_and_why_in_words_that_a_table_can_hold(thresholds):
    for one in thresholds:
        assert len(one.of) >= 4, one
        assert len(one.why) > 20, one
        assert one.why.endswith("."), one
        assert not set("|\n") & set(one.of + one.why), one


def assigned(tree):
    """Each assignment to upper-case names at the top of a file: names, value, and the docstring under it."""
    for node, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [one.id for target in targets if target for one in ast.walk(target) if isinstance(one, ast.Name)]
        if names and all(name.lstrip("_").isupper() for name in names):
            text = below.value if isinstance(below, ast.Expr) else None
            yield names, node.value, text.value if isinstance(text, ast.Constant) else None


def is_number(value):
    """Return whether an expression is made of numbers, alone or several of them."""
    match value:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) or is_number(right)
        case ast.Tuple(elts=several) | ast.List(elts=several) | ast.Set(elts=several) | ast.Dict(values=several):
            return any(is_number(each) for each in several)
    return False


def without_reason(source):
    """Upper-case names of numbers at the top of a file without a docstring under them."""
    for names, value, text in assigned(ast.parse(source)):
        makes = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "Threshold"
        if is_number(value) and not makes and not (isinstance(text, str) and text.strip()):
            yield from names


def test_every_number_at_the_top_of_a_file_has_its_reason_under_it():
    for path in FILES:
        assert list(without_reason(path.read_text())) == [], path


def test_thresholds_are_made_at_the_top_of_a_file_alone_where_the_page_finds_them():
    for path in FILES:
        tree = ast.parse(path.read_text())
        made = {id(value) for _, value, _ in assigned(tree)}
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Threshold"
        ]
        assert [call.lineno for call in calls if id(call) not in made] == [], path
