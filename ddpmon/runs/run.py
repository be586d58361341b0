"""A run: the checked contents of its run.json, and its state as far as it is visible from this process.

Standard library only.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass, field

from ddpmon.errors import RunNotFoundError
from ddpmon.proc import Process
from ddpmon.runs import json_files
from ddpmon.runs.folders import run_dir
from ddpmon.runs.lock import held, lock_held
from ddpmon.runs.visible_processes import PidSpace, Sight, here, is_local

YEAR_10000 = 253_402_300_800.0
"""Unix time, in seconds, of the year 10000; a later value is not a date."""
STOPPED_CODE = 130
"""Exit code of a stopped run, however it was stopped. A shell reports the same code after Ctrl-C."""
STARTING_RUN_S = 10.0
"""Age of a run, in seconds, up to which a run without a supervisor counts as starting."""
ENTERING = "entering"
"""A debugger is injecting the probe."""
WAITING = "waiting"
"""The rank will run the injected code once it returns to Python code."""
STARTING = "starting"
"""The rank is running the injected code."""
IN = "in"
"""The probe is active in the rank."""
REFUSED = "refused"
"""The probe cannot be injected into the rank."""
ENDED = "ended"
"""The rank's process has ended."""
ENTRY_STATES = (ENTERING, WAITING, STARTING, IN, REFUSED, ENDED)


@dataclass(frozen=True)
class Attached:
    """One rank of a job that ddpmon has attached to."""

    process: Process
    rank: int | None
    """The rank's number; None until the environment or the probe has shown it."""
    state: str
    why: str = ""
    """Why the probe cannot be injected, or the line in which the rank waits ("in f (train.py:9)")."""

    @property
    def name(self) -> str:
        """Return the rank's name for sentences."""
        return f"pid {self.process.pid}" if self.rank is None else f"rank {self.rank} (pid {self.process.pid})"


