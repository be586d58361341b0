"""Sentences are made where people read them, in plain English; nothing is read out of one again."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import ddpmon
from ddpmon.cli import command_line

ROOT = Path(ddpmon.__file__).parent
READ_BY_PEOPLE = ("cli", "doctor", "export", "hub", "launch", "remote", "runs", "tui")
"""Packages whose texts are for people: of the analysis, thresholds explain themselves to maintainers too."""
NO_ACTOR = re.compile(
    r"\b(?:is|are|was|were|be|been|being)(?: not| never| only)? (?:told|said|seen|known|held|kept|meant|wanted|heard)\b"
)
"""Passives that do not say who does it."""
NO_SUBJECT = re.compile(r"(?:Of|What|How|Whether|Who|Where|Which|As|Those|By)\b")
"""First words of what is no whole sentence."""
HELP_WORDS = 25
"""The longest sentence of a help text."""
SENTENCES = frozenset({"text", "advice", "brief", "verdict", "sentence", "announcement"})
"""Attributes that hold what people read: of findings, events, verdicts and reports."""
READS = frozenset({
    "startswith", "endswith", "split", "rsplit", "partition", "rpartition", "find", "rfind", "index", "count",
    "removeprefix", "removesuffix", "match", "search", "fullmatch", "findall", "finditer",
})  # fmt: skip
"""Methods that take a text apart, or a regular expression's."""
SAME_LINE = {
    "export/headless.py": "the same line is not printed twice, nor a verdict that has no topic",
    "tui/head.py": "a verdict to which nothing was added keeps its lead",
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
    """Return where a sentence is compared, searched or taken apart. same_line: two sentences may be compared as a
    whole."""
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


def test_no_sentence_is_read_back():
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        assert sentences_read(path.read_text(), same_line=name in SAME_LINE) == [], name


def texts(source: str, example: Callable[[str], str] = lambda _: "…") -> Iterator[str]:
    """Yield the texts of a module: its strings without docstrings.

    example: Returns what stands in place of an expression that is formatted into a text.
    """
    tree = ast.parse(source)
    quiet = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            quiet |= {id(part) for part in node.values}
            parts = (
                each.value if isinstance(each, ast.Constant) else example(ast.unparse(each)) for each in node.values
            )
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in quiet:
            yield node.value


def help_sentences(text: str | None) -> list[str]:
    """Return the sentences of a help text; its tables, which begin with a backspace, have none."""
    paragraphs = [paragraph for paragraph in (text or "").split("\n\n") if "\b" not in paragraph]
    return [sentence for each in paragraphs for sentence in re.split(r"(?<=[.?!;:]) ", " ".join(each.split()))]


def test_no_text_is_a_passive_without_an_actor():
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for package in READ_BY_PEOPLE
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in texts(path.read_text())
        if NO_ACTOR.search(text)
    ]
    assert found == []


def test_help_is_whole_sentences_that_are_read_once():
    for name, command in command_line.commands.items():
        told = [command.help, *(getattr(option, "help", None) for option in command.params)]
        sentences = [sentence for text in told for sentence in help_sentences(text)]
        assert [sentence for sentence in sentences if len(sentence.split()) > HELP_WORDS] == [], name
        assert [sentence for sentence in sentences if NO_SUBJECT.match(sentence) or NO_ACTOR.search(sentence)] == []
