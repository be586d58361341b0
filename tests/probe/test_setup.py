"""Ranks read their script's real loaders, models and optimizers, and the findings that follow are the right ones."""

import msgspec
import pytest

from ddpmon.analysis.processes.replicas import Unchanged
from ddpmon.messages import DDP, PARALLEL_JOIN, TENSOR_PARALLEL, Loader, Model, Setup
from ddpmon.messages.setup import ANOMALY, DISTRIBUTED_SAMPLER, SEED_VARIES
from tests.findings import of_kinds
from tests.probe.conftest import SCRIPTS, listening, watched
from tests.worlds import own_times, world_with

KINDS = (
    *("same_order", "same_worker_seeds", "samplers_disagree", "needless_reductions", "unused_search", "debugging"),
    *("parameters_not_updated", "parameters_not_reduced"),
)
TOLD = {
    "no_set_epoch": {"same_order"},
    "no_set_epoch_with_lasting_workers": {"same_order"},
    "loader_made_each_epoch": {"same_order", "same_worker_seeds"},
    "same_part": {"samplers_disagree"},
    "seed_of_each_rank": {"samplers_disagree"},
    "unfrozen_later": {"parameters_not_reduced"},
    "debugging": {"debugging"},
    "accumulation_without_no_sync": {"needless_reductions"},
    "optimizer_of_an_old_net": {"parameters_not_updated"},
    "optimizer_without_the_head": {"parameters_not_updated"},
    "searches_for_nothing": {"unused_search"},
}
"""Training loops with a mistake, and the kinds of findings that each must have. All other loops are sound."""


@pytest.fixture(scope="module")
def heard(socket_dir):
    """Return the output of the ranks, and the last setup that the hub heard of each."""
    with listening(socket_dir) as ear:
        done = watched(ear, 2, SCRIPTS / "setups.py")
        assert "ddpmon:" not in done.stderr
    return done.stdout, {hello.rank: hello.setup for hello in ear.hellos()}


@pytest.fixture(scope="module")
def setups(heard):
    """The setup of both ranks in each way."""
    read = {}
    for line in heard[0].splitlines():
        way, rank, setup = line.split(" ", 2)
        read.setdefault(way, {})[int(rank)] = msgspec.json.decode(setup, type=Setup)
    assert all(len(ranks) == 2 for ranks in read.values())
    return read


@pytest.mark.e2e
def test_each_way_has_the_findings_that_are_true_and_no_other(setups):
    world = world_with(own_times(60, 2), transfer=9.0)
    told = {}
    for way, of_ranks in setups.items():
        for setup in of_ranks.values():
            for model in setup.models:
                model.search_us *= 1000  # as in a large model
        unchanged = Unchanged(0, 1, 10) if way == "optimizer_of_an_old_net" else None
        for model in (model for setup in of_ranks.values() for model in setup.models):
            model.number = 0  # each way is a run of its own
        run = {"world_size": 2, "parallelism": DDP, "setups": of_ranks, "unchanged": unchanged}
        found = of_kinds(*KINDS, world=world, **run)
        if found:
            assert found[0].ranks == [0, 1]
            told[way] = {one.kind for one in found}
    assert told == TOLD


@pytest.mark.e2e
def test_a_setup_is_read_as_the_script_made_it(setups):
    sound, lasting = setups["sound"][1], setups["no_set_epoch_with_lasting_workers"][1]
    assert sound.loaders == [Loader(0, False, 3, "DistributedSampler", 2, 1, 0, True, 48, again=True)]
    assert not setups["one_epoch"][0].loaders[0].again
    assert not sound.models[0].joins
    (loader,) = lasting.loaders
    assert (loader.workers, loader.persistent, loader.repeats, loader.seed_repeats) == (1, True, 2, 0)
    assert setups["loader_made_each_epoch"][0].loaders[0].seed_repeats == 2
    assert setups["first_batch_of_each_loader"][0].loaders[0].repeats == 0
    assert (setups["accumulation"][0].reductions, setups["accumulation_without_no_sync"][0].reductions) == (1, 3)
    assert setups["closures"][0].reductions in {0, 1}
    (model,) = setups["unfrozen_later"][0].models
    assert (model.unreduced, model.unreduced_count, model.parameters) == (["body.weight", "body.bias"], 2, 2)
    (model,) = setups["optimizer_without_the_head"][0].models
    assert (model.idle, model.stepped) == (["head.weight", "head.bias"], 2)
    (model,) = setups["searches_and_finds"][0].models
    assert model.searches in {1, 2}  # the rank's own thread may read, and count, at the same time
    assert model.unused == 2
    assert setups["debugging"][0].debugging == [ANOMALY]
    assert len(setups["debugging"][0].cores) == 1


@pytest.mark.e2e
def test_a_setup_that_was_made_just_before_the_end_is_read_then(heard, setups):
    for setup in heard[1].values():
        assert setup.loaders[0].batches == 3
        assert [one.stepped for one in setup.models] == [4]
        assert setup.models[0].number > setups["debugging"][0].models[0].number


def test_an_optimizer_of_copies_is_left_alone(setups):
    """Optimizers that keep weights in full precision do so: the weights of the model change."""
    of_ranks = setups["optimizer_of_an_old_net"]
    assert of_kinds("parameters_not_updated", setups=of_ranks, world_size=2) == []


@pytest.mark.e2e
def test_parameters_that_tensor_parallelism_replaces_are_left_alone(setups):
    for way in ("optimizer_without_the_head", "unfrozen_later"):
        run = {"setups": setups[way], "world_size": 2, "parallelism": f"{DDP}{PARALLEL_JOIN}{TENSOR_PARALLEL}"}
        assert of_kinds("parameters_not_updated", "parameters_not_reduced", **run) == []


def sampled(*loaders, ranks=None):
    """Findings where each rank has one of these loaders, in DDP models of so many ranks."""
    setups = {rank: Setup([one], [Model(0, ranks or len(loaders))]) for rank, one in enumerate(loaders)}
    return of_kinds("samplers_disagree", setups=setups, world_size=len(loaders), parallelism=DDP)


def sampler(replicas, rank, seed=0):
    return Loader(0, False, 8, DISTRIBUTED_SAMPLER, replicas, rank, seed, True, 64)


def test_samplers_that_leave_samples_out_or_repeat_them_are_told():
    (half,) = sampled(sampler(4, 0), sampler(4, 1))
    assert half.text == "no rank reads 50% of the samples: num_replicas=4 for 2 ranks"
    (same,) = sampled(sampler(2, 0), sampler(2, 1), sampler(2, 1))
    assert same.text == "ranks 1-2 read the same part of the data: rank 1 of 2"
    assert sampled(sampler(2, 1), sampler(2, 0)) == [], "in another order"
    groups = [sampler(2, 0), sampler(2, 0), sampler(2, 1), sampler(2, 1)]
    assert sampled(*groups, ranks=2) == [], "each model is in a group of two, and two ranks share its data"
    assert sampled(sampler(2, 0), sampler(2, 1, SEED_VARIES)) == []