@dataclass(frozen=True)
class Run:
    """The contents of run.json. Unknown fields of a newer version are ignored."""

    id: str
    name: str
    argv: list[str]
    """The command that is run: torchrun's, or the one given to `ddpmon exec`."""
    script: str
    script_args: list[str]
    cwd: str
    host: str
    boot_id: str
    created_at: float
    world_size: int
    nnodes: int = 1
    versions: dict[str, str] = field(default_factory=dict)
    supervisor: Process | None = None
    hub: Process | None = None
    agent: Process | None = None
    """The process of the command (torchrun)."""
    stopping: bool = False
    """True if a stop was requested."""
    stopping_at: float | None = None
    """When a stop was first requested, as Unix time; the ranks have the grace from then on."""
    launcher_killed_at: float | None = None
    """When the launcher was killed and its ranks were asked to end, as Unix time. Their grace begins then."""
    grace_ended_at: float | None = None
    """When a request ended the grace early, as Unix time."""
    ended_at: float | None = None
    exit_code: int | None = None
    job: str = ""
    """Id of the job that this run belongs to, if a launcher starts `ddpmon exec` for each rank; "" otherwise. The run
    contains the job's ranks on this machine."""
    job_rank: int | None = None
    """If `job` is set: the rank whose `ddpmon exec` started this run. The other ranks joined the run later."""
    command_code: int | None = None
    """Exit code of the run's own command if it ended while members of the job went on."""
    error: str | None = None
    """Why the run never started, one line."""
    memory_kills: str = ""
    """Where the kernel killed processes while the run lasted because memory ran out: "cgroup", "host", or "" for
    nowhere."""
    grace_s: float = 20.0
    """Seconds that the ranks have to end after a stop was requested."""
    buckets: bool = False
    """True if the probe records every bucket's all-reduce."""
    on_alert: list[str] = field(default_factory=list)
    """The program, with its arguments, that is run when the run needs attention; empty: none."""
    notify: list[str] = field(default_factory=list)
    """URLs of services that are notified when the run needs attention."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that were set for the run, in addition to those of the process that started it."""
    notes: list[str] = field(default_factory=list)
    """Messages about options of the user that cannot take effect, one line each."""
    pid_namespace: str = ""
    """The pid namespace in which the run's pids are valid, as `pid_namespace()` returns it; "": unknown."""
    hub_at: str = ""
    """HOST:PORT of the root hub of the job, if `--hub` gave it; "": the hubs of several machines find each other."""
    hub_is_here: bool = False
    """True if the root hub at `hub_at` is on this machine. The hubs of the other machines connect to it."""
    hides: bool = False
    """True if values of `argv`, `script_args` or `environment` are hidden here; `with_secrets` returns them."""
    attached: list[Attached] = field(default_factory=list)
    """The run's ranks on this machine, if they ran before ddpmon attached. `agent` is then the launcher of these ranks,
    provided that it forwards signals."""
    detaching: bool = False
    """True if removing the probe was requested."""
    detached_at: float | None = None
    """When the probe was removed, as Unix time; the job went on."""
    created_boot_s: float = 0.0
    """Creation time in seconds of CLOCK_BOOTTIME, which nobody can set; 0.0: an older ddpmon did not write it."""

    def unix_now(self) -> float:
        """Return the current Unix time by the clock of `created_at`, even if the system's clock was set meanwhile."""
        if not (self.boot_id and self.created_boot_s > 0 and self.boot_id == here().boot_id):
            return time.time()
        elapsed_s = time.clock_gettime(time.CLOCK_BOOTTIME) - self.created_boot_s
        return self.created_at + elapsed_s if elapsed_s >= 0 else time.time()

    @property
    def took_s(self) -> float | None:
        """Return how many seconds the run took; None if the run has not ended, or the clock was set back during it."""
        return self.ended_at - self.created_at if self.ended_at and self.ended_at >= self.created_at else None

    @property
    def ended(self) -> bool:
        """Return whether the supervisor has recorded how the run ended."""
        return self.ended_at is not None

    @property
    def winding_down_at(self) -> float | None:
        """Return the Unix time at which the ranks were asked to end; None if never. A later exit is not a failure."""
        return min((at for at in (self.stopping_at, self.launcher_killed_at) if at is not None), default=None)

    @property
    def kill_at(self) -> float | None:
        """Return the Unix time at which the ranks' grace ends; None if the ranks were not asked to end."""
        if self.winding_down_at is None:
            return None
        return min(self.winding_down_at + self.grace_s, self.grace_ended_at or math.inf)

    @property
    def winding_down(self) -> bool:
        """Return whether the run's ranks were asked to end."""
        return self.stopping or self.launcher_killed_at is not None

    @property
    def launcher(self) -> str:
        """Return the name of the run's command for sentences."""
        return "torchrun" if self.world_size else "the command"

    def grace_left_s(self) -> float | None:
        """Return how many seconds of grace the ranks have left; None if the ranks were not asked to end."""
        return None if self.kill_at is None else max(0.0, min(self.grace_s, self.kill_at - time.time()))

    @property
    def sight(self) -> Sight:
        """Return which of the run's processes are visible from this process."""
        return PidSpace(self.host, self.boot_id, self.pid_namespace).sight()

    def supervised(self) -> bool:
        """Return whether the run's supervisor is certainly alive, on this or another machine."""
        ours = self.sight is Sight.PIDS and self.supervisor is not None and self.supervisor.alive()
        return ours or held(self.id)

    def lost(self) -> bool:
        """Return whether the supervisor is gone, because of SIGKILL or a reboot, and has not recorded the run's end."""
        return not self.ended and self.state() == "lost"

    def state(self) -> str:
        """Return the run's state as far as it is visible from here.

        It is "running", "done", "failed", "stopped", "detached", "lost" or "unknown". "lost": the supervisor is gone
        and recorded no end, or the exit code is unknown. "unknown": not visible from here; see `elsewhere`.
        """
        if not self.ended:
            if (self.supervisor is None and time.time() - self.created_at < STARTING_RUN_S) or self.supervised():
                return "running"
            now = self
            with contextlib.suppress(RunNotFoundError):  # The run may have ended since run.json was read.
                now = load(self.id)
            return now.state() if now.ended else self._unsupervised()
        if self.detached_at is not None:
            return "detached"
        if self.stopping:
            return "stopped"
        if self.exit_code is None and self.error is None:
            return "lost"
        return "done" if self.exit_code == 0 and self.error is None else "failed"

    @property
    def shell_code(self) -> int | None:
        """Return the exit code for the shell, screens and reports. A stopped run has the exit code of Ctrl-C, 130."""
        return STOPPED_CODE if self.ended and self.stopping else self.exit_code

    def _unsupervised(self) -> str:
        """Return the state of a run that has not ended and has no visible supervisor: "lost" or "unknown"."""
        if self.sight is Sight.PIDS:
            return "lost"
        if self.sight is Sight.KERNEL:  # Without locks, the state is unknown.
            return "lost" if lock_held(self.id) is False else "unknown"
        return "lost" if self.host == here().host and is_local(run_dir(self.id)) else "unknown"

    @property
    def attaching(self) -> str:
        """Return the command that opens the run's dashboard from here; through ssh if the run is on another machine."""
        far = self.sight is Sight.NONE and self.host != here().host
        return f"ddpmon attach {self.host}:{self.id}" if far else f"ddpmon attach {self.id}"

    def elsewhere(self) -> str | None:
        """Return where the run is if its processes cannot be signalled from here; None if they can or it has ended.

        The text continues a sentence that begins with the run's name: "runs on node07".
        """
        if self.ended or self.sight is Sight.PIDS:
            return None
        place = "in another container of this machine" if self.sight is Sight.KERNEL else f"on {self.host}"
        match self.state():
            case "running":
                return f"runs {place}"
            case "unknown" if self.sight is Sight.NONE and self.host == here().host:
                return f"started {place} before the last boot of this machine, and ddpmon cannot see it from here"
            case "unknown":
                return f"started {place}, and ddpmon cannot see it from here"
            case "lost" if self.sight is Sight.KERNEL:
                return f"started {place}, and its supervisor is gone"
        return None


