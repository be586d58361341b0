"""Reads command lines of Python: the interpreter's flags, and the script that follows them. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence

_ENDS_OPTIONS = frozenset("cm")
"""Letters of the flags -c and -m, which end the interpreter's options because code or a module follows."""
_TAKES_VALUE = frozenset("WX")
_LONG_WITH_VALUE = "--check-hash-based-pycs"


def split(words: Sequence[str]) -> tuple[set[str], list[str]]:
    """Return the letters of the interpreter's flags, and the words that follow the flags.

    These words begin with the script, with "-m" or with "-c". words: The whole command line, with the interpreter.
    """
    flags: set[str] = set()
    place = 1
    while place < len(words) and words[place].startswith("-") and words[place] not in {"-", "--"}:
        word = words[place]
        place += 2 if word == _LONG_WITH_VALUE else 1
        for at, letter in enumerate("" if word.startswith("--") else word[1:], start=2):
            if letter in _ENDS_OPTIONS:
                return flags, [f"-{letter}", *([word[at:]] if word[at:] else []), *words[place:]]
            if letter in _TAKES_VALUE:
                place += at == len(word)
                break
            flags.add(letter)
    rest = list(words[place:])
    return flags, rest[1:] if rest[:1] == ["--"] else rest
