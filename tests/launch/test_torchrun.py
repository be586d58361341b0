"""The command line given to torchrun, read back by torchrun's own parser."""

from __future__ import annotations

import importlib.machinery
import importlib.util

import pytest
from torch.distributed.run import get_args_parser

from ddpmon import addresses
from ddpmon.errors import UsageError
from ddpmon.launch import torchrun


def parsed(script="train.py", args=(), module=False, nodes=None, max_restarts=0, grace_s=20.0):
    line = torchrun.launch_command(
        script,
        list(args),
        module=module,
        nproc=4,
        nodes=nodes or torchrun.NodeOptions(),
        max_restarts=max_restarts,
        grace_s=grace_s,
        run_id="id-1",
        log_dir="/logs",
    )
    start = line.index("torch.distributed.run") + 1
    return get_args_parser().parse_args(line[start:])


def test_one_machine_needs_no_host_name_and_each_ranks_output_is_in_its_own_file():
    said = parsed(max_restarts=2, grace_s=1.5)
    assert not said.standalone, "it looks localhost up"
    assert (said.rdzv_backend, said.rdzv_endpoint, said.local_addr) == ("c10d", "127.0.0.1:0", "127.0.0.1")
    assert said.rdzv_id == "id-1"
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
    first = parsed(nodes=torchrun.NodeOptions(2, 0, "127.0.0.1:29501"))
    second = parsed(nodes=torchrun.NodeOptions(2, 1, "127.0.0.1:29501"))
    assert (first.rdzv_conf, second.rdzv_conf) == ("is_host=1", "is_host=0")
    assert (first.local_addr, second.local_addr) == ("127.0.0.1", "127.0.0.1")
    assert first.rdzv_endpoint == second.rdzv_endpoint == "127.0.0.1:29501"
    assert (second.nnodes, second.node_rank, second.standalone) == ("2", 1, False)


def test_brackets_around_an_address_of_ipv6_belong_to_the_endpoint_alone():
    first = parsed(nodes=torchrun.NodeOptions(2, 0, "[::1]:29501"))
    assert (first.rdzv_endpoint, first.local_addr) == ("[::1]:29501", "::1")


def test_of_nodes_that_come_and_go_whose_address_is_the_endpoint_s_hosts_the_store():
    first = parsed(nodes=torchrun.node_options("1:4", None, "127.0.0.1:29501"))
    assert (first.nnodes, first.rdzv_conf, first.standalone) == ("1:4", "is_host=1", False)
    assert not addresses.is_own("192.0.2.1", 29501)
    one = torchrun.node_options("1:1", None, None)
    assert (one.count, one.least) == (1, None)


@pytest.mark.parametrize("text", ["0", "2:1", "0:4", "many", "1:2:3", ""])
def test_a_number_of_nodes_that_cannot_be_is_refused(text):
    with pytest.raises(UsageError, match="give a number of machines, or MIN:MAX"):
        torchrun.node_options(text, None, "a:1")


@pytest.mark.parametrize(
    ("rank", "endpoint"),
    [(None, "a:1"), (0, None), (2, "a:1"), (-1, "a:1"), (0, "a"), (0, ":1"), (0, "a:0"), (0, "a:99999"), (0, "a:x")],
)
def test_a_place_among_several_nodes_that_cannot_be_is_refused(rank, endpoint):
    with pytest.raises(UsageError):
        torchrun.NodeOptions(2, rank, endpoint)


@pytest.fixture
def older(monkeypatch, tmp_path):
    """A torch whose torchrun takes no more than these options; None: its source cannot be read."""

    def call(*options):
        folder = tmp_path / "torch"
        (folder / "distributed").mkdir(parents=True)
        (folder / "__init__.py").touch()
        if options:
            calls = "".join(f'    parser.add_argument("{option}", type=str)\n' for option in options)
            (folder / "distributed" / "run.py").write_text(f"def get_args_parser():\n    parser = ...\n{calls}")
        found = importlib.machinery.PathFinder.find_spec("torch", [str(tmp_path)])
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: found if name == "torch" else None)

    return call


def line(grace_s=20.0, args=()):
    return torchrun.launch_command(
        "train.py", list(args), module=False, nproc=2, nodes=torchrun.NodeOptions(), max_restarts=0, grace_s=grace_s,
        run_id="id-1", log_dir="/logs",
    )  # fmt: skip


def test_the_options_of_torchrun_are_read_from_its_source():
    parser = get_args_parser()
    taken = {word for action in parser._actions for word in action.option_strings if word.startswith("--")}
    assert {word for word in taken if "_" not in word} - {"--help"} <= torchrun.known_options()
    assert "--no-such-option" not in torchrun.known_options()


@pytest.mark.parametrize("options", [("--nnodes", "--log-dir"), ()])
def test_an_older_torchrun_is_not_told_what_it_does_not_take(older, options):
    with_it = line(args=["--shutdown-timeout=5"])
    older(*options)
    without = line(args=["--shutdown-timeout=5"])
    assert without == [word for word in with_it if word != "--shutdown-timeout=20"]
    assert without[-1] == "--shutdown-timeout=5", "the script's own"
    assert torchrun.without_unsupported(with_it) == without
