"""Checks the Python and the torch that ranks will use, and whether the probe starts in ranks.

A separate interpreter examines torch. ddpmon starts this interpreter like a rank, with the probe on its PYTHONPATH.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from ddpmon.doctor.check import Check, note, ok, problem
from ddpmon.errors import UsageError
from ddpmon.launch.probe_environment import rank_environment
from ddpmon.launch.spec import check_torch

ASKED_S = 120.0
"""Time limit in seconds for importing torch, long enough for a network file system with an empty cache."""
OLDEST = (2, 4)
"""The oldest torch with which `benchmarks/versions.py` checked that ddpmon does not change the weights."""
DRIVER = Path("/dev/nvidiactl")
"""Device file that exists where processes can reach NVIDIA's driver."""
_NOWHERE = "doctor"
"""Run id for the probe in the interpreter that examines torch. No such run exists, so the probe sends nothing."""

_QUESTIONS = """
import json, sys
import torch
import torch.distributed as dist
facts = {"version": torch.__version__, "cuda": torch.version.cuda or "", "hip": torch.version.hip or "",
         "distributed": dist.is_available(), "threads": torch.get_num_threads(),
         "armed": "ddpmon.probe.arm" in sys.modules}
if facts["distributed"]:
    facts["gloo"], facts["nccl"] = dist.is_gloo_available(), dist.is_nccl_available()
    if facts["nccl"]:
        try:
            facts["nccl_version"] = ".".join(map(str, torch.cuda.nccl.version()))
        except Exception:
            pass
if facts["cuda"] or facts["hip"]:
    try:
        torch.cuda.init()
        facts["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    except Exception as error:
        facts["cuda_error"] = str(error).partition("\\n")[0]
if facts.get("gloo"):
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        dist.all_reduce(torch.ones(1))
        dist.destroy_process_group()
    except Exception as error:
        facts["gloo_error"] = str(error).partition("\\n")[0]
print("\\n" + json.dumps(facts))
"""


class Torch(msgspec.Struct):
    """Properties of torch, as its own process reports them."""

    version: str
    cuda: str
    """CUDA version that torch was built for; "" if none."""
    hip: str
    distributed: bool
    threads: int
    """Threads that one process computes with by default."""
    armed: bool
    """True if the probe was armed after torch was imported."""
    gloo: bool = False
    nccl: bool = False
    nccl_version: str = ""
    gpus: list[str] = []
    cuda_error: str = ""
    gloo_error: str = ""


def python() -> Check:
    """Report the version and path of this interpreter, which ranks use too."""
    return ok("Python", f"{platform.python_version()}, {sys.executable}")


def ask_torch(environ: Mapping[str, str]) -> Torch | Check:
    """Return the properties of torch; a failed check if torch cannot be imported."""
    try:
        check_torch()
    except UsageError:
        return note(
            "torch",
            f"torch is not installed in {sys.executable}, so ddpmon run does not work; demo, attach, "
            "replay and report work",
            "install ddpmon into the environment that has torch, or pip install 'ddpmon[training]'",
        )
    command = [sys.executable, "-c", _QUESTIONS]
    try:
        answer = subprocess.run(
            command,
            env=rank_environment(_NOWHERE, environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASKED_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        way_out = (
            "if site-packages is on a slow network file system, move it to a local disk, because each rank "
            "imports torch"
        )
        return problem("torch", f"importing torch takes more than {ASKED_S:.0f} s", way_out)
    try:
        return msgspec.json.decode(answer.stdout.strip().rpartition("\n")[2], type=Torch)
    except msgspec.DecodeError:
        lines = (answer.stderr or answer.stdout).strip().splitlines() or [f"exit code {answer.returncode}"]
        way_out = f"run {sys.executable} -c 'import torch' to see the whole error"
        return problem("torch", f"importing torch fails: {lines[-1]}", way_out)


def torch_checks(torch: Torch) -> Iterator[Check]:
    """Check what torch supports, and whether the probe starts with it."""
    built = f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}" if torch.hip else "the CPU"
    text = f"{torch.version}, built for {built}"
    if not torch.distributed:
        yield problem(
            "torch",
            f"{text}, without torch.distributed",
            "install a build of torch with torch.distributed, such as the one on PyPI",
        )
    elif _number(torch.version) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        yield note("torch", f"{text}, but ddpmon needs {oldest} or later", f"install torch {oldest} or later")
    else:
        yield ok("torch", text)
    if torch.armed:
        yield ok("probe", "ddpmon's code starts in the ranks, through sitecustomize")
    else:
        yield problem(
            "probe",
            "ddpmon's code does not start in the ranks, because Python ignores sitecustomize on PYTHONPATH",
            "put import ddpmon; ddpmon.init() at the top of the script",
        )
    yield from _backends(torch)


def _backends(torch: Torch) -> Iterator[Check]:
    if torch.gloo_error:
        yield problem(
            "gloo",
            f"a process group with gloo fails: {torch.gloo_error}",
            "add the host name to /etc/hosts, or set GLOO_SOCKET_IFNAME to lo (one machine) or eth0 (several machines)",
        )
    elif torch.gloo:
        yield ok("gloo", "gloo works: an all-reduce in a process group of one rank succeeded")
    if torch.nccl:
        yield ok("NCCL", torch.nccl_version or "available")
    elif torch.gpus:
        yield note(
            "NCCL",
            "this build of torch has no NCCL, so GPUs would communicate through gloo",
            "install a build with NCCL",
        )
    if torch.cuda_error and torch.cuda and not DRIVER.exists():
        no_driver = "this machine has no NVIDIA driver, so torch trains on the CPU"
        yield note("CUDA", no_driver, "if the machine has a GPU, install NVIDIA's driver")
    elif torch.cuda_error:
        yield problem(
            "CUDA",
            torch.cuda_error,
            "run nvidia-smi to see whether the driver works and supports torch's CUDA version",
        )


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+", maxsplit=1)[0].split(".")[:2] if part.isdecimal())
