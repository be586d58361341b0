"""Find ranks that wait for each other in different collectives, or in one with different tensors: nobody ever comes.

Numbers of collectives alone do not show it: a rank that left the loop and waits in its barrier has issued as many as
those that train on. The calls, the lines of the script and the loops and branches around these show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ddpmon.analysis.words import named_ranks
from ddpmon.messages import Collective, Scope, Stack

GRADIENTS, BUFFERS = "DDP's gradient all-reduce", "DDP's buffer broadcast"
"""Names of what DDP's backward and forward wait in."""
_IN_FORWARD = {BUFFERS, "DDP's broadcast of its new buckets"}
_CALLS = {GRADIENTS: "DDP's backward", **dict.fromkeys(_IN_FORWARD, "DDP's forward")}
"""The call of the script in which these wait."""
_SAME_TENSORS = ("all_reduce", "broadcast", "all_gather")
"""Parts of names of operations that need the same shapes on all ranks."""

_MESSAGES = ("send", "recv")
"""Beginnings of the names of messages from rank to rank: two ranks that exchange one are in different calls."""

How: TypeAlias = Literal["left the loop", "skipped a backward", "alone", "left out", "other tensors", "other calls"]


@dataclass(frozen=True)
class Waiters:
    """Ranks that wait in the same collective, at the same line."""

    ranks: list[int]
    stack: Stack
    """Stack of the first of them."""
    collective: Collective

    @property
    def waits_in(self) -> str:
        """The collective, as people call it."""
        return self.collective.name

    @property
    def line(self) -> str:
        return line_of(self.stack)

    @property
    def tensors(self) -> tuple[str, str]:
        """Its inputs and outputs, where ranks have to agree on them."""
        one = self.collective
        return (one.inputs, one.outputs) if any(part in one.operation for part in _SAME_TENSORS) else ("", "")

    @property
    def waits_at(self) -> tuple[object, ...]:
        """Ranks of which it is equal are of the same side."""
        one = self.collective
        return one.name, one.operation, one.group, self.tensors, self.line


@dataclass(frozen=True)
class Disagreement:
    """Ranks that wait for each other in vain."""

    odd: Waiters
    """Ranks to look at."""
    rest: Waiters
    how: How
    scope: Scope | None = None
    """The loop or the branch that tells them apart."""
    branch: Scope | None = None
    """The branch that those who left a loop are in."""


def line_of(stack: Stack) -> str:
    """The line of Python that says most: the innermost one of the script's own."""
    if not stack.frames:
        return "no Python code"
    return stack.frames[stack.own if stack.own is not None else 0]


def place_of(stack: Stack) -> str:
    """Return the same line, after that of the library which it has called: file_baton.py:50, called in train.py:9."""
    if not stack.frames or not stack.own:
        return line_of(stack)
    return f"{stack.frames[0].partition(' ')[0].rpartition('/')[2]}, called in {line_of(stack)}"


def disagreement(stacks: Mapping[int, Stack]) -> Disagreement | None:
    """Return which ranks wait in another collective than the rest; None where that is not the reason, or unsure."""
    groups: dict[tuple[object, ...], Waiters] = {}
    for rank, stack in sorted(stacks.items()):
        if stack.collective is None or not (stack.blocked or stack.collective.is_open):
            return None
        side = Waiters([], stack, stack.collective)
        groups.setdefault(side.waits_at, side).ranks.append(rank)
    if len(groups) < 2:
        return None
    # The most first, and of as many those that train: the others may be further than those that hold each other up.
    sides = sorted(groups.values(), key=lambda one: (-len(one.ranks), one.waits_in not in _CALLS, -one.ranks[0]))
    pairs = ((other, rest) for place, rest in enumerate(sides) for other in reversed(sides[place + 1 :]))
    return next((_of(other, rest) for other, rest in pairs if _exclude_each_other(other, rest)), None)


def _exclude_each_other(first: Waiters, second: Waiters) -> bool:
    """Return whether two sides are in different calls at the same place of their process group's sequence.

    A rank that waits in an earlier collective than another may wait for a third one, or for the network.
    """
    a, b = first.collective, second.collective
    if any(name.startswith(_MESSAGES) for one in (a, b) for name in (one.name, one.operation)):
        return False
    if a.group and b.group and a.group != b.group:
        return a.group in second.stack.issued and b.group in first.stack.issued
    same_call = a.operation == b.operation if a.operation and b.operation else a.name == b.name
    if same_call and not _differ(first.tensors, second.tensors):
        return False
    if a.sequence is not None and b.sequence is not None:
        return a.sequence == b.sequence
    return first.stack.issued == second.stack.issued


def _differ(tensors: tuple[str, str], others: tuple[str, str]) -> bool:
    """Return whether both inputs and outputs are known and differ: some gather inputs of several sizes."""
    return all(mine and theirs and mine != theirs for mine, theirs in zip(tensors, others, strict=True))


