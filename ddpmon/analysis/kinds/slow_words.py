"""Sentences about slowdowns: who is slow, by how much, in which rhythm, since when, and what fixing it gains."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Words
from ddpmon.analysis.kinds.slow import Detection, Slow
from ddpmon.analysis.steps.even_work import Work
from ddpmon.analysis.words import WIDTH, fitting, fitting_parts, named_ranks

LOOK_AT = {
    "data": "the DataLoader: files, disk, workers, cores for them",
    "forward": "the forward: sizes of inputs, the device and its clocks, cores",
    "backward": "the backward: sizes of inputs, the device and its clocks, cores",
    "optimizer": "the optimizer's step: hooks, schedulers, cores",
    "other": "the loop besides training: logging, checkpoints, evaluation",
    "transfer": "the network: what else uses it, and the sizes of what is reduced",
}
"""Where the time of a phase goes."""
ADVERBS = {"irregular": " irregularly", "steps": " regularly", "seconds": " regularly"}
"""Beside "slow", by pattern."""
NEARLY_ALL = 0.95
"""Share of an excess up to which the rest of it is mentioned."""
SHORT_S = 10.0
"""Seconds that are written with tenths, as far as they are fewer."""


def words(detection: Detection) -> Words:
    """Return the sentence about a slowdown, and what to do."""
    facts, ranks = detection.facts, detection.ranks
    since, until = detection.since_step, detection.until_step
    who, are, were, get, have = _who(detection)
    slow = "slower" if _is_all(facts) else "slow"
    adverb = " in bursts" if facts.has_stretches else ADVERBS.get(facts.pattern, "")
    over = f" {facts.phase_excess_ms:+.1f} ms {detection.phase}"
    if _is_all(facts):
        over = f" {facts.increase_share:+.0%} {detection.phase}"
    elif detection.subject and facts.host_ranks:
        over = f" {'both' if facts.host_ranks == 2 else f'all {facts.host_ranks}'} ranks{over}"
    advice = caveat(_advice(detection, who), may_be_forward=facts.may_be_forward)
    if until is not None:
        lead = f"{who} {were} {slow}{adverb} from step {since:,} to {until:,}:"
        return Words(fitting(lead + over, " a step"), advice, f"{who} {were} {slow} until step {until:,}", lead)
    if facts.hidden_since is not None:
        lead = f"{who} {were} {slow}{adverb} until step {facts.hidden_since - 1:,}:"
        return Words(fitting(lead + over, "; since then too noisy to tell"), advice, lead=lead)
    if work := facts.more_work:
        lead = f"{who} {have} {work.times - 1:.0%} more {work.unit} a step:"
        return Words(fitting(f"{lead} {facts.excess_ms:+.1f} ms", _gain(facts, len(ranks))), advice, lead=lead)
    lead = f"{who} {get} slower:" if facts.pattern == "ramp" else f"{who} {are} {slow}{adverb}:"
    why = facts.why.short if facts.why and facts.why.began == "with" else ""
    changed = (1, " since the others got faster") if facts.changed == "others" else (5, "")
    gain = (2, _gain(facts, len(ranks), WIDTH - len(lead + over)))
    text = fitting_parts(lead + over, (4, _rhythm(facts)), (0, why), changed, (5, _since(facts, since)), gain)
    return Words(text, advice, lead=lead)


def caveat(advice: str, *, may_be_forward: bool) -> str:
    """Return advice with what is to be known first where the time may be forward's."""
    return f"Forward is not measured here and counts as other: it may be that. {advice}" if may_be_forward else advice


def _is_all(facts: Slow) -> bool:
    return facts.increase_share is not None


def _who(detection: Detection) -> tuple[str, str, str, str, str]:
    """Return who is slow, with "is", "was", "gets" and "has" for as many."""
    facts, ranks = detection.facts, detection.ranks
    who = detection.subject or ("all ranks" if _is_all(facts) else named_ranks(ranks, facts.world_size))
    many = ", " in detection.subject if detection.subject else len(ranks) > 1
    return (who, "are", "were", "get", "have") if many else (who, "is", "was", "gets", "has")


def _rhythm(facts: Slow) -> str:
    """Return how often steps are slow, as in: every 7 steps; in 30 of 100 steps; in 7.0 of 25 s; in 1 of 10 steps."""
    if facts.every is None:
        # Of steps that are slow at random times it is the mean.
        return f" in 1 of {1 / max(facts.share, 1e-3):.0f} steps" if facts.pattern == "irregular" else ""
    if not facts.has_stretches:
        return f" every {facts.every:,.0f} steps"
    each, every = (_length(value, facts.pattern) for value in (facts.share * facts.every, facts.every))
    return f" in {each} of {every} {'s' if facts.pattern == 'seconds' else 'steps'}"


def _length(value: float, unit: str) -> str:
    return f"{value:.1f}" if unit == "seconds" and value < SHORT_S else f"{value:,.0f}"


def _since(facts: Slow, since: int) -> str:
    """Return when it began, as exactly as that is known."""
    if facts.from_the_start:
        return " from the start"
    first, last = facts.since_interval or (since, since)
    step = f"step {first:,} to {last:,}" if first < last else f"step {since:,}"
    return f" at {step}" if facts.changed == "others" else f" since {step}"


