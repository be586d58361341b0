"""Measure what a root hub costs for thousands of ranks, and check that it still reports them correctly.

    python benchmarks/scale.py                          64, 256 and 1,024 ranks, 40 s each
    python benchmarks/scale.py --ranks 16384 --seconds 60
    python benchmarks/scale.py --ranks 64 --seconds 20 --faults
    python benchmarks/scale.py --ranks 1024 --viewer    with a viewer that reads every snapshot
    python benchmarks/scale.py --ranks 1024 --dashboard from the end of a step until `ddpmon attach` shows it
    python benchmarks/scale.py --node-hub --ranks 8     what the hub of a node costs for this many ranks

A real root hub runs as a process of its own, and node hubs in others (`scale_nodes.py`): 8 ranks each, real sockets
with CURVE, real messages, every node's clock hours off. One rank becomes late by 12% of a step. With --faults, one
node's link is cut for a quarter of the time, every eighth link loses bundles, and all ranks are restarted once.

CPU is the kernel's count for the hub's process, all threads, from the eighth second until it has recorded everything,
divided by the seconds of the run that were played meanwhile, so that a hub that falls behind on a busy machine does not
look cheaper. Memory is its largest resident set, KB/s the bytes of the node hubs' messages per rank. Then the run ends,
and its report is compared with what was played: records, the least and largest own time of every rank, which rank is
late, since when, and the gain.

--node-hub: two real hubs, a node's and a root's, find each other as they do in a run. The node's ranks are synthetic
(`synthetic_ranks.py`) and send the messages of real ones over its own socket.
"""

from __future__ import annotations

import dataclasses
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import psutil

from ddpmon import runs
from ddpmon.analysis.steps.table import PHASE_FIELDS
from ddpmon.hub import curve_keys
from ddpmon.messages import MAX_STEP, Card, SeriesRequest, ViewRequest
from ddpmon.recording.recording import Recording

sys.path.insert(0, str(Path(__file__).parent))
from launching import cpu_s, hub_log, kill, make_run, options, own_home, start_hub, wait_until
from ports import free_port
from scale_nodes import Plan, Said
from synthetic_ranks import Viewer, allow_many_files, start_ranks
from terminal import Dashboard, shown

