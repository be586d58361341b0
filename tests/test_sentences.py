"""Sentences are made where people read them: nothing is read out of one again, facts travel beside it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ddpmon

ROOT = Path(ddpmon.__file__).parent
SENTENCES = frozenset({"text", "advice", "brief", "verdict", "sentence", "announcement"})
"""Attributes that hold what people read: of findings, events, verdicts and reports."""
READS = frozenset({
    "startswith", "endswith", "split", "rsplit", "partition", "rpartition", "find", "rfind", "index", "count",
    "removeprefix", "removesuffix", "match", "search", "fullmatch", "findall", "finditer",
})  # fmt: skip
"""Methods that take a text apart, or a regular expression's."""
SAME_LINE = {
    "export/headless.py": "the same line is not printed twice, nor a verdict that has no topic",
    "runs/logs.py": "lines that ranks printed, folded where they are alike",
}
"""Files that compare whole texts with each other, and why."""


def _is_sentence(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        is_named = isinstance(node.slice, ast.Constant) and node.slice.value in SENTENCES
        return is_named or _is_sentence(node.value)
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


def _is_empty(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in ("", None)


def sentences_read(source: str, *, same_line: bool = False) -> list[str]:
    """Where a sentence is compared, searched or taken apart. same_line: two sentences may be compared as a whole."""
    read = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            equality = all(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops)
            is_read = any(map(_is_sentence, sides)) and not any(map(_is_empty, sides)) and not (same_line and equality)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READS:
            is_read = any(map(_is_sentence, (node.func.value, *node.args)))
        else:
            is_read = False
        if is_read:
            read.append(f"{node.lineno}: {ast.unparse(node)}")
    return read


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_sentence_is_read_back(path):
    name = path.relative_to(ROOT).as_posix()
    assert sentences_read(path.read_text(), same_line=name in SAME_LINE) == []


@pytest.mark.parametrize(
    "reading",
    [
        "'hangs' in finding.text", "finding.text == 'rank 1 hangs'", "verdict.sentence.startswith('rank')",
        "re.search('rank', snapshot.verdict)", "made['verdict'].split(':')", "'late' in finding['text'][:20]",
    ],
)  # fmt: skip
def test_a_sentence_that_is_read_back_is_seen(reading):
    assert sentences_read(reading)


def test_whether_there_is_a_sentence_may_be_asked():
    assert sentences_read("finding.advice is not None and snapshot.verdict != '' and len(event.text)") == []
