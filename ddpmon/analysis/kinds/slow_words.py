"""Sentences about slowdowns: who is slow, by how much, in which rhythm, since when, and what fixing it gains."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Words
from ddpmon.analysis.kinds.slow import SlowRanks
from ddpmon.analysis.kinds.step_time import GAPS
from ddpmon.analysis.processes.data_readers import loading_words
from ddpmon.analysis.processes.slow_lines import line_words
from ddpmon.analysis.steps.even_work import MORE_WORK, Work
from ddpmon.analysis.steps.step_sums import StepSums
from ddpmon.analysis.words import VERDICT_WIDTH, fit_parts, fitting_parts, format_count, named_ranks

LOOK_AT = {
    "data": "the DataLoader: files, disk, workers and their cores",
    "forward": "the forward pass: input sizes, the device and its clocks, cores",
    "backward": "the backward pass: input sizes, the device and its clocks, cores",
    "optimizer": "the optimizer's step: hooks, schedulers, cores",
    "other": "the rest of the training loop: logging, checkpoints, evaluation",
    "transfer": "the network: other traffic, and the sizes of the reduced tensors",
}
"""Places in which the time of each phase is spent."""
ADVERBS = {"irregular": " irregularly", "steps": " regularly", "seconds": " regularly"}
"""Adverbs that follow "slow", by pattern."""
MANIFOLD = 10.0
"""Relative increase of a phase's time from which on ms are shown, because a percentage would be hard to read."""
NEARLY_ALL_SHARE = 0.95
"""Share of an excess above which the remaining part is not mentioned."""
SHORT_S = 10.0
"""Time in seconds below which tenths of a second are shown."""
SHORT_TURN = 4
"""Minimum length in steps of turns that the sentence mentions: two ranks that are slow at random have turns of two."""


def slowdown_words(slow: SlowRanks) -> Words:
    """Return the sentence about a slowdown, and what to do."""
    one, who, subject = slow.slowdown, _who(slow), slow.subject
    are, were, get, have = ("are", "were", "get", "have")
    if not (", " in subject if subject else len(one.ranks) > 1):
        are, were, get, have = ("is", "was", "gets", "has")
    adverb = " in bursts" if one.stretches else ADVERBS.get(one.pattern, "")
    is_slow = f"{'slower' if slow.is_all else 'slow'}{adverb}"
    over = f" {slow.excess_ms:+.1f} ms {one.phase}"
    if slow.is_all and one.increase < MANIFOLD:
        over = f" {one.increase:+.0%} {one.phase}"
    elif subject and slow.host_ranks:
        over = f" {'both' if slow.host_ranks == 2 else f'all {slow.host_ranks}'} ranks{over}"
    advice = _with_caveat(_advice(slow, who), slow)
    if one.until is not None:
        lead = f"{who} {were} {is_slow} from step {one.since:,} to {one.until:,}:"
        brief = f"{who} {were} {'slower' if slow.is_all else 'slow'} until step {one.until:,}"
        return Words(fit_parts(lead + over, " a step"), advice, brief, lead)
    if one.hidden_since is not None:
        lead = f"{who} {were} {is_slow} until step {one.hidden_since - 1:,}:"
        return Words(fit_parts(lead + over, "; since then too noisy to tell"), advice, lead=lead)
    if work := slow.more_work:
        lead = f"{who} {have} {work.times - 1:.0%} more {work.unit} a step:"
        return Words(fit_parts(f"{lead} {one.excess_ms:+.1f} ms", gain_words(slow)), advice, lead=lead)
    lead = f"{who} {get} slower:" if one.pattern == "ramp" else f"{who} {are} {is_slow}:"
    why = slow.process_cause.short if slow.process_cause and slow.process_cause.began == "with" else ""
    line = f" in {slow.slow_line.brief}" if slow.slow_line else ""
    changed = (1, " since the others got faster") if one.changed == "others" else (5, "")
    gain = (2, gain_words(slow, VERDICT_WIDTH - len(lead + over)))
    return Words(
        fitting_parts(lead + over, (3, line), (4, _rhythm(slow)), (0, why), changed, (5, _since(slow)), gain),
        advice,
        lead=lead,
    )


def _with_caveat(advice: str, slow: SlowRanks) -> str:
    """Return advice, preceded by a caveat if the time may be that of forward."""
    unmeasured = "ddpmon does not measure forward here and counts it as other, so the cause may be forward. "
    return f"{unmeasured if slow.may_be_forward else ''}{advice}"


def _who(slow: SlowRanks) -> str:
    is_all = slow.is_all and slow.world_size != 1
    return slow.subject or ("all ranks" if is_all else named_ranks(slow.slowdown.ranks, slow.world_size))


def _rhythm(slow: SlowRanks) -> str:
    """Return how often steps are slow, as in: every 7 steps; in 30 of 100 steps; in 7.0 of 25 s; in 1 of 10 steps."""
    one = slow.slowdown
    if one.every is None:
        # Give the mean distance, because slow steps occur at random.
        return f" in 1 of {1 / max(one.share, 1e-3):.0f} steps" if one.pattern == "irregular" else ""
    if not one.stretches:
        return f" every {one.every:,.0f} steps"
    each, every = (_length(value, one.pattern) for value in (one.share * one.every, one.every))
    return f" in {each} of {every} {'s' if one.pattern == 'seconds' else 'steps'}"


