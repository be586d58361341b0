"""Run two gloo ranks with one cause of slowness each, and check whether ddpmon names its line or its program.

    python benchmarks/causes.py                          # all causes, one after the other: some 15 minutes
    python benchmarks/causes.py --only decode,regex
    python benchmarks/causes.py --only clean             # nothing is slow: no rank may be sampled

The causes are in causes_steps.py; a comment marks the line that a person would name. A cause is found if the finding
with the greatest cost names that line (or a range of lines around it, or the function that contains it), or the
program, the quota or the few cores that slow the rank down. A checkpoint is a pause, which a hint names. `quota` and
`disk` need root: they limit a cgroup of version 1, and a loop device to 20 MB/s. A line of the script that is unrelated
to the cause counts as wrong. The table has the seconds from the first finding about the rank until the line was named,
and the number of samples behind it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launching import options, own_home, print_head, print_row, watched

from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.messages import Finding
from ddpmon.recording.recorded import recorded_report
from ddpmon.source import snapshot_now

STEPS = Path(__file__).with_name("causes_steps.py")
LINES = (
    *("decode", "sleep", "file", "lock", "collate", "regex", "subprocess", "table", "logging", "metric"),
    *("forward_hook", "backward_hook", "optimizer_hook", "worker", "disk"),
)
OTHERS = {
    "busy": r"[Pp]rocess \d+ \([^)]*causes_busy.py",
    "quota": "CPU quota",
    "affinity": r"core \d+ alone",
    "garbage": "garbage collector|gc.collect",
    "checkpoint": "checkpoint on rank 1 alone",
}
"""Causes other than a line of the script, each with a pattern that the finding must match."""
LIMIT_S = 150.0
POLL_S = 0.5


@dataclass
class Seen:
    """Findings that the screen and the report of a run showed."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    slow_at: float | None = None
    line_at: float | None = None


def marked(cause: str) -> tuple[set[int], str]:
    """Return the numbers of the lines that are marked with a cause, and a pattern of the functions around them."""
    lines, function, found, functions = STEPS.read_text().splitlines(), "", set(), set()
    for number, line in enumerate(lines, 1):
        if match := re.match(r"\s*def (\w+)", line):
            function = match[1]
        if (match := re.search(r"# slow: (.*)$", line)) and cause in match[1].split():
            found.add(number)
            functions.add(function)
    return found, "|".join(functions)


def verdict(cause: str, seen: Seen) -> tuple[str, str]:
    """Return "right", "wrong" or "silent", and the text that was judged."""
    slow = [one for one in seen.findings if one["severity"] != "info" or "line" in one["evidence"]]
    lines = [one["evidence"] for one in slow if "line" in one["evidence"]]
    text = " / ".join(f"{one['text']} {one['advice']}" for one in seen.findings)
    if cause == "clean":
        return ("wrong" if lines else "right"), lines[0]["line"] if lines else ""
    if cause in OTHERS and re.search(OTHERS[cause], text):
        return "right", re.search(OTHERS[cause], text)[0]
    if not lines:
        return "silent", slow[0]["text"] if slow else ""
    said = lines[0]["line"]
    numbers, _ = marked(cause)
    file, _, where = said.partition(":")
    first, last = (int(each) for each in (re.findall(r"\d+", where.partition(" ")[0]) * 2)[:2])
    right = file == STEPS.name and any(first <= number <= last for number in numbers)
    inside = f", inside {lines[0]['line_inside']}" if lines[0].get("line_inside") else ""
    return ("right" if right else "wrong"), f"{said}{inside} ({lines[0]['line_ms']:.1f} ms)"


def run(cause: str, seconds: float, folder: Path) -> Seen:
    """Run the loop with a cause under ddpmon, and watch its screen."""
    seen = Seen()
    with slow_disk(folder, cause), (folder / "output").open("wb") as output:
        started = subprocess.Popen(
            [*watched(2, STEPS), cause, "--seconds", str(seconds)], stdout=output, stderr=output,
            stdin=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        deadline = time.monotonic() + LIMIT_S
        while started.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
            with contextlib.suppress(Exception):
                look(seen, snapshot_now(runs.find(None)).findings)
        started.terminate()
        started.wait(60)
    with contextlib.suppress(DdpmonError):
        seen.findings = recorded_report(runs.find(None))["findings"]
    return seen


@contextlib.contextmanager
def slow_disk(folder: Path, cause: str) -> Iterator[None]:
    """For the cause `disk`, mount a file system that reads 20 MB a second, with a file."""
    if cause != "disk":
        yield
        return
    image, mounted = folder / "image", folder / "disk"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    device = subprocess.run(
        ["losetup", "-f", "--show", image], check=True, capture_output=True, text=True
    ).stdout.strip()
    numbers = f"{os.major(os.stat(device).st_rdev)}:{os.minor(os.stat(device).st_rdev)}"
    limit = Path("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device")
    try:
        subprocess.run(["mount", device, mounted], check=True)
        (mounted / "data").write_bytes(os.urandom(16 << 20))
        os.sync()
        limit.write_text(f"{numbers} 20000000")
        os.environ["CAUSES_DATA"] = str(mounted / "data")
        yield
    finally:
        limit.write_text(f"{numbers} 0")
        subprocess.run(["umount", "-l", mounted], check=False)
        subprocess.run(["losetup", "-d", device], check=False)


def look(seen: Seen, findings: list[Finding]) -> None:
    """Record when the rank was first called slow, and when a line was first named."""
    now = time.monotonic()
    late = [one for one in findings if one.severity != "info" and "pattern" in one.evidence]
    if late and seen.slow_at is None:
        seen.slow_at = now
    if any("line" in one.evidence for one in late) and seen.line_at is None:
        seen.line_at = now


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", default="", metavar="A,B", help="these causes")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each run's training")
    arguments = parser.parse_args()
    causes = arguments.only.split(",") if arguments.only else [*LINES, *OTHERS, "clean"]
    print_head("cause", "found", "what was named", "s after the finding", "samples")
    counts: Counter[str] = Counter()
    for cause in causes:
        with own_home(), tempfile.TemporaryDirectory(prefix="dm-") as folder:
            seen = run(cause, arguments.seconds, Path(folder))
        judged, said = verdict(cause, seen)
        counts[judged] += 1
        samples = next((one["evidence"]["line_samples"] for one in seen.findings if "line" in one["evidence"]), "")
        after = f"{seen.line_at - seen.slow_at:.1f}" if seen.line_at and seen.slow_at else ""
        print_row(cause, judged, said, after, samples)
    print(f"\n{', '.join(f'{count} {judged}' for judged, count in sorted(counts.items()))} of {len(causes)}")


if __name__ == "__main__":
    main()