SIZE = 160, 50
STEP_SHOWN = re.compile(r"step ([\d,]+)")
VIEW_REQUEST = ViewRequest(strips=SeriesRequest(ranks=((0, 15),), columns=24))
"""The view request of the first screen of that size."""
PER_NODE = 8
SETTLE_S = 8.0
NODES_A_PROCESS = 2048


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The measurements to make."""

    seconds: float = 40.0
    rate: float = 10.0
    faults: bool = False
    viewer: bool = False
    dashboard: bool = False


@dataclasses.dataclass
class Result:
    """The results of one world."""

    ranks: int
    cpu: float
    """CPU seconds per second of one core."""
    peak_mb: float
    seen: list[tuple[int, int]]
    """Moments at which a viewer had a snapshot (CLOCK_MONOTONIC in µs), and the step of each."""
    viewer_kb_per_s: float | None = None
    kb_per_s_rank: float = 0.0
    behind_s: float = 0.0
    """Longest delay, in seconds, of the synthetic nodes."""
    latency_s: tuple[float, float] | None = None
    """Seconds from the end of a step to a viewer that has decoded the snapshot, or to a screen that shows it: median
    and 95th percentile."""
    records: int = 0
    lost: int = 0
    bounds_wrong: int = 0
    """Number of ranks whose least or largest own time is not in the recording."""
    kinds: list[str] = dataclasses.field(default_factory=list)
    """Kinds of findings that are worth a warning."""
    blamed: list[int] = dataclasses.field(default_factory=list)
    since: tuple[int, int] | None = None
    """Step from which the rank is late: as reported, and the true one."""
    gain: tuple[float, float] | None = None
    """Gain without the late rank: as reported, and the true one."""
    bytes_a_record: float = 0.0
    """Size of the recording per record."""
    left_over: int = 0
    """Number of nodes whose data the root had not recorded completely at the end."""


def play(ranks: int, args: Wanted) -> Result:
    """Play one world, from the start of its hub to its report."""
    with own_home() as home:
        return _play(ranks, args, home)


def _play(ranks: int, args: Wanted, home: Path) -> Result:
    nodes = -(-ranks // PER_NODE)
    supervisor = subprocess.Popen(["sleep", "3600"])
    run = make_run("scale", ranks, nnodes=nodes + 1, supervisor=supervisor.pid)
    root, of_nodes = curve_keys.new_key_pair(), [curve_keys.new_key_pair() for _ in range(nodes)]
    root.addresses = [f"tcp://127.0.0.1:{free_port()}"]
    root.admitted = {each.public: number + 1 for number, each in enumerate(of_nodes)}
    root.save(runs.run_dir(run.id))
    log = hub_log(run)
    hub = start_hub(run)
    started = [supervisor, hub]
    try:
        viewer = Viewer(run)
        viewer.next()
        card = Card(root.public, run.id, root.addresses)
        plans = [
            Plan(
                card, of_nodes, first, min(NODES_A_PROCESS, nodes - first), PER_NODE, ranks, args.rate, args.seconds,
                late_rank=ranks // 2 + 1, late_after_s=max(4.0, args.seconds / 3) if not args.faults else 4.0,
                said=str(home / f"said{first}"),
                **(_faults(args.seconds, nodes) if args.faults else {}),
            )
            for first in range(0, nodes, NODES_A_PROCESS)
        ]  # fmt: skip
        players = []
        for plan in plans:
            path = home / f"plan{plan.first}"
            path.write_bytes(msgspec.json.encode(plan))
            players.append(subprocess.Popen([sys.executable, str(Path(__file__).with_name("scale_nodes.py")), path]))
        started += players
        wait_until(_connected(home, plans, players), f"the nodes do not come: {log.read_text()}")
        if args.dashboard:
            viewer.close()  # Only one viewer must be measured.
            with shown([sys.executable, "-m", "ddpmon", "attach", run.id], SIZE) as dashboard:
                result = _measured(ranks, hub, viewer, players, args, dashboard)
        else:
            result = _measured(ranks, hub, viewer, players, args)
        saids = [msgspec.json.decode((home / f"said{plan.first}").read_bytes(), type=Said) for plan in plans]
        print(f"{ranks:,} ranks were played: {result.cpu:.1%} of a core, {result.peak_mb:,.0f} MB", file=sys.stderr)
        runs.save(dataclasses.replace(run, ended_at=time.time(), exit_code=0))
        hub.send_signal(signal.SIGTERM)
        if hub.wait(1200) != 0:
            raise SystemExit(f"the hub failed: {log.read_text()}")
        _compare(result, runs.load(run.id), saids, args)
        return result
    finally:
        kill(started)


def _connected(home: Path, plans: list[Plan], players: list[subprocess.Popen]) -> Callable[[], bool]:
    def connected() -> bool:
        if any(player.poll() for player in players):
            raise SystemExit("the nodes failed")
        return all((home / f"plan{plan.first}.connected").exists() for plan in plans)

    return connected


def _faults(seconds: float, nodes: int) -> dict[str, object]:
    return {
        "cut_node": nodes - 1,
        "cut_s": (0.55 * seconds, 0.8 * seconds),
        "lossy_every": 8 if nodes >= 8 else 2,
        "restart_after_s": 0.2 * seconds,
    }


def _measured(
    ranks: int,
    hub: subprocess.Popen,
    viewer: Viewer,
    players: list[subprocess.Popen],
    args: Wanted,
    dashboard: Dashboard | None = None,
) -> Result:
    """Measure the hub while the world is played."""
    process = psutil.Process(hub.pid)
    began = time.monotonic()
    peak, seen = 0.0, []
    at_first, cpu_first, cpu_last = began, 0.0, 0.0
    sizes = []
    while any(player.poll() is None for player in players):
        if args.viewer:
            frame, shot = viewer.next(view_request=VIEW_REQUEST)
            seen.append((time.monotonic_ns() // 1000, shot.step))
            sizes.append(len(frame))
        elif dashboard is not None:
            dashboard.collect(0.25)
        else:
            time.sleep(0.25)
        now = time.monotonic()
        peak = max(peak, process.memory_info().rss / 1e6)
        if now - began >= SETTLE_S and at_first == began:
            at_first, cpu_first = now, cpu_s(hub.pid)
        cpu_last = cpu_s(hub.pid)
    if any(player.returncode for player in players):
        raise SystemExit("the nodes failed")
    if dashboard is not None:
        seen = list(_painted(dashboard))
    else:
        viewer.close()
    result = Result(ranks, (cpu_last - cpu_first) / (args.seconds - (at_first - began)), peak, seen)
    if args.viewer:
        result.viewer_kb_per_s = sum(sizes) / (time.monotonic() - began) / 1e3
    return result


def _painted(dashboard: Dashboard) -> Iterator[tuple[int, int]]:
    """Yield the moment at which each step appeared on the screen, and the step's number."""
    for at, screen in dashboard.played():
        if step := STEP_SHOWN.search(screen):
            yield round(at * 1e6), int(step[1].replace(",", ""))


