"""Draw sentences that users read, so that a person who does not know ddpmon can judge which need a second reading.

    python benchmarks/sentences.py --count 40 --seed 7
    python benchmarks/sentences.py --count 80 --seed 7 --only 'findings|tables|accuracy'

A third each comes from the docs (with table cells), the help of commands, and the texts in the code: screens, findings
and errors, with an example in place of a value, or `…`. `--only` draws from the sources whose names match: pages or
modules.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from launching import options

from ddpmon.cli import command_line
from tests.test_docs import PAGES, ROOT, prose
from tests.test_sentences import READ_BY_PEOPLE, texts

SHORTEST_WORDS = 4
"""Smallest number of words in a sentence; a shorter text is a name or a value."""
WORD = re.compile(r"[A-Za-z][a-z']+")
CODE = re.compile(
    r"\(\?|\w\|[A-Za-z.]|SELECT |\{ \w+:|(?m:^import \w+)|(?m:^def \w+)|^set |^handle |\\d|\$page| = \{|#body"
)
"""Parts of regular expressions, SQL, CSS and programs, which are not texts for users."""
LINK = re.compile(r"!?\[([^\]]+)\]\([^)]+\)")
"""Matches a link or a picture; readers see its words."""
GAP = re.compile(r"\{([^{}]*)\}")
"""Matches a value that a template leaves open."""
EXAMPLES = {
    r"%\}?['\"]?$|share|percent": "25%",
    r"\bid\b|run_id|RUN": "20261127-120000-ab12",
    r"strerror|reason|trouble|error|failure|\bwhy\b": "Permission denied",
    r"\bwhere\b|line_of|line\.brief|place": "train.py:34",
    r"named_ranks|\bwho\b|subject|each\.name": "rank 2",
    r"host|machine": "node1",
    r"world_size": "8",
    r"pid\b|process|pids": "4711",
    r"\bname|script|source|\.name": "mnist",
    r"path|folder|file|log\b": "/home/ada/runs",
    r"rank\b": "2",
    r"_ms\b|\bms\(": "12.5",
    r"seconds\(": "20 s",
    r"_s\b|seconds|DEADLINE|LONGEST": "20",
    r"duration": "20 s",
    r"\bgain\b|times\(": "1.3",
    r"GIB|MIB|bytes|size": "16",
    r"counted\(": "8 steps",
    r"count|len\(|many|number|steps|step|left|first|last|cores|ranks": "8",
    r"\bverb\b|\bhave\b": "has",
    r"\bdoes\b|\bdo\b": "does",
}
"""Examples of values, by a pattern for the expression that a text has in their place; the first match counts."""
FOLD = re.compile(r"\|(?!\s*\|)")
"""Matches a mark in headlines at which narrow screens cut them."""


def sentences(text: str) -> list[str]:
    """Split a text after full stops, and leave out parts that are too short to be sentences."""
    text = LINK.sub(r"\1", text)
    parts = [] if CODE.search(text) else re.split(r"(?<=[.!?])\s+", text.strip())
    return [part for part in parts if sum(bool(WORD.search(word)) for word in part.split()) >= SHORTEST_WORDS]


def of_docs() -> Iterator[tuple[str, str]]:
    """Yield (page, sentence) for each sentence of the docs."""
    for page in PAGES:
        for paragraph in prose(page):
            yield from ((page.relative_to(ROOT).as_posix(), each) for each in sentences(paragraph))


def of_help() -> Iterator[tuple[str, str]]:
    """Yield (command, sentence) for each sentence of the commands' help."""
    shown = {name: command for name, command in command_line.commands.items() if not command.hidden}
    for name, command in sorted(shown.items()):
        for text in [command.help, *(getattr(option, "help", None) for option in command.params)]:
            for paragraph in (text or "").split("\n\n"):
                if "\b" not in paragraph:  # Otherwise the paragraph is a table.
                    yield from ((f"ddpmon {name} --help", each) for each in sentences(" ".join(paragraph.split())))


def example(expression: str) -> str:
    """Return an example value for an expression in a text."""
    return next((value for pattern, value in EXAMPLES.items() if re.search(pattern, expression)), "…")


def is_whole(text: str) -> bool:
    """Return whether a text can stand alone; other texts are joined to one, or consist of values."""
    words = sum(bool(WORD.search(word)) for word in text.split())
    return text[:1] not in set(",;:.( |…") and text.count("…") < 2 and words > SHORTEST_WORDS


def of_code() -> Iterator[tuple[str, str]]:
    """Yield (module, sentence) for each sentence of the texts in the code."""
    for package in (*READ_BY_PEOPLE, "analysis", "attach", "source"):
        for path in sorted((ROOT / "ddpmon" / package).rglob("*.py")):
            filled = (GAP.sub(lambda gap: example(gap[1]), text) for text in texts(path.read_text(), example))
            for text in filter(is_whole, filled):
                yield from ((path.relative_to(ROOT).as_posix(), FOLD.sub("", each)) for each in sentences(text))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--count", type=int, default=40, help="how many sentences to draw")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the draw")
    parser.add_argument("--only", default="", metavar="REGEX", help="sources whose names match")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    pools = [
        sorted({(source, text) for source, text in pool if re.search(arguments.only, source)})
        for pool in (of_docs(), of_help(), of_code())
    ]
    for pool in pools:
        chance.shuffle(pool)
    for number in range(1, arguments.count + 1):
        pools = [pool for pool in pools if pool]
        if not pools:
            sys.exit("there are no more sentences")
        source, text = pools[number % len(pools)].pop()
        print(f"{number:3}  {source}\n     {text}")


if __name__ == "__main__":
    main()