def _gain(facts: Slow, ranks: int, room: int = WIDTH) -> str:
    """Return what fixing it gains, in at most so many characters where there are fewer words for it."""
    if facts.with_ranks and facts.gain_together is not None:
        many, count = len(facts.with_ranks) > 1, len(facts.with_ranks) + ranks
        others = f"{named_ranks(facts.with_ranks, facts.world_size)} {'are' if many else 'is'}"
        whole = f"; {facts.gain_together:.2f}x only if {others} fixed too"
        if len(whole) <= room:
            return whole
        return f"; {facts.gain_together:.2f}x if {'both' if count == 2 else f'all {count}'} are fixed"
    if _is_all(facts):
        return f"; {facts.gain:.2f}x if as before"
    if facts.alone_gain is not None:
        return f"; {facts.gain:.2f}x if {'both' if ranks == 2 else 'all'} are fixed"
    return f"; {facts.gain:.2f}x if {'even' if facts.more_work else 'fixed'}"


def _advice(detection: Detection, who: str) -> str:
    """Return what to look at."""
    facts, phase = detection.facts, detection.phase
    said = []
    if facts.hidden_since is not None:
        said.append(
            f"Since step {facts.hidden_since:,} noise is too large to tell whether {who} would be slow without."
        )
    if named := facts.named:
        whose = f"rank {detection.ranks[0]} spends {named.mine_ms:.1f} ms a step in it, its peers {named.peers_ms:.1f}"
        said.append(f"Look in {named.name}: {whose}.")
    if detection.until_step is not None:
        where = "then, and in its log" if len(detection.ranks) == 1 else "then, and in their logs"
        there = "" if _is_all(facts) else f"on the machine of {who} "
        said.append(f"It is over: look at what else ran {there}{where}.")
    elif work := facts.more_work:
        said.append(_even(facts, work, who))
    elif facts.gc_ms is not None:
        said.append(
            f"Python's garbage collector takes {facts.gc_ms:.1f} ms a step of {who}: gc.freeze() before training,"
            " gc.disable() and gc.collect() every so many steps on all ranks at once."
        )
    elif facts.every is not None and facts.has_stretches:
        said.append(
            f"It comes back every {_length(facts.every, facts.pattern)} {facts.pattern}: look at what runs on the"
            f" machine of {who} as often: other programs, backups, checkpoints, monitoring, clocks that fall when hot."
        )
    elif facts.every is not None:
        said.append(
            f"Look at what {who} does every {facts.every:,.0f} steps in {LOOK_AT[phase]}. All others wait"
            f" {facts.phase_excess_ms:.0f} ms for it: do it less often, or in a thread beside training."
        )
    elif facts.why and facts.why.began == "with":
        said += [_together(detection, who), facts.why.advice]
    else:
        said += [_together(detection, who), _where(facts, who, phase), _measured(detection)]
        said.append(facts.why.advice if facts.why else "")
    return " ".join(filter(None, said))


def _even(facts: Slow, work: Work, who: str) -> str:
    """Return how work would be even."""
    rest = f" (that is {work.share:.0%} of its excess; the rest is its own)" if work.share <= NEARLY_ALL else ""
    said = f"Give every rank equal work: {who} gets {work.mine:,.0f} {work.unit} a step, the others {work.theirs:,.0f}"
    if (even := facts.even) is None:
        return f"{said}{rest}."
    fewest, most = even.theirs
    others = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    times = f"{even.slowest_ms:.1f} ms, not {even.slowest_now_ms:.1f}"
    return f"{said}{rest}. With {even.mine:,} and {others}, as fast as each is, the slowest rank would take {times}."


def _together(detection: Detection, who: str) -> str:
    """Return what ranks have in common that are slow together."""
    facts, count = detection.facts, len(detection.ranks)
    elsewhere = "" if facts.with_ranks else ", and none elsewhere"
    if detection.subject:
        whose = f"{'Both' if count == 2 else f'All {count}'} ranks of {who} are slow together{elsewhere}"
        return f"{whose}: it is the machine, not one of them."
    if facts.alone_gain is not None:
        there = f" They are all on {facts.host}." if facts.host else ""
        fix = "both" if count == 2 else "all"
        return f"Fixing one gains {facts.alone_gain:.2f}x at most, as another is the slowest then: fix {fix}.{there}"
    if facts.host is None:
        return ""
    which = f"All {facts.host_ranks} ranks of" if facts.host_ranks > 1 else "It is the only rank on"
    are = " are slow" if facts.host_ranks > 1 else ""
    return f"{which} {facts.host}{are}, and no rank elsewhere is slow: look at that machine first."


def _where(facts: Slow, who: str, phase: str) -> str:
    """Return where to look, by phase."""
    if _is_all(facts):
        return f"No rank stands out: look at what changed then in {LOOK_AT[phase]}."
    if who == "rank 0" and phase == "other" and facts.host is None:
        script = "what a script does there on rank 0 only (printing, logging, a progress bar, metrics)"
        cost = f"costs all ranks {facts.phase_excess_ms:.1f} ms a step"
        return f"Rank 0 alone is slow between its steps: {script} {cost}. Do it less often."
    if facts.named is not None:
        return ""
    random = (
        "Its slow steps come at no regular times, as other programs make them. "
        if facts.every is None and (facts.pattern == "irregular")
        else ""
    )
    differs = "these ranks have in common" if facts.alone_gain is not None else f"differs on {who}"
    return f"{random}Look at what {differs} in {LOOK_AT[phase]}."


def _measured(detection: Detection) -> str:
    """Return what is known of the cause, and what is not."""
    facts, work = detection.facts, detection.facts.work
    if detection.subject:
        return "What was measured of it is as elsewhere." if facts.why is None else ""
    if _is_all(facts) or facts.alone_gain is not None:
        return ""
    sizes = "The sizes of batches were not measured"
    if work is not None:
        sizes = f"It has {work.mine:,.0f} {work.unit} a step, the others {work.theirs:,.0f}"
        sizes += f", which accounts for {work.share:.0%} of it" if work.times > 1 else ""
        sizes = "Its batches are as large as the others'" if work.is_alike else sizes
    return f"{sizes}; why it is slow was not measured."