def _compare(result: Result, run: runs.Run, saids: list[Said], args: Wanted) -> None:
    """Compare the root's account of the world with what was played."""
    result.kb_per_s_rank = sum(said.sent_bytes for said in saids) / result.ranks / args.seconds / 1e3
    result.behind_s = max(said.behind_s for said in saids)
    result.left_over = sum(said.left_over for said in saids)
    result.latency_s = _latency(result.seen, saids[0].ends_us)
    bounds = [pair for said in saids for pair in said.own_us]
    with Recording(run) as recording:
        processes = recording.processes()
        attempt = max(process.attempt for process in processes)
        last = [process for process in processes if process.attempt == attempt]
        result.records = sum(process.records for process in last)
        result.bytes_a_record = recording.path.stat().st_size / max(1, sum(p.records for p in processes))
        for process in last:
            steps = recording.steps.whole_steps(process.id, 2, MAX_STEP)
            own = [sum(getattr(step, name) for name in PHASE_FIELDS) for step in steps]
            result.bounds_wrong += not own or (min(own), max(own)) != bounds[process.rank]
    result.lost = sum(sum(said.records) for said in saids) - result.records
    report = msgspec.json.decode((runs.run_dir(run.id) / "report.json").read_bytes())  # The hub has written this file.
    late = result.ranks // 2 + 1
    stragglers = [finding for finding in report["findings"] if finding["kind"] == "straggler"]
    result.kinds = sorted({found["kind"] for found in report["findings"] if found["severity"] != "info"})
    result.blamed = sorted({rank for finding in stragglers for rank in finding["ranks"]})
    since = saids[0].late_since
    gains = [row["gain"] for row in report["what_if"] if row["rank"] == late]
    if since is None or result.blamed != [late] or not gains:
        return
    result.since = stragglers[0]["since_step"], since
    first, end = report["steps"]["window"]
    window = slice(first - 1, end)
    result.gain = gains[0], sum(saids[0].step_us[window]) / sum(saids[0].mended_us[window])


def _latency(seen: list[tuple[int, int]], ends_us: list[int]) -> tuple[float, float] | None:
    """Return the seconds from the end of each step that a viewer saw until a snapshot showed it: median and 95th
    percentile.
    """
    took, place = [], 0
    for step, end in enumerate(ends_us, 1):
        while place < len(seen) and seen[place][1] < step:
            place += 1
        if place < len(seen) and end > seen[0][0] + SETTLE_S * 1e6:
            took.append((seen[place][0] - end) / 1e6)
    return (float(np.median(took)), float(np.percentile(took, 95))) if took else None


