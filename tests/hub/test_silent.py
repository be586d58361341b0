"""A silent rank is asked by a signal only where that is safe, and its answer is read."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddpmon.hub.silent_ranks import MIN_SIGNAL_INTERVAL_S, SilentRanks
from ddpmon.messages import PROTOCOL, STAGE_TRAINING, Hello, Stack
from ddpmon.messages.folder import STACKS
from ddpmon.messages.signals import STACK_SIGNAL
from ddpmon.runs import Process
from ddpmon.store.processes import RankProcess
from tests.hub.conftest import until

ARMED = """
import ctypes, os, sys
from ddpmon.messages.folder import Places
from ddpmon.probe import stack_signal
def holds_the_lock():
    ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)
def plain():
    os.read(0, 1)
stack_signal.arm(Places("/nowhere/", [], []))
print("ready", flush=True)
{then}
"""


class Rank:
    def __init__(self, folder, source):
        self.program = subprocess.Popen(
            [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"DDPMON_RUN_DIR": str(folder)},
        )  # fmt: skip
        assert self.program.stdout.readline() == "ready\n"
        pid = self.program.pid
        hello = Hello(PROTOCOL, "run", 1, 1, 2, 0, "here", pid, STAGE_TRAINING)
        self.process = RankProcess(1, 0, hello, Process.of(pid), steps=7)

    def state(self):
        return Path(f"/proc/{self.program.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def rank(folder):
    made = []

    def start(then, source=ARMED):
        made.append(Rank(folder, source.format(then=then)))
        return made[-1]

    yield start
    for one in made:
        one.program.kill()
        one.program.wait()
        one.program.stdin.close()
        one.program.stdout.close()


def asked(silent, rank):
    """Look until there is an answer, each time as if the pause between two signals were over."""
    now = [0.0]

    def answered():
        now[0] += MIN_SIGNAL_INTERVAL_S + 1
        return silent.examine_rank(rank.process, now[0], 5) and "holds_the_lock" in str(rank.process.stack.frames)

    return until(answered, "an answer from where the lock is held")


def test_a_rank_that_holds_the_gil_tells_its_line_and_is_not_disturbed(folder, rank):
    held = rank("holds_the_lock()")
    asked(SilentRanks(folder), held)
    stack = held.process.stack
    assert stack.frames[-2:] == ["<string>:6 holds_the_lock", "<string>:11 <module>"]
    assert (stack.rank, stack.step, stack.since_us, stack.blocked) == (1, 7, 5, False)
    assert held.program.poll() is None
    held.program.stdin.write("x")
    held.program.stdin.flush()
    assert held.program.wait(20) == 0


def test_a_rank_that_trains_in_a_thread_tells_the_line_of_that_thread(folder, rank):
    """Main waits for it meanwhile, as Ray Train's workers do."""
    held = rank(
        "import threading\ndef trains(): stack_signal.keep(threading.get_native_id()); holds_the_lock()\n"
        "thread = threading.Thread(target=trains)\nthread.start()\nthread.join()"
    )
    asked(SilentRanks(folder), held)
    assert "<string>:12 trains" in held.process.stack.frames
    assert not any("<module>" in frame for frame in held.process.stack.frames)
    held.program.stdin.write("x")
    held.program.stdin.flush()
    assert held.program.wait(20) == 0


def test_a_process_that_does_not_catch_the_signal_is_not_sent_it(folder, rank):
    """The offer is there, as one is after exec: the program that made it is gone."""
    careless = rank("", source="import os\nprint('ready', flush=True)\nos.read(0, 1)")
    offer = folder / STACKS / f"{careless.program.pid}.stack"
    offer.parent.mkdir(mode=0o700)
    offer.touch()
    silent = SilentRanks(folder)
    for now in range(0, 60, 6):
        assert not silent.examine_rank(careless.process, float(now), 5)
    assert careless.program.poll() is None
    os.kill(careless.program.pid, STACK_SIGNAL)
    assert careless.program.wait(20) == -STACK_SIGNAL, "and it would have killed it"


def test_a_rank_is_asked_when_it_is_silent_twice_and_then_not_often(folder, rank):
    held = rank("holds_the_lock()")
    until(lambda: held.state() == "S", "it reads")
    silent = SilentRanks(folder)
    sent = []
    silent._ask = lambda process, _thread: sent.append(process) or True
    for now in (0.0, 0.5, 1.0, 2.0, 0.5 + MIN_SIGNAL_INTERVAL_S, 1.0 + MIN_SIGNAL_INTERVAL_S):
        silent.examine_rank(held.process, now, 5)
    assert len(sent) == 2
    silent.forget_rank(held.process)
    silent.examine_rank(held.process, 100.0, 5)
    assert len(sent) == 2


