"""Detection of ranks that wait for each other forever, in different collectives or in one collective with different
tensors.

The number of issued collectives does not always reveal such ranks. A rank that has left the loop and waits in a barrier
has issued as many collectives as the ranks that still train. Therefore calls, lines of the script, and the loops and
branches around these lines are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ddpmon.analysis.words import named_ranks
from ddpmon.messages import Collective, Scope, Stack

GRADIENTS, BUFFERS = "DDP's gradient all-reduce", "DDP's buffer broadcast"
"""Names of the collectives in which DDP's backward and forward wait."""
_IN_FORWARD = {BUFFERS, "DDP's broadcast of its new buckets"}
_CALLS = {GRADIENTS: "DDP's backward", **dict.fromkeys(_IN_FORWARD, "DDP's forward")}
"""The call of the script in which a rank waits for each of these collectives."""
_SAME_TENSORS = ("all_reduce", "broadcast", "all_gather")
"""Parts of the names of operations that need the same shapes on all ranks."""

_MESSAGES = ("send", "recv")
"""Beginnings of the names of point-to-point operations: two ranks that exchange a message are in different calls."""

How: TypeAlias = Literal["left the loop", "skipped a backward", "alone", "left out", "other tensors", "other calls"]


@dataclass(frozen=True)
class Waiters:
    """Ranks that wait in the same collective, at the same line."""

    ranks: list[int]
    stack: Stack
    """Stack of the first of these ranks."""
    collective: Collective

    @property
    def waits_in(self) -> str:
        """Return the name of the collective."""
        return self.collective.name

    @property
    def line(self) -> str:
        return line_of(self.stack)

    @property
    def tensors(self) -> tuple[str, str]:
        """Return the inputs and outputs of the collective if ranks must agree on them, else two empty strings."""
        one = self.collective
        return (one.inputs, one.outputs) if any(part in one.operation for part in _SAME_TENSORS) else ("", "")

    @property
    def waits_at(self) -> tuple[object, ...]:
        """Return a key that is equal for ranks that wait in the same call at the same line."""
        one = self.collective
        return one.name, one.operation, one.group, self.tensors, self.line


@dataclass(frozen=True)
class Disagreement:
    """Two groups of ranks (sides) that wait for each other forever, because they are in different calls."""

    odd: Waiters
    """The ranks that the user should look at first."""
    rest: Waiters
    how: How
    scope: Scope | None = None
    """The loop or branch that only one of the two sides is in."""
    branch: Scope | None = None
    """If ranks have left a loop, the branch in which these ranks are."""


def line_of(stack: Stack) -> str:
    """Return the most informative Python line of a stack: the innermost one in the script's own code."""
    if not stack.frames:
        return "no Python code"
    return stack.frames[stack.own if stack.own is not None else 0]


def place_of(stack: Stack) -> str:
    """Return the script's line and the library line that it has called: file_baton.py:50, called in train.py:9."""
    if not stack.frames or not stack.own:
        return line_of(stack)
    return f"{stack.frames[0].partition(' ')[0].rpartition('/')[2]}, called in {line_of(stack)}"


def disagreement(stacks: Mapping[int, Stack]) -> Disagreement | None:
    """Return the ranks that wait in another collective than the others; None if there are no such ranks, or no
    certainty.
    """
    groups: dict[tuple[object, ...], Waiters] = {}
    for rank, stack in sorted(stacks.items()):
        if stack.collective is None or not (stack.blocked or stack.collective.is_open):
            return None
        side = Waiters([], stack, stack.collective)
        groups.setdefault(side.waits_at, side).ranks.append(rank)
    if len(groups) < 2:
        return None
    # The largest side comes first. If two are equally large, the side that still trains comes first.
    sides = sorted(groups.values(), key=lambda one: (-len(one.ranks), one.waits_in not in _CALLS, -one.ranks[0]))
    pairs = ((other, rest) for place, rest in enumerate(sides) for other in reversed(sides[place + 1 :]))
    return next((_of(other, rest) for other, rest in pairs if _exclude_each_other(other, rest)), None)


def _exclude_each_other(first: Waiters, second: Waiters) -> bool:
    """Return whether two sides wait in different calls with the same sequence number in their process group.

    A rank that waits in an earlier collective than another rank may wait for a third rank, or for the network.
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
    """Return whether inputs and outputs are all known and differ. A gather may have inputs of several sizes."""
    return all(mine and theirs and mine != theirs for mine, theirs in zip(tensors, others, strict=True))


def _of(odd: Waiters, rest: Waiters) -> Disagreement:
    """Return the disagreement of two sides; `odd` is the side that the user should look at first."""
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
    """Return the outermost loop or branch that contains only the inner stack; None if none is known.

    The loop or branch is in the function in which the two stacks diverge. A loop that the rank outside may still reach
    does not count.

    Args:
        inner: Stack of a rank inside the loop or branch.
        outer: Stack of a rank outside of it.

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
    """Return file, line and function of a frame such as "train.py:12 main"; line 0 if it has none."""
    place, _, function = frame.partition(" ")
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdecimal() else 0, function


def sentence(one: Disagreement, world_size: int) -> tuple[str, str]:
    """Return the sentence's beginning with ranks and call, and the line: "rank 0 calls all_reduce alone:", "train.py:12
    main".
    """
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
    """Return advice: where the other ranks wait, and how to make all ranks issue the same collectives."""
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