def load(run_id: str) -> Run:
    """Read a run.json and check every value. Raise RunNotFoundError if it is missing or damaged."""
    path = run_dir(run_id) / "run.json"
    try:
        run = json_files.build(Run, json_files.read(path))
        check_values(run)
        if run.id != run_id:  # Otherwise a path made from the id would lead elsewhere.
            raise ValueError("the id differs from the name of the folder")
    except FileNotFoundError:
        raise RunNotFoundError(f"no run {run_id}; ddpmon ls lists all runs") from None
    except (OSError, ValueError) as error:
        raise RunNotFoundError(f"{path} cannot be read: {error}") from None
    return run


def check_values(run: Run) -> None:
    """Check what the types do not. Raise ValueError, which names the value that is out of range."""
    numbers: dict[str, tuple[float | None, float, float]] = {
        "created_at": (run.created_at, 0, YEAR_10000),
        "ended_at": (run.ended_at, 0, YEAR_10000),
        "stopping_at": (run.stopping_at, 0, YEAR_10000),
        "detached_at": (run.detached_at, 0, YEAR_10000),
        "launcher_killed_at": (run.launcher_killed_at, 0, YEAR_10000),
        "grace_ended_at": (run.grace_ended_at, 0, YEAR_10000),
        "world_size": (run.world_size, 0, (1 << 17) + 1),
        "nnodes": (run.nnodes, 1, (1 << 17) + 1),
        "exit_code": (run.exit_code, -(1 << 31), 1 << 31),
        "command_code": (run.command_code, -(1 << 31), 1 << 31),
        "job_rank": (run.job_rank, 0, 1 << 31),
        "grace_s": (run.grace_s, 0, 1e9),
    }
    ranks = [(f"attached {place}", each.process) for place, each in enumerate(run.attached)]
    for name, process in (("supervisor", run.supervisor), ("hub", run.hub), ("agent", run.agent), *ranks):
        if process is not None:
            numbers[f"{name}: pid"] = process.pid, 1, 1 << 31
            numbers[f"{name}: start_ticks"] = process.start_ticks, 0, 1 << 63
    for name, (value, least, end) in numbers.items():
        if value is not None and not least <= value < end:
            raise ValueError(f"{name} is {value:.12g}")
    if wrong := next((each.state for each in run.attached if each.state not in ENTRY_STATES), None):
        raise ValueError(f"attached: state is {wrong[:40]!r}")
    if run.hub_at:
        from ddpmon import addresses

        try:
            addresses.split(run.hub_at)
        except ValueError as error:
            raise ValueError(f"hub_at is {error}") from None
    if not all(name and "=" not in name for name in run.environment):
        raise ValueError("the environment has an invalid variable")