def _length(value: float, unit: str) -> str:
    return f"{value:.1f}" if unit == "seconds" and value < SHORT_S else f"{value:,.0f}"


def _since(slow: SlowRanks) -> str:
    """Return words for the first slow step, as exactly as it is known."""
    if slow.from_the_start:
        return " since the attach" if slow.moment.evidence.attached else " from the start"
    first, last = slow.slowdown.since_within
    step = f"step {first:,} to {last:,}" if first < last else f"step {slow.slowdown.since:,}"
    return f" at {step}" if slow.slowdown.changed == "others" else f" since {step}"


def gain_words(slow: SlowRanks, room: int = VERDICT_WIDTH) -> str:
    """Return words for the gain of fixing the slowdown, in at most `room` characters if a shorter wording exists."""
    ranks = len(slow.slowdown.ranks)
    if slow.with_ranks:
        many, count = len(slow.with_ranks) > 1, len(slow.with_ranks) + ranks
        others = f"{named_ranks(slow.with_ranks, slow.world_size)} {'are' if many else 'is'}"
        whole = f"; {slow.gain_together:.2f}x faster only if {others} fixed too"
        if len(whole) <= room:
            return whole
        return f"; {slow.gain_together:.2f}x faster if {'both' if count == 2 else f'all {count}'} are fixed"
    if slow.alone_gain is not None:
        whole = f"; {slow.gain:.2f}x faster if {'both' if ranks == 2 else 'all'} are fixed"
        if len(whole) <= room:
            return whole
    return f"; {slow.gain:.2f}x faster if fixed"


def _advice(slow: SlowRanks, who: str) -> str:
    """Return the advice of the finding: the places in which to look for the cause."""
    one, named, why = slow.slowdown, slow.named_phase, slow.process_cause
    said = []
    if one.hidden_since is not None:
        said.append(f"Since step {one.hidden_since:,}, noise is too large to tell whether {who} still lags.")
    if named:
        whose = (
            f"rank {one.ranks[0]} spends {named.mine_ms:.1f} ms a step there, and its peers spend {named.peers_ms:.1f}"
            " ms"
        )
        there = f"at what runs {GAPS[named.name]}" if named.name in GAPS else f"in {named.name}"
        said.append(f"Look {there}: {whose}.")
    if slow.slow_line:
        said.append(line_words(slow.slow_line, slow.excess_ms * one.share))
    if slow.loader_samples:
        said.append(loading_words(slow.loader_samples))
    if one.until is not None:
        where = "at that time, and at its log" if len(one.ranks) == 1 else "at that time, and at their logs"
        there = "" if slow.is_all else f"on the machine of {who} "
        said.append(f"The slowdown has ended. Look at what else ran {there}{where}.")
    elif work := slow.more_work:
        said.append(_even(slow, work, who))
    elif slow.gc_ms is not None:
        said.append(
            f"Python's garbage collector takes {slow.gc_ms:.1f} ms a step on {who}. Call gc.freeze() and gc.disable()"
            " before training, and gc.collect() at fixed intervals of steps, on all ranks at once."
        )
    elif one.every is not None and one.stretches:
        said.append(
            f"The slowdown returns every {_length(one.every, one.pattern)} {one.pattern}. Look for work at that"
            f" interval on the machine of {who}: other programs, backups, checkpoints, monitoring, or clocks that drop"
            " with heat."
        )
    elif one.every is not None:
        said.append(
            f"Look at what {who} does every {one.every:,.0f} steps in {LOOK_AT[one.phase]}. All other ranks then wait"
            f" {slow.excess_ms:.0f} ms. Do that work less often, or in a separate thread."
        )
    elif why and why.began == "with":
        said += [_together(slow, who), why.advice]
    elif slow.slow_line:
        said += [_together(slow, who), why.advice if why else ""]
    else:
        said += [_together(slow, who), _where(slow, who), _measured(slow), why.advice if why else ""]
    return " ".join(filter(None, said))


def _even(slow: SlowRanks, work: Work, who: str) -> str:
    """Return the advice to distribute work evenly, with the numbers of samples or tokens."""
    rest = f" (this explains {work.share:.0%} of the delay)" if work.share <= NEARLY_ALL_SHARE else ""
    said = f"Give every rank equal work: {who} gets {work.mine:,.0f} {work.unit} a step, the others {work.theirs:,.0f}"
    if (even := slow.even_work) is None:
        return f"{said}{rest}."
    fewest, most = even.theirs
    others = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    times = f"{even.slowest_ms:.1f} ms, not {even.slowest_now_ms:.1f}"
    return (
        f"{said}{rest}. With {even.mine:,} and {others}, at the present speed of each rank, the slowest rank would take"
        f" {times}."
    )


