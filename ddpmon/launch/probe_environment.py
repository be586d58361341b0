"""The environment variables that load the probe into every Python process of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ddpmon import runs
from ddpmon.runs import job_key

INJECT_DIR = Path(__file__).parent.parent / "inject"
"""Folder with the sitecustomize.py that loads the probe, and with the modules that it needs before it imports ddpmon.
"""


def rank_environment(
    run_id: str, base: Mapping[str, str], *, buckets: bool = False, alone: bool = False, hub_given: bool = False
) -> dict[str, str]:
    """Return the environment of a run's ranks: `base`, the address of the run's hub, and the run's folder.

    The secret key of the hubs is left out, because ranks do not need it.

    Args:
        run_id: The run.
        base: The variables that the ranks would have without ddpmon.
        buckets: The probe records every bucket's all-reduce.
        alone: No rank is on another machine, now or later.
        hub_given: The root hub's address was given, so hubs need not find each other through the ranks.

    """
    inject = str(INJECT_DIR)
    python_path = base.get("PYTHONPATH", "")
    return {
        **{name: value for name, value in base.items() if name != job_key.HUB_KEY_VARIABLE},
        "PYTHONPATH": f"{inject}{os.pathsep}{python_path}" if python_path else inject,
        "DDPMON_SOCKET": runs.ingest_address(run_id),
        "DDPMON_RUN_ID": run_id,
        "DDPMON_RUN_DIR": str(runs.run_dir(run_id)),
        "DDPMON_BUCKETS": "1" if buckets else "0",
        "DDPMON_ALONE": "1" if alone else "0",
        "DDPMON_HUB_GIVEN": "1" if hub_given else "0",
    }
