"""Test that `ddpmon run` heeds torchrun's own variables as torchrun would."""

from __future__ import annotations

import pytest

from ddpmon.launch import node_environment

POD = {
    "PET_NNODES": "4",
    "PET_NPROC_PER_NODE": "2",
    "PET_NODE_RANK": "3",
    "PET_MASTER_ADDR": "mnist-node-0-0.mnist",
    "PET_MASTER_PORT": "29400",
}
"""Variables in a pod of a TrainJob."""


def test_a_pod_knows_its_place():
    place = node_environment.nodes_from_environment(POD)
    assert (place.count, place.rank, place.endpoint) == (4, 3, "mnist-node-0-0.mnist:29400")
    assert node_environment.ranks_per_node(POD) == "2"


def test_a_pod_of_as_many_as_there_happen_to_be_needs_no_number():
    pod = {name: value for name, value in POD.items() if name != "PET_NODE_RANK"} | {"PET_NNODES": "1:4"}
    place = node_environment.nodes_from_environment(pod)
    assert (place.least, place.count, place.rank) == (1, 4, None)
    assert node_environment.nodes_from_environment(pod | {"PET_NODE_RANK": "3"}).rank == 3


@pytest.mark.parametrize("environment", [{}, {"PET_NNODES": "1"}, {"PET_NNODES": "1:1"}, {"PET_NPROC_PER_NODE": "8"}])
def test_elsewhere_there_is_one_node(environment):
    assert node_environment.nodes_from_environment(environment) is None


@pytest.mark.parametrize(
    ("changed", "endpoint"),
    [
        ({"PET_RDZV_ENDPOINT": "head:31000"}, "head:31000"),
        ({"PET_RDZV_ENDPOINT": "head"}, "head:29500"),
        ({"PET_MASTER_PORT": None}, "mnist-node-0-0.mnist:29500"),
        ({"PET_MASTER_ADDR": "fd00::7"}, "[fd00::7]:29400"),
    ],
)
def test_where_all_meet(changed, endpoint):
    environment = {name: value for name, value in (POD | changed).items() if value is not None}
    assert node_environment.nodes_from_environment(environment).endpoint == endpoint


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"PET_NNODES": "4:1"}, "PET_NNODES is '4:1': give a number of machines, or MIN:MAX"),
        ({"PET_NNODES": "1:4:9"}, "PET_NNODES is '1:4:9'"),
        ({"PET_NNODES": "many"}, "PET_NNODES is 'many': give a number of machines"),
        ({"PET_NNODES": "0"}, "PET_NNODES is '0'"),
        ({"PET_NODE_RANK": ""}, "PET_NODE_RANK is ''; set PET_NODE_RANK to a number from 0 to 3"),
        ({"PET_NODE_RANK": "9"}, "--node-rank 9: with --nnodes 4, give 0 to 3"),
        ({"PET_MASTER_ADDR": None}, "PET_NNODES is set, but PET_MASTER_ADDR is not"),
        ({"PET_MASTER_PORT": "x"}, "give HOST:PORT"),
        ({"PET_NPROC_PER_NODE": "two"}, "--nproc two: give a number, gpu, cpu or auto"),
    ],
)
def test_what_cannot_be_is_one_line_and_nothing_is_started(refused_run, changed, said):
    pod = {name: value for name, value in (POD | changed).items() if value is not None}
    assert said in refused_run(pod)
