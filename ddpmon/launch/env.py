"""The environment that arms the probe in whatever Python starts under it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ddpmon import runs
from ddpmon.runs import job_key

INJECT_DIR = Path(__file__).parent.parent / "probe" / "inject"
"""Holds the sitecustomize.py that arms the probe, and what it needs before anything of ddpmon is imported."""


def armed(
    run_id: str, base: Mapping[str, str], *, buckets: bool = False, alone: bool = False, hub_given: bool = False
) -> dict[str, str]:
    """The environment of a run's ranks: `base`, where the run's hub listens, and the folder it keeps.

    buckets: have the probe record every bucket's all-reduce. alone: no rank is on another machine, nor will be.
    hub_given: hubs need not find each other through the ranks. The key of hubs is none of the ranks' business.
    """
    inject = str(INJECT_DIR)
    python_path = base.get("PYTHONPATH", "")
    return {
        **{name: value for name, value in base.items() if name != job_key.VARIABLE},
        "PYTHONPATH": f"{inject}{os.pathsep}{python_path}" if python_path else inject,
        "DDPMON_SOCKET": runs.ingest_address(run_id),
        "DDPMON_RUN_ID": run_id,
        "DDPMON_RUN_DIR": str(runs.run_dir(run_id)),
        "DDPMON_BUCKETS": "1" if buckets else "0",
        "DDPMON_ALONE": "1" if alone else "0",
        "DDPMON_HUB_GIVEN": "1" if hub_given else "0",
    }
