"""DistributedSamplers of the ranks do not share the data out: ranks read the same samples, or some are read by none.

Only torch's own DistributedSampler is judged, and only where every rank trains one DDP model over the whole world: else
several ranks may be meant to read the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.words import fitting, named_ranks
from ddpmon.messages import DDP, Finding, Loader
from ddpmon.messages.setup import DISTRIBUTED_SAMPLER, SEED_VARIES


def detect(moment: Moment) -> Iterator[Finding]:
    """Return one finding: the first way in which the samplers disagree, where each rank trains from one loader."""
    evidence = moment.evidence
    setups, world_size = evidence.setups, evidence.world_size
    models = [[model.ranks for model in setup.models] for setup in setups.values()]
    if len(setups) < world_size or world_size < 2 or evidence.parallelism != DDP:
        return
    if any(not ranks or set(ranks) != {world_size} for ranks in models):
        return
    loaders = {
        rank: [loader for loader in setup.loaders if loader.sampler == DISTRIBUTED_SAMPLER]
        for rank, setup in sorted(setups.items())
    }
    if any(len(of_rank) != 1 for of_rank in loaders.values()):
        return
    samplers = {rank: of_rank[0] for rank, of_rank in loaders.items()}
    words = _words(samplers, world_size)
    if words is not None:
        names = ("replicas", "rank", "seed", "shuffle")
        seen = {name: [getattr(one, name) for one in samplers.values()] for name in names}
        yield KIND.finding("warn", words, list(samplers), evidence=seen)


def _words(samplers: Mapping[int, Loader], world_size: int) -> Words | None:
    """Return in what samplers, by rank, disagree; None: they share the data out."""
    parts = Counter((one.replicas, one.rank) for one in samplers.values())
    (replicas, place), most = parts.most_common(1)[0]
    if most > 1:
        same = [rank for rank, one in samplers.items() if (one.replicas, one.rank) == (replicas, place)]
        lead = f"{named_ranks(same, world_size)} read the same part of the data:"
        return Words(
            fitting(f"{lead} rank {place} of {replicas}"),
            f"DistributedSampler(num_replicas={replicas}, rank={place}) is the same on them. Leave both arguments out,"
            " or give dist.get_world_size() and dist.get_rank().",
            lead=lead,
        )
    if replicas > world_size and len({one.replicas for one in samplers.values()}) == 1:
        lead = f"{1 - world_size / replicas:.0%} of the samples are read by no rank:"
        return Words(
            fitting(f"{lead} num_replicas={replicas} for {world_size} ranks"),
            "Leave num_replicas and rank of DistributedSampler out, or give dist.get_world_size() and dist.get_rank().",
            lead=lead,
        )
    seeds = {one.seed for one in samplers.values()}
    if len(seeds) > 1 and SEED_VARIES not in seeds and all(one.shuffle for one in samplers.values()):
        lead = "ranks shuffle by different seeds:"
        return Words(
            fitting(f"{lead} samples are read twice, or by no rank"),
            "Give DistributedSampler the same seed on all ranks: each shuffles the whole dataset by itself and takes"
            " its part of that order, so that the parts only fit together where the order is the same.",
            lead=lead,
        )
    return None


KIND = Kind("samplers_disagree", gone="samplers share the data out among the ranks", detect=detect)
