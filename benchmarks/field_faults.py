"""The faults that `field.py` gives every tool, and the patterns of a right verdict, the same for all tools."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

NPROC = 4
BEGIN = 40
"""The first step with a fault."""
PHASE_WORDS = {
    "data": r"\bdata\b|input|loader",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimi[sz]er",
}
ROTATES = r"another rank|rotat|different rank|varies|take turns"


@dataclass(frozen=True)
class Scenario:
    """A fault: the arguments for `diagnosis_steps.py`, and what a right verdict must say."""

    name: str
    arguments: list[str]
    ranks: tuple[int, ...] = ()
    """Ranks that a verdict must name."""
    words: str = ""
    """Pattern that a right verdict must match in addition."""

    def is_right(self, said: str) -> bool:
        """Return whether sentences name these ranks, and no other one first, and say what is wrong."""
        if self.name == "clean":
            return not re.search(r"straggler|\bslow\b|\blate\b|imbalance", said, re.IGNORECASE)
        named = re.findall(r"\b(?:R|rank |ranks )(\d+)", said, re.IGNORECASE)
        named += re.findall(r"\branks \d+ and (\d+)", said, re.IGNORECASE)
        if self.ranks and not (set(map(int, named)) >= set(self.ranks) and int(named[0]) in self.ranks):
            return False
        return bool(re.search(self.words, said, re.IGNORECASE))


def drawn(seed: int) -> list[Scenario]:
    """Return one scenario of each kind, with random sizes, ranks and rhythms."""
    chance = random.Random(seed)

    def scenario(name: str, kind: str, ranks: tuple[int, ...], words: str, *more: str) -> Scenario:
        who = ["--ranks", ",".join(map(str, ranks))] if ranks else []
        size = () if "--size" in more else ("--size", str(chance.choice((0.25, 0.35, 0.5))))
        named = ranks if kind != "moving" else ()
        return Scenario(name, ["--kind", kind, "--begin", str(BEGIN), *who, *size, *more], named, words)

    def rank() -> tuple[int, ...]:
        return (chance.randrange(NPROC),)

    every = chance.randint(5, 10)
    several = tuple(sorted(chance.sample(range(NPROC), 2)))
    return [
        Scenario("clean", ["--kind", "none"]),
        *(
            scenario(f"slow {phase}", "persistent", rank(), words, "--phase", phase)
            for phase, words in PHASE_WORDS.items()
        ),
        scenario("two slow ranks", "persistent", several, "forward", "--phase", "forward"),
        scenario("another rank each step", "moving", (), ROTATES, "--size", "0.5"),
        scenario(
            f"every {every}th step", "periodic", rank(), rf"every {every}\b", "--every", str(every), "--size", "1.0"
        ),
        scenario("uneven batches", "uneven", rank(), r"batch|samples|uneven"),
        scenario("NaN on one rank", "nan", rank(), r"\bnan\b|not finite|non-finite"),
        scenario("hang", "hang", rank(), r"does not reach|hang|hung|stuck|stall"),
        scenario("crash", "dead", rank(), r"killed|SIGKILL|signal|crash|died|failed"),
    ]