def _of(odd: Waiters, rest: Waiters) -> Disagreement:
    """Return how two sides differ, the one to look at first."""
    if (odd.waits_in, odd.collective.operation) == (rest.waits_in, rest.collective.operation):
        return Disagreement(odd, rest, "other tensors")
    around = _only_around(odd.stack, rest.stack), _only_around(rest.stack, odd.stack)
    for (branch, loop), leaver, stayer in ((around, odd, rest), (around[::-1], rest, odd)):
        if loop is not None and loop.is_loop:
            if branch is not None and leaver.waits_in in _CALLS:
                return Disagreement(leaver, stayer, "alone", branch)
            return Disagreement(leaver, stayer, "left the loop", loop, branch)
    if odd.waits_in == GRADIENTS and len(odd.ranks) == len(rest.ranks):
        odd, rest, around = rest, odd, around[::-1]
    alone, left_out = around
    if alone is not None:
        return Disagreement(odd, rest, "alone", alone)
    if odd.waits_in in _IN_FORWARD and rest.waits_in == GRADIENTS:
        return Disagreement(odd, rest, "skipped a backward", left_out)
    if left_out is None:
        return Disagreement(odd, rest, "other calls")
    if len(odd.ranks) == len(rest.ranks) and rest.waits_in != GRADIENTS:
        return Disagreement(rest, odd, "alone", left_out)
    return Disagreement(odd, rest, "left out", left_out)


def _only_around(inner: Stack, outer: Stack) -> Scope | None:
    """Return the outermost loop or branch that the first rank is in and the second one is not; None if none is known.

    It is one of the function in which the two stacks part. A rank that stands before a loop may not have come to it.
    """
    frames = list(zip(reversed(inner.frames), reversed(outer.frames), strict=False))
    depth = next((depth for depth, (one, other) in enumerate(frames) if one != other), None)
    if depth is None:
        return None
    (file, line, function), (other_file, other_line, other_function) = map(_parts, frames[depth])
    if (file, function) != (other_file, other_function) or not line or not other_line:
        return None
    frame = len(inner.frames) - 1 - depth
    around = [scope for scope in inner.scopes if scope.frame == frame and not scope.first <= other_line <= scope.last]
    scope = min(around, key=lambda scope: (scope.first, -scope.last), default=None)
    return None if scope is not None and scope.is_loop and other_line < scope.first else scope


def _parts(frame: str) -> tuple[str, int, str]:
    """File, line and function of a frame: "train.py:12 main"; line 0: it has none."""
    place, _, function = frame.partition(" ")
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdecimal() else 0, function


def sentence(one: Disagreement, world_size: int) -> tuple[str, str]:
    """Return the beginning that says who and what, and where: rank 0 calls all_reduce alone:, train.py:12 main."""
    who, others = named_ranks(one.odd.ranks, world_size), named_ranks(one.rest.ranks, world_size)
    alone, line = len(one.odd.ranks) == 1, one.odd.line
    nobody_else = alone and len(one.rest.ranks) == world_size - 1
    call = _CALLS.get(one.odd.waits_in, one.odd.waits_in)
    if one.how == "left the loop":
        return f"{who} left the loop:", f"{one.odd.waits_in} in {line}"
    if one.how == "skipped a backward":
        return f"{who} called DDP's forward again without a backward:", line
    if one.how == "alone":
        return f"{who} call{'s' * alone} {call} {'alone' if nobody_else else f'without {others}'}:", line
    if one.how == "left out":
        skipped = _CALLS.get(one.rest.waits_in, one.rest.waits_in)
        return f"{who} skipped {skipped}:", f"{one.odd.waits_in} in {line}"
    if one.how == "other tensors":
        (mine, _), (theirs, _) = one.odd.tensors, one.rest.tensors
        return f"{who} call{'s' * alone} {one.odd.waits_in} with {mine}, {others} with {theirs}:", line
    lead = f"{who} wait{'s' * alone} in {one.odd.waits_in}, {others} in {one.rest.waits_in}:"
    return lead, f"{line}, {one.rest.line}"


def advice(one: Disagreement, world_size: int) -> str:
    """Return where the others are, and what makes all ranks agree."""
    others, line = named_ranks(one.rest.ranks, world_size), one.rest.line
    there = f"{others[0].upper()}{others[1:]} wait{_s(one.rest)} in {one.rest.waits_in}, {line}"
    branch = f"the `if` of line {one.scope.line}" if one.scope else ""
    if one.how == "left the loop":
        loop = f", in the loop of line {one.scope.line}" if one.scope else ""
        own_branch = f" Do all ranks take the `if` of line {one.branch.line}?" if one.branch else ""
        return (
            f"{there}{loop}. All ranks must run the same number of steps. Give each rank the same number of batches"
            " (DistributedSampler, drop_last=True), or train inside `with Join([model]):`. Let all ranks stop early"
            f" together (all_reduce a flag), and let no rank skip a step.{own_branch}"
        )
    if one.how == "skipped a backward":
        return (
            f"{there}. If one rank skips a step (NaN loss, empty batch), all ranks must skip it: all_reduce a flag, or"
            " call backward on a loss of 0. For evaluation, call model.module, because the forward of the "
            "DDP model waits for all ranks."
        )
    if one.how == "alone":
        also = "Either all ranks or no rank must call this collective."
        if one.odd.waits_in in _CALLS:
            also = "Call model.module there, which does not wait for other ranks, or let all ranks call the DDP model."
        return f"{there}, outside of {branch}. {also}"
    if one.how == "left out":
        return f"{there}, in {branch}. All ranks must take the same branch at this line: all_reduce a flag."
    if one.how == "other tensors":
        return "Pad the tensors to one size, drop the last batch if it is smaller (drop_last=True), or gather objects."
    return f"{there}. These ranks wait for ever, because all ranks must call the same collectives in the same order."


def _s(side: Waiters) -> str:
    return "s" if len(side.ranks) == 1 else ""