def _together(slow: SlowRanks, who: str) -> str:
    """Return words about what the ranks that are slow together have in common; "" if they have nothing in common."""
    count, host, there = len(slow.slowdown.ranks), slow.host, slow.host_ranks
    if slow.subject:
        whose = f"{'Both' if count == 2 else f'All {count}'} ranks of {who} are slow together"
        return f"{whose}{'' if slow.with_ranks else ', and none elsewhere'}, so the cause is the machine."
    if slow.alone_gain is not None:
        where, fix = f" They are all on {host}." if host else "", "both" if count == 2 else "all"
        most = f"{slow.alone_gain:.2f}x faster at most"
        return f"Fixing one rank makes the run {most}, because another is then the slowest: fix {fix}.{where}"
    if host is None or slow.is_all:
        return ""
    which = f"All {there} ranks of {host} are slow" if there > 1 else f"It is the only rank on {host}"
    return f"{which}, and no rank elsewhere is slow: look at that machine first."


def _where(slow: SlowRanks, who: str) -> str:
    """Return words for the place in which to look for the cause, which depends on the phase."""
    one = slow.slowdown
    if slow.is_all:
        lead = "No rank stands out. " if slow.world_size != 1 else ""
        return f"{lead}Look for a change at that step in {LOOK_AT[one.phase]}."
    if who == "rank 0" and one.phase == "other" and slow.host is None:
        return (
            "Only rank 0 is slow between its steps. Work that the script does on rank 0 only (printing, logging, a"
            f" progress bar, metrics) costs all ranks {slow.excess_ms:.1f} ms a step. Do that work less often."
        )
    if slow.named_phase is not None:
        return ""
    random = "The slow steps come at irregular times, which points to another program. "
    differs = "these ranks have in common" if slow.alone_gain is not None else f"differs on {who}"
    return f"{random if one.pattern == 'irregular' else ''}Look at what {differs} in {LOOK_AT[one.phase]}."


def _measured(slow: SlowRanks) -> str:
    """Return sentences about the cause: what ddpmon has measured of it, and what it does not know."""
    work = slow.work
    if slow.subject:
        return (
            "In all that ddpmon measured, this machine does not differ from the others."
            if slow.process_cause is None
            else ""
        )
    if slow.is_all or slow.alone_gain is not None:
        return ""
    sizes = "ddpmon did not measure batch sizes"
    if work is not None:
        sizes = f"It has {work.mine:,.0f} {work.unit} a step, and the others have {work.theirs:,.0f}"
        sizes += f", which explains {work.share:.0%} of the delay" if work.times > 1 else ""
        sizes = "Its batches are as large as the others'" if work.is_alike else sizes
    return f"{sizes}; no measurement shows why it is slow."


def turn_steps(slow: SlowRanks) -> int | None:
    """Return the number of steps in a turn if ranks take turns; None if it is too small to mention."""
    every = slow.slowdown.every
    return round(every) if every and every >= SHORT_TURN else None


def words_of_turns(slow: SlowRanks) -> Words:
    """Return the sentence about ranks that are slow in turn, and what to do."""
    one, turn, over = slow.slowdown, turn_steps(slow), f" {slow.excess_ms:+.1f} ms {slow.slowdown.phase}"
    if one.until is not None:
        lead = f"the slow rank rotated from step {one.since:,} to {one.until:,}:"
        return Words(lead + over, None, f"the slow rank rotated until step {one.until:,}", lead)
    lead = "the slow rank rotates every step:"
    if one.work:
        lead = f"the slow rank rotates with uneven {one.work}:"
    elif turn:
        lead = f"the slow rank rotates: each is slow for about {turn:,} steps:"
    balance = f", load balance {StepSums.from_world(slow.part).efficiency.load_balance_moving:.0%}"
    text = fitting_parts(lead + over, (1, f"; {one.gain:.2f}x faster if fixed"), (2, balance))
    return Words(text, _with_caveat(_advice_about_turns(slow, turn), slow), lead=lead)


def _advice_about_turns(slow: SlowRanks, turn: int | None) -> str:
    one, who = slow.slowdown, named_ranks(slow.slowdown.ranks, slow.world_size)
    counts = slow.part.tokens if one.work == "tokens" else slow.part.samples
    span = f"go from {counts.min():,.0f} to {counts.max():,.0f}"
    if one.work:
        return (
            f"Give all ranks equal {one.work} in each step: the numbers {span} around {counts.mean():,.0f}. Sort or"
            " bucket samples by length, or distribute batches by their total length."
        )
    sizes = "ddpmon did not measure batch sizes"
    if counts.any():
        is_alike = counts.max() <= (1 + MORE_WORK.enter) * counts.min()
        sizes = f"batch sizes {'are alike' if is_alike else f'{span}, but do not explain the delay'}"
    if turn:
        return (
            f"Look for a cause that moves from one rank to the next every {format_count(turn, 'step')} on {who}: other"
            " programs on their cores or GPUs, clocks that rise and fall, busy experts or shards, a shared disk or"
            f" network; {sizes}. No rank is slow all the time."
        )
    return (
        f"Look for a cause that moves from rank to rank in {one.phase} on {who}: batches of uneven length, a shared"
        f" disk, garbage collection; {sizes}, and no measurement shows the cause."
    )
