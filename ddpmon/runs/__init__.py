"""Runs on disk: where a run's folder and sockets are, and what run.json says. Standard library only.

A run lives in `$DDPMON_HOME/runs/<id>/` (or `~/.local/state/ddpmon/runs/<id>/`), mode 0700:

    run.json       what was started, where, with what; written through `update` after its creation, by the supervisor
                   and by who renames the run
    secrets.json   the values that run.json hides, where there are any: for who starts it, and starts it again
    supervisor.lock, run.json.reserve
                   held by the supervisor for its life; room for how the run ends, on a disk that is full by then
    telemetry.db   the recording
    node.key       by which the hubs of other machines know this run's hub, where it runs on several
    logs/          each rank's stdout and stderr, and what supervisor and hub had to say
    report.json    the report, once the run has ended
    members/       who joined it, where `ddpmon exec` was started for each rank
    stacks/, tail/ what ranks leave there for a hub that cannot hear them; gone once it is taken in

Its sockets are in `/tmp/ddpmon-<uid>/<id>/` (or `$DDPMON_RUNTIME_DIR/<id>/`), because a socket's path holds at
most 107 bytes and `$XDG_RUNTIME_DIR` vanishes at logout.
"""

from __future__ import annotations

from ddpmon.runs.changing import NAME, check_name, create, rename, save, text, update
from ddpmon.runs.folders import (
    home,
    ingest_address,
    make_socket_dir,
    private_dir,
    remove_sockets,
    run_dir,
    runs_dir,
    socket_dir,
    view_address,
)
from ddpmon.runs.here import Sight, here, is_local
from ddpmon.runs.hidden import alert_command, notify_urls, with_secrets
from ddpmon.runs.ids import new_id, reserved
from ddpmon.runs.lock import held, hold
from ddpmon.runs.lookup import all_and_damaged, all_ids, all_runs, find
from ddpmon.runs.proc import boot_id
from ddpmon.runs.process import Process
from ddpmon.runs.run import STOPPED_CODE, Run, load