def line(result: Result) -> str:
    """Return the result as a row of the table."""
    since, gain, latency = result.since, result.gain, result.latency_s
    to_viewer = "–" if result.viewer_kb_per_s is None else f"{result.viewer_kb_per_s:,.0f}"
    words = [
        f"{result.ranks:6,} {result.cpu:7.1%} {result.peak_mb:6,.0f} {result.kb_per_s_rank:8.2f}",
        f"{result.bytes_a_record:8.0f}",
        f"{latency[0]:6.2f} {latency[1]:5.2f} {to_viewer:>8}" if latency else f"{'–':>6} {'–':>5} {'–':>8}",
        f"{result.records:10,} {result.lost:5} {result.bounds_wrong:6}",
        f" rank {', '.join(map(str, result.blamed)) or '–'}",
        f"since {since[0]} ({since[1]})" if since else "",
        f"gain {gain[0]:.3f} ({gain[1]:.3f})" if gain else "",
        ", ".join(kind for kind in result.kinds if kind != "straggler"),
    ]
    behind = f"  the made-up nodes fell {result.behind_s:.1f} s behind" if result.behind_s > 0.5 else ""
    left = f"  {result.left_over} nodes were not heard to the end" if result.left_over else ""
    return " ".join(words).rstrip() + behind + left


HEAD = """                     KB/s a  bytes a   seconds to a   KB/s to             not  wrong
 ranks     CPU     MB     rank   record  viewer   p95  a viewer   records  rec.  min/max  late: told (played)"""


def node_hub_cpu(ranks: int, rate: float, seconds: float) -> float:
    """Return the share of a core that the hub of a node takes while the root accepts everything."""
    with own_home():
        started = [subprocess.Popen(["sleep", "3600"])]
        try:
            keys = [curve_keys.new_key_pair(), curve_keys.new_key_pair()]
            keys[0].addresses, keys[0].admitted = [f"tcp://127.0.0.1:{free_port()}"], {keys[1].public: 1}
            root, node = (make_run(name, ranks, nnodes=2, supervisor=started[0].pid) for name in ("root", "node"))
            for run, own in zip((root, node), keys, strict=True):
                own.save(runs.run_dir(run.id))
                started.append(start_hub(run))
                Viewer(run).next()
            card = msgspec.json.encode(Card(keys[0].public, root.id, keys[0].addresses)).decode()
            hub = started[-1].pid
            started.append(start_ranks(node, ranks, "--rate", str(rate), "--root", card))
            time.sleep(SETTLE_S)
            began, before = time.monotonic(), cpu_s(hub)
            time.sleep(seconds - SETTLE_S)
            used = (cpu_s(hub) - before) / (time.monotonic() - began)
            shot = Viewer(root).next()[1]
            if shot.step < (seconds - 2) * rate * 0.9:
                raise SystemExit(f"the root has {shot.step} steps only")
            return used
        finally:
            kill(started)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--seconds", type=float, default=40.0, help="of each world")
    parser.add_argument("--rate", type=float, default=10.0, help="steps a second")
    parser.add_argument("--faults", action="store_true", help="cut, lossy and restarted")
    parser.add_argument("--viewer", action="store_true", help="a viewer takes every snapshot")
    parser.add_argument("--dashboard", action="store_true", help="when a dashboard in a terminal shows a step")
    parser.add_argument("--node-hub", action="store_true", help="measure the hub of a node with so many ranks")
    args = vars(parser.parse_args())
    if args["seconds"] < 2 * SETTLE_S:
        parser.error(f"--seconds: at least {2 * SETTLE_S:g}, as the first {SETTLE_S:g} do not count")
    allow_many_files()
    ranks = args.pop("ranks")
    if args.pop("node_hub"):
        for count in ranks:
            used = node_hub_cpu(count, args["rate"], args["seconds"])
            print(f"the hub of a node with {count} ranks of {args['rate']:g} steps a second: {used:.1%} of a core")
        return
    print(HEAD, flush=True)
    for count in ranks:
        print(line(play(count, Wanted(**args))), flush=True)


if __name__ == "__main__":
    main()
