"""ddpmon help: shows pages of the documentation in the terminal."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click

import ddpmon
from ddpmon.errors import UsageError
from ddpmon.export.width import wrapped

_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_FINDING = re.compile(r"^## (\w+)$", re.MULTILINE)
_WORD = re.compile(r"^\| ([^|]+?)(?: \[([^|\]]+)\])? \| (.+) \|$", re.MULTILINE)
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
_UNIT = re.compile(r"(?:,| in)? (?:ms|GiB|GB|MiB|MB|%|a step)$|%$")
_BEGINS = re.compile(r"\s*(?:[-*]|\d+\.) |\s*\|")
"""Matches the beginning of a line that does not continue the one above."""


class Topic(NamedTuple):
    """A page or section that `ddpmon help NAME` prints."""

    kind: str
    """Either "task", "finding" or "word"."""
    title: str
    text: str
    """The text as Markdown."""


def docs_folder() -> Path:
    """Return the folder of the documentation: inside an installed package, beside the package in a clone."""
    package = Path(ddpmon.__file__).parent
    return package / "docs" if (package / "docs").is_dir() else package.parent / "docs"


def topics() -> dict[str, Topic]:
    """Return every topic by name. A task and a finding with the same name are merged, and replace a word."""
    from ddpmon.messages import QUANTITIES  # Imported here, because `ddpmon --help` must answer at once.

    docs = docs_folder()
    found: dict[str, Topic] = {}
    for page in sorted((docs / "howto").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        found[page.stem] = Topic("task", text.partition("\n")[0].removeprefix("# "), text)
    _, *findings = _FINDING.split((docs / "reference" / "findings.md").read_text(encoding="utf-8"))
    for name, section in zip(findings[::2], findings[1::2], strict=True):
        text = re.sub(r"^\|.*\n?", "", section, flags=re.MULTILINE).strip()
        finding = f"# The finding {name}\n\n{text}"
        if name in found:
            found[name] = Topic("task, finding", found[name].title, f"{found[name].text}\n\n{finding}")
        else:
            first_sentence = " ".join(text.partition("\n\n")[0].split()).partition(". ")[0]
            found[name] = Topic("finding", first_sentence, finding)
    for word, short, meaning in _WORD.findall((docs / "reference" / "glossary.md").read_text(encoding="utf-8")):
        for name in filter(None, (word, short)):
            found.setdefault(name, Topic("word", meaning, f"# {word}\n\n{meaning}"))
    for row in QUANTITIES.values():
        for name in (row.name, row.heading, row.text, row.filter_word):
            topic = Topic("word", row.meaning, f"# {row.text}\n\n{row.sentence}")
            found.setdefault(_UNIT.sub("", name.lower()), topic)
    return found


def find_topic(word: str, found: Mapping[str, Topic]) -> str | None:
    """Return the name of the topic that a word means, in any case and with or without a unit; None if there is none."""
    bare = _UNIT.sub("", word.lower())
    names = (word, word.lower(), bare, bare.removesuffix("s"))
    return next((name for name in names if name in found), None)


def listed(found: dict[str, Topic], width: int) -> Iterator[str]:
    """Yield the lines that list tasks and findings, without words of the glossary, because there are too many."""
    for kind, heading in (("task", "Tasks:"), ("finding", "Kinds of findings:")):
        yield heading
        for name, topic in found.items():
            if kind in topic.kind:
                yield from wrapped(topic.title, width, f"  {name:<26} ", " " * 29)
        yield ""
    yield from wrapped("ddpmon help TOPIC prints one; TOPIC may also be a word of the screens, or a command.", width)


def for_terminal(markdown: str, width: int) -> Iterator[str]:
    """Yield the lines of a page, wrapped; code and commands are not changed."""
    fenced = listed = False
    paragraph: list[str] = []
    for line in re.sub(r"\n(?:[ \t]*\n){2,}", "\n\n", _IMAGE.sub("", markdown)).strip().splitlines():
        is_fence = line.strip().startswith("```")
        fenced ^= is_fence
        if _ITEM.match(line):
            listed = True
        elif line.strip() and not line.startswith(" "):
            listed = False
        is_code = is_fence or fenced or line.startswith(" " * (8 if listed else 4))
        if paragraph and (is_code or not line.strip() or _BEGINS.match(line)):
            yield from _wrapped(paragraph, width)
            paragraph = []
        if is_fence:
            continue
        if is_code:
            yield f"    {line.strip()}" if fenced else line
        elif line.strip():
            paragraph.append(line)
        else:
            yield ""
    if paragraph:
        yield from _wrapped(paragraph, width)


def _wrapped(lines: list[str], width: int) -> list[str]:
    margin = " " * (len(lines[0]) - len(lines[0].lstrip()))
    text = _LINK.sub(r"\1", " ".join(line.strip() for line in lines)).replace("**", "").replace("`", "")
    if text.startswith("#"):
        return [text.lstrip("# ").upper()]
    if text.startswith("|"):
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        return wrapped("  ".join(cells), width, margin, f"{margin}    ") if "".join(cells).strip("-: ") else []
    item = _ITEM.match(text)
    return wrapped(text, width, margin, margin + " " * len(item[0]) if item else margin)


def _complete(_context: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    return sorted(name for name in topics() if name.startswith(begun))


@click.command(name="help")
@click.argument("topic", nargs=-1, shell_complete=_complete)
@click.pass_context
def help_page(context: click.Context, topic: tuple[str, ...]) -> None:
    """Explain TOPIC: a task, a kind of finding, a word, or a command.

    \b
    ddpmon help               list the tasks and the kinds of findings
    ddpmon help straggler     how to find a straggler
    ddpmon help cpu_starved   what this finding means and what to do
    ddpmon help excess        what this word means
    ddpmon help run           the options of this command
    """
    from difflib import get_close_matches

    pages = topics()
    width = min(100, shutil.get_terminal_size().columns)
    if not topic:
        print("\n".join(listed(pages, width)))
        return
    group = context.parent.command if context.parent else None
    word = " ".join(topic)
    if isinstance(group, click.Group) and (command := group.commands.get(word.lower())):
        print(command.get_help(click.Context(command, info_name=word.lower(), parent=context.parent)))
    elif name := find_topic(word, pages):
        print("\n".join(for_terminal(pages[name].text, width)))
    else:
        near = get_close_matches(word, pages, 1)
        guess = f"; did you mean {near[0]!r}? All topics" if near else "; all topics"
        raise UsageError(f"no topic {word!r}{guess}: ddpmon help")
