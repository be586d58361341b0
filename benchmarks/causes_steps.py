"""A training loop with one cause of slowness on one rank, for causes.py. `# slow: NAME` marks the line to be named."""

from __future__ import annotations

import argparse
import fcntl
import gc
import io
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

CAUSE, SLOW_RANK = "", 1
LOG = logging.getLogger("train")


def is_slow(cause: str) -> bool:
    """Return whether this rank is the slow one and this is its cause."""
    return cause == CAUSE and dist.get_rank() == SLOW_RANK


def encoded(side: int) -> bytes:
    """Return a picture as a PNG file."""
    pixels = np.random.default_rng(0).integers(0, 255, (side, side, 3), dtype=np.uint8)
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "png")
    return written.getvalue()


class Pictures(Dataset):
    """Decodes a picture for each item. Depending on the cause, rank 1's are larger, slow to read, or behind a lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.small, self.large = encoded(24), encoded(420)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if is_slow("sleep"):
            time.sleep(0.004)  # slow: sleep
        if is_slow("file"):
            with open(self.folder / "pipe", "rb", buffering=0) as file:
                while file.read(65536):  # slow: file
                    pass
        if is_slow("lock"):
            with open(self.folder / "lock") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # slow: lock
        if is_slow("disk"):
            with open(os.environ["CAUSES_DATA"], "rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                os.pread(file.fileno(), 131072, index * 131072 % (16 << 20))  # slow: disk
        picture = self.large if is_slow("decode") or is_slow("worker") else self.small
        with Image.open(io.BytesIO(picture)) as image:
            pixels = np.asarray(image.convert("RGB").resize((16, 16)))  # slow: decode worker
        return torch.from_numpy(pixels.copy()).float().reshape(-1)[:64] / 255


def collate(items: list[torch.Tensor]) -> torch.Tensor:
    batch = torch.stack(items)
    if is_slow("collate"):
        np.linalg.svd(np.random.default_rng(0).normal(size=(170, 170)))  # slow: collate
    return batch


def fill_pipe(folder: Path) -> None:
    """Write the contents of a file slowly into a named pipe, again and again."""
    while True:
        with open(folder / "pipe", "wb", buffering=0) as file:
            for _ in range(4):
                time.sleep(0.001)
                file.write(b"x" * 32768)


def hold_lock(folder: Path) -> None:
    """Hold the lock most of the time, in a process of its own."""
    code = (
        "import fcntl, sys, time\nfile = open(sys.argv[1])\n"
        "while True:\n fcntl.flock(file, 2); time.sleep(0.03); fcntl.flock(file, 8); time.sleep(0.002)\n"
    )
    subprocess.Popen([sys.executable, "-c", code, str(folder / "lock")])


def log_slowly(folder: Path) -> logging.Handler:
    """Return a handler that syncs each line to the disk of a busy server."""

    class Synced(logging.FileHandler):
        def emit(self, record: logging.LogRecord) -> None:
            super().emit(record)
            os.fsync(self.stream.fileno())
            time.sleep(0.02)  # slow: logging

    return Synced(folder / "log")


def between_steps(step: int, loss: torch.Tensor, model: nn.Module, folder: Path) -> None:
    """Do the work of a script between steps, such as logging, with the cause of slowness if it is one of these."""
    if is_slow("regex"):
        re.match(r"(a+)+$", "a" * 17 + "b")  # slow: regex
    if is_slow("subprocess"):
        subprocess.run(["sh", "-c", "sleep 0.02"], check=True)  # slow: subprocess
    if is_slow("table"):
        json.loads(json.dumps([{"step": n, "loss": n / 7} for n in range(6000)]))  # slow: table
    if is_slow("logging"):
        LOG.warning("step %d: loss %.3f", step, loss.item())  # slow: logging
    if CAUSE == "metric" and dist.get_rank() == 0:
        torch.randn(400_000).sort()  # slow: metric
    if is_slow("checkpoint"):
        torch.save(
            {"model": model.state_dict(), "more": torch.zeros(4_000_000)}, folder / "last.pt"
        )  # slow: checkpoint
    if is_slow("garbage"):
        gc.collect()  # slow: garbage


def slow_hook(*_: object) -> None:
    """Sleep in a hook."""
    time.sleep(0.02)  # slow: forward_hook optimizer_hook backward_hook


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cause")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--after", type=int, default=60, help="first slow step")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    folder = Path(tempfile.mkdtemp(prefix="causes-"))
    (folder / "lock").touch()
    os.mkfifo(folder / "pipe")
    torch.manual_seed(0)
    torch.set_num_threads(2 if arguments.cause == "affinity" else 1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    deadline = time.monotonic() + arguments.seconds

    def begin() -> None:
        """Start the cause, before the loader's workers start."""
        global CAUSE
        CAUSE = arguments.cause
        if is_slow("forward_hook"):
            model.module[0].register_forward_hook(slow_hook)
        if is_slow("backward_hook"):
            model.module[2].weight.register_hook(slow_hook)
        if is_slow("optimizer_hook"):
            optimizer.register_step_pre_hook(slow_hook)
        if is_slow("file"):
            threading.Thread(target=fill_pipe, args=[folder], daemon=True).start()
        if is_slow("lock"):
            hold_lock(folder)
        if is_slow("logging"):
            LOG.addHandler(log_slowly(folder))
        if is_slow("garbage"):
            kept.extend([[n] for n in range(250_000)])
        if dist.get_rank() == SLOW_RANK and CAUSE in {"busy", "quota", "affinity"}:
            rank_is_hindered(CAUSE)

    kept: list[list[int]] = []
    if arguments.cause == "worker":
        begin()
    workers = 1 if arguments.cause == "worker" else 0
    batches = DataLoader(Pictures(folder), batch_size=4, num_workers=workers, collate_fn=collate)
    for step, batch in enumerate(batches, 1):
        loss = model(batch).square().mean()
        for _ in range(8):
            torch.mm(big, big)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        between_steps(step, loss.detach(), model.module, folder)
        if step == arguments.after and not CAUSE:
            begin()
        over = torch.tensor(float(time.monotonic() > deadline))
        if step % 50 == 0:
            dist.all_reduce(over)
            if over:
                break
    dist.destroy_process_group()
    os._exit(0) if CAUSE in {"lock", "file"} else None


def rank_is_hindered(cause: str) -> None:
    """Limit this rank's core: by a busy program beside it, by a quota, or by one core for all its threads."""
    if cause in {"busy", "affinity"}:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), os.sched_getaffinity(0))
    if cause == "busy":
        subprocess.Popen([sys.executable, str(Path(__file__).with_name("causes_busy.py"))])
    if cause == "quota":
        folder = Path("/sys/fs/cgroup/cpu/causes")
        folder.mkdir(exist_ok=True)
        (folder / "cpu.cfs_period_us").write_text("20000")
        (folder / "cpu.cfs_quota_us").write_text("6000")
        (folder / "cgroup.procs").write_text(str(os.getpid()))


big = torch.randn(320, 320)
if __name__ == "__main__":
    main()
