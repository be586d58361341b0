"""The command line given to torchrun, read back by torchrun's own parser."""

from __future__ import annotations

import pytest
from torch.distributed.run import get_args_parser

from ddpmon.errors import UsageError
from ddpmon.launch import torchrun


def parsed(script="train.py", args=(), module=False, nproc=4, nodes=None, max_restarts=0, grace_s=20.0):
    line = torchrun.command(
        script,
        list(args),
        module=module,
        nproc=nproc,
        nodes=nodes or torchrun.Nodes(),
        max_restarts=max_restarts,
        grace_s=grace_s,
        log_dir="/logs",
    )
    start = line.index("torch.distributed.run") + 1
    return get_args_parser().parse_args(line[start:])


def test_one_machine_is_a_standalone_run_with_each_ranks_output_in_its_own_file():
    said = parsed(max_restarts=2, grace_s=1.5)
    assert said.standalone
    assert (said.nnodes, said.nproc_per_node, said.max_restarts) == ("1", "4", 2)
    assert (said.redirects, said.log_dir) == ("3", "/logs")
    assert said.shutdown_timeout == 2


def test_what_follows_the_script_is_the_scripts_even_if_it_looks_like_ours():
    said = parsed("train.py", ["--nproc", "9", "--", "-m", "--help", ""])
    assert said.training_script == "train.py"
    assert said.training_script_args == ["--nproc", "9", "--", "-m", "--help", ""]


def test_a_module_is_run_as_one():
    said = parsed("pkg.train", ["--lr", "1"], module=True)
    assert (said.module, said.training_script) == (True, "pkg.train")


def test_of_several_nodes_the_first_hosts_the_store_and_the_others_do_not():
    first = parsed(nodes=torchrun.Nodes(2, 0, "127.0.0.1:29501"))
    second = parsed(nodes=torchrun.Nodes(2, 1, "127.0.0.1:29501"))
    assert (first.rdzv_conf, second.rdzv_conf) == ("is_host=1", "is_host=0")
    assert (first.local_addr, second.local_addr) == ("127.0.0.1", "127.0.0.1")
    assert first.rdzv_endpoint == second.rdzv_endpoint == "127.0.0.1:29501"
    assert (second.nnodes, second.node_rank, second.standalone) == ("2", 1, False)


@pytest.mark.parametrize(
    ("rank", "endpoint"),
    [(None, "a:1"), (0, None), (2, "a:1"), (-1, "a:1"), (0, "a"), (0, ":1"), (0, "a:0"), (0, "a:99999"), (0, "a:x")],
)
def test_a_place_among_several_nodes_that_cannot_be_is_refused(rank, endpoint):
    with pytest.raises(UsageError):
        torchrun.Nodes(2, rank, endpoint)
