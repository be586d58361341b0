"""The runs on disk: where a run's folder and sockets are, and what its run.json holds. Standard library only.

A run lives in `$DDPMON_HOME/runs/<id>/` (or `~/.local/state/ddpmon/runs/<id>/`), mode 0700:

    run.json       what was started, where, and how; after its creation, only the supervisor and `rename` change it,
                   through `update`
    secrets.json   the secrets that run.json hides, if there are any; needed to start the run, and start it again
    supervisor.lock
                   locked by the supervisor until it ends
    run.json.reserve
                   reserved space to record how the run ended, in case the disk is full by then
    telemetry.db   the recording
    node.key       the key by which hubs of other machines recognize this run's hub, if the run spans machines
    logs/          the stdout and stderr of each rank, and the logs of supervisor and hub
    report.json    the report, once the run has ended
    members/       the processes that joined the run, if `ddpmon exec` was started for each rank
    stacks/, tail/ files that ranks leave for a hub that cannot receive messages; deleted once the hub has read them

Its sockets are in `/tmp/ddpmon-<uid>/<id>/` (or `$DDPMON_RUNTIME_DIR/<id>/`), because a socket's path holds at most 107
bytes and `$XDG_RUNTIME_DIR` vanishes at logout.
"""

from __future__ import annotations

from ddpmon.proc import Process, boot_id
from ddpmon.runs.changing import NAME_PATTERN, check_name, create, rename, save, text, update
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
from ddpmon.runs.ids import new_id, reserved
from ddpmon.runs.lock import held, hold
from ddpmon.runs.lookup import all_and_damaged, all_ids, all_runs, find, none_yet
from ddpmon.runs.run import STOPPED_CODE, Run, load
from ddpmon.runs.secrets_file import alerts, with_secrets
from ddpmon.runs.visible_processes import Sight, here, is_local
