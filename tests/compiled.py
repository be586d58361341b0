"""In a fresh environment nothing is compiled yet: it is now once, before every worker and every rank does it by itself.

pip is told to leave that out, as of what it installs a tenth is ever imported. Five workers and their ranks, which all
import the same at the same time, would each compile it: that took a minute of both cores.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

IMPORTED_BY_RANKS = ("torch", "torch._dynamo", "torch.distributed.run", "vision", "lightning", "transformers.trainer")
"""Modules that take more than a second to compile when a rank imports them; `vision` is torchvision."""


@pytest.hookimpl(tryfirst=True)  # before xdist starts workers
def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    several = config.getoption("tx", None) and not hasattr(config, "workerinput")
    if several and not _is_compiled("torch"):
        imports = "; ".join(f"import {module}" for module in IMPORTED_BY_RANKS)
        collect = ["-m", "pytest", "--collect-only", "-q", "-n", "0"]
        path = str(config.rootpath / "training")
        both = [
            subprocess.Popen(
                [sys.executable, *words],
                cwd=config.rootpath,
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for words in (["-c", imports], collect)
        ]
        for process in both:
            process.wait()  # if one fails, a test will say why


def _is_compiled(module: str) -> bool:
    spec = importlib.util.find_spec(module)
    return spec is None or spec.origin is None or Path(importlib.util.cache_from_source(spec.origin)).exists()