def test_a_stopped_process_is_told_as_such_and_not_signalled(folder, rank):
    stopped = rank("holds_the_lock()")
    os.kill(stopped.program.pid, signal.SIGSTOP)
    until(lambda: stopped.state() == "T", "it is stopped")
    silent = SilentRanks(folder)
    for now in (0.0, 5.0, 10.0):
        assert not silent.examine_rank(stopped.process, now, 5)
        assert (stopped.process.held.pid, stopped.process.held.how) == (stopped.program.pid, "stopped")
    os.kill(stopped.program.pid, signal.SIGCONT)
    until(lambda: stopped.state() == "S", "it goes on")
    assert (folder / STACKS / f"{stopped.program.pid}.stack").read_bytes() == b""
    silent.examine_rank(stopped.process, 15.0, 5)
    assert stopped.process.held is None


def test_a_process_that_the_kernel_holds_is_told_as_such_if_it_stays(folder, rank):
    """A parent waits uninterruptibly until its spawned child runs its program; the child waits for a pipe before."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    held = rank(f"os.posix_spawn('/bin/true', ['true'], {{}}, file_actions=[(0, 5, {str(pipe)!r}, os.O_RDONLY, 0)])")
    until(lambda: held.state() == "D", "it waits in the kernel")
    silent = SilentRanks(folder)
    silent.examine_rank(held.process, 0.0, 5)
    assert held.process.held is None, "once may be an ordinary read"
    silent.examine_rank(held.process, 5.0, 5)
    assert (held.process.held.how, held.state()) == ("kernel", "D")
    pipe.write_bytes(b"")
    assert held.program.wait(20) == 0


@pytest.mark.parametrize(
    "script",
    [
        "import signal; signal.signal({number}, lambda *_: os.write(1, b'mine')); stack_signal.keep(None); plain()",
        "stack_signal.withdraw(); plain()",
    ],
)
def test_an_offer_that_does_not_hold_any_more_is_withdrawn(folder, rank, script):
    own = rank(f"{script.format(number=STACK_SIGNAL)}")
    until(lambda: not list((folder / STACKS).iterdir()), "nothing is offered")
    silent = SilentRanks(folder)
    for now in range(0, 30, 6):
        assert not silent.examine_rank(own.process, float(now), 5)
    own.program.stdin.close()
    assert own.program.wait(20) == 0
    assert own.program.stdout.read() == "", "the script's own handler never ran"


@pytest.mark.parametrize("before", ["lambda *_: None", "signal.SIG_IGN"])
def test_a_signal_that_the_script_uses_is_left_to_it(folder, rank, before):
    source = f"import signal; signal.signal({STACK_SIGNAL}, {before})\n" + ARMED
    rank("plain()", source=source)
    assert not (folder / STACKS).exists()


def test_a_forked_child_leaves_its_parents_offer(folder, rank):
    parent = rank(
        "pid = os.fork()\nif not pid: stack_signal.forked(); stack_signal.withdraw(); os._exit(0)\nos.waitpid(pid, 0)\n"
        "print('ready', flush=True)\nholds_the_lock()"
    )
    assert parent.program.stdout.readline() == "ready\n"
    asked(SilentRanks(folder), parent)
    assert "holds_the_lock" in parent.process.stack.frames[-2]


def test_a_worker_that_a_rank_waits_for_answers_for_itself(folder, rank):
    parent = rank(
        "def stuck():\n    print(os.getpid(), flush=True)\n    os.read(0, 1)\n"
        "pid = os.fork()\nif not pid: stack_signal.forked(); stuck(); os._exit(0)\nos.waitpid(pid, 0)\n"
    )
    pid = int(parent.program.stdout.readline())
    hears, now = SilentRanks(folder), time.monotonic()
    parent.process.stack = Stack(1, parent.program.pid, 0, 7, 0, 0, ["train.py:1 main"], worker=pid)
    until(lambda: hears.check_worker(parent.process, now) and parent.process.worker.line, "its answer")
    assert parent.process.worker.line.endswith(" stuck")
    hears.check_worker(parent.process, now + MIN_SIGNAL_INTERVAL_S)
    assert (parent.process.worker.pid, parent.process.worker.cores) == (pid, 0.0)
    hears.forget_worker(parent.process)
    assert parent.process.worker is None
    parent.process.stack.worker = os.getpid()
    assert not hears.check_worker(parent.process, now), "that is no child of the rank"
    assert parent.process.worker is None


def test_without_a_folder_of_this_user_alone_nothing_is_offered(folder, rank):
    folder.chmod(0o755)
    rank("plain()")
    assert not (folder / STACKS).exists()
    began = time.monotonic()
    assert not SilentRanks(folder).examine_rank(rank("plain()").process, began, 5)
