"""Causes and next steps of failures whose messages, from torch, NCCL, gloo or Python, do not say what to do.

The first row whose pattern is in the exception's message applies. Its sentences may use the pattern's named groups and
facts that the failing rank looked up (`probe/failure_facts.py`). A row applies only if all the groups and facts in its
sentences are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from string import Formatter
from typing import Literal


@dataclass(frozen=True)
class KnownFailure:
    """A row of the table of known failures."""

    says: str
    """A regular expression, searched for without regard to case. Facts follow the message as lines of name=value."""
    cause: str = ""
    """The cause in clear words; "": the exception's own words already name the cause."""
    advice: str = ""
    lost_peer: bool = False
    """True if the cause is another rank's end or absence."""
    ranks: Literal["any", "some", "several"] = "any"
    """Ranks that must have failed. "some": not all ranks failed alike. "several": the run has several ranks."""

    @cached_property
    def needed_names(self) -> list[str]:
        """Return the names of the groups and facts in the row's sentences."""
        return [name for _, name, _, _ in Formatter().parse(self.cause + self.advice) if name]


SHARED_MEMORY = (
    "Give the container more shared memory (docker run --shm-size=8g or --ipc=host; in Kubernetes an emptyDir with"
    " medium: Memory at /dev/shm), or use fewer workers, smaller batches or a lower prefetch_factor."
)
ONE_MODEL = (
    "Build the same model on every rank before you wrap it in DDP. Load checkpoints, add adapters or heads, and freeze"
    " layers on all ranks, not only on rank 0."
)
FREE_PORT = (
    "End that process, or let torchrun choose a free port: use --standalone on one machine, and set no fixed port in"
    " the script."
)
LABELS = (
    "A label is not one of the model's classes. Compare the smallest and largest label with the size of the last layer;"
    " set ignore_index for labels that the loss must ignore."
)
INDICES = (
    "An index is too large for its table, for example a token id beyond the rows of an embedding. Compare the largest"
    " index with num_embeddings and the tokenizer's vocabulary."
)
LESS_MEMORY = (
    "Use smaller batches with gradient accumulation, which keeps the effective batch size. Activation checkpointing and"
    " bf16 also need less memory."
)
RENDEZVOUS = (
    "Check that every node started torchrun with the same --nnodes and --rdzv-endpoint (or MASTER_ADDR and"
    " MASTER_PORT). The host name must resolve on each node, and no firewall may block the port."
)
PICKLE = (
    "Python pickles the dataset, collate_fn and worker_init_fn for spawned processes. Define these "
    "functions and classes at the top level of a module, without lambdas. Open files, locks and "
    "connections in the worker, not in __init__."
)
INCOMPLETE = (
    "The file is incomplete. If every rank downloads or unpacks the file, let one rank do so while the others wait in"
    " dist.barrier(). Otherwise delete the file, which may be left from an earlier run."
)
NCCL_LOG = "NCCL_DEBUG=WARN prints what failed. If NCCL uses the wrong network interface, set NCCL_SOCKET_IFNAME."

KNOWN_FAILURES = (
    # DataLoader workers. These rows precede the rows for exceptions that ranks raise because a worker ended.
    KnownFailure(
        "worker_signal=SIGBUS",
        "DataLoader worker {worker} was killed by SIGBUS, as when /dev/shm is full ({shared_memory})",
        SHARED_MEMORY,
    ),
    KnownFailure(
        r"killed by signal: Bus error|Unexpected bus error encountered in worker",
        "a DataLoader worker was killed by SIGBUS, as when /dev/shm is full",
        SHARED_MEMORY,
    ),
    KnownFailure(
        "worker_signal=SIGKILL",
        "DataLoader worker {worker} was killed by SIGKILL",
        "Usually the kernel sends SIGKILL because memory is short (see dmesg). Fewer workers, smaller batches and a"
        " lower prefetch_factor need less memory.",
    ),
    KnownFailure(
        "worker_signal=(?P<worker_signal>SIG(?:SEGV|ABRT|ILL|FPE))",
        "DataLoader worker {worker} was killed by {worker_signal}",
        "A library crashed in the DataLoader worker. With num_workers=0 and PYTHONFAULTHANDLER=1, the crash prints the "
        "Python line.",
    ),
    KnownFailure("worker_signal=SIG(?:TERM|INT|HUP)|worker .* is killed by signal: Terminated", lost_peer=True),
    # DDP
    KnownFailure(
        "Expected to have finished reduction in the prior iteration",
        "{parameters} got no gradient in the step before: expected to have finished reduction in the prior iteration",
        "Use every parameter in the loss of every step, or wrap the model with find_unused_parameters=True, which"
        " searches the graph in each step.",
    ),
    KnownFailure(
        "Expected to have finished reduction in the prior iteration",
        "parameters got no gradient in the step before: expected to have finished reduction in the prior iteration",
        "Use every parameter in the loss of every step, or wrap the model with find_unused_parameters=True."
        " TORCH_DISTRIBUTED_DEBUG=DETAIL names the parameters.",
    ),
    KnownFailure(
        "mark a variable ready only once",
        "the gradient of {parameters} was ready twice in one backward: expected to mark a variable ready only once",
        "One possible cause is reentrant activation checkpointing (pass use_reentrant=False). Another possible cause "
        "is a parameter that several forwards use before one backward. If the graph is the same in each step, DDP with "
        "static_graph=True accepts this.",
    ),
    KnownFailure(
        "mark a variable ready only once",
        "a gradient was ready twice in one backward: expected to mark a variable ready only once",
        "One possible cause is reentrant activation checkpointing (pass use_reentrant=False). Another possible cause "
        "is a parameter that several forwards use before one backward. TORCH_DISTRIBUTED_DEBUG=DETAIL names the "
        "parameter.",
    ),
    KnownFailure(
        "DDP expects same model|appears not to match sizes of the same param",
        "the ranks' models differ: {difference}",
        ONE_MODEL,
    ),
    KnownFailure(
        r"DDP expects same model.*Rank (?P<here>\d+) has (?P<own>\d+) params, while rank (?P<there>\d+) has"
        r" inconsistent (?P<other>\d+)",
        "the ranks' models differ: rank {here} trains {own} parameters and rank {there} {other}; frozen on rank {here}:"
        " {frozen}",
        ONE_MODEL,
    ),
    KnownFailure("DDP expects same model|appears not to match sizes of the same param", "", ONE_MODEL),
    KnownFailure(
        "modified by an inplace operation",
        "",
        "torch.autograd.set_detect_anomaly(True) names the operation. Two forwards of a DDP model before one backward"
        " also cause this, because each forward copies the buffers of rank 0: set broadcast_buffers=False.",
    ),
    # collectives
    KnownFailure(
        r"op\.preamble\.length <= op\.nbytes\. (?P<got>\d+) vs (?P<own>\d+)",
        "a collective got {got} bytes from another rank and expected {own}: the ranks called it with tensors of"
        " different shapes, or called different collectives",
        "Give a collective the same shape on every rank: use drop_last=True for an uneven last batch, or gather the"
        " sizes first and pad. If only some ranks enter an `if` with a collective, the ranks no longer "
        "call the same collectives.",
    ),
    KnownFailure(
        r"Duplicate GPU detected ?: rank (?P<one>\d+) and rank (?P<two>\d+) both on CUDA device (?P<device>\w+)",
        "ranks {one} and {two} use the same GPU, which NCCL refuses: duplicate GPU detected, CUDA device {device}",
        'Call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before init_process_group and DDP, and start no more'
        " ranks than the machine has GPUs.",
    ),
    KnownFailure(r"nccl.*(?:/dev/shm/nccl|shared memory segment)", "", SHARED_MEMORY),
    KnownFailure(
        "ncclRemoteError|remote process exited or there was a network error",
        "",
        "NCCL lost the connection to another rank: find out on the node of that rank why it ended. "
        "NCCL_DEBUG=WARN names the connection.",
        lost_peer=True,
    ),
    KnownFailure("NCCL communicator was aborted", "", lost_peer=True),
    KnownFailure(
        r"timed out waiting (?P<s>\d+)\d{3}ms for (?:recv|send) operation",
        "it waited {s} s for another rank, which is the timeout of its process group: timed out",
        "Look at what the missing rank did in that time. If that rank evaluates or saves alone, let every rank do a"
        " part, or allow more time: init_process_group(timeout=timedelta(…)).",
        lost_peer=True,
    ),
    KnownFailure(
        "watchdog.*(?:timeout|timed out|timing out)|ran for \\d+ milliseconds before timing out", lost_peer=True
    ),
    KnownFailure("nccl.*(?:connection refused|connection reset|closed by peer|no route)", "", NCCL_LOG, lost_peer=True),
    # GPUs
    KnownFailure(
        r"CUDA out of memory\. Tried to allocate (?P<wanted>[\d.]+ \w+)\. GPU (?P<gpu>\d+) has a total capacity of"
        r" (?P<total>[\d.]+ \w+) of which (?P<free>[\d.]+ \w+) is free",
        "CUDA out of memory: it tried to allocate {wanted}, and {free} of {total} were free on GPU {gpu}",
        LESS_MEMORY,
    ),
    KnownFailure("CUDA out of memory", "", LESS_MEMORY),
    KnownFailure("device-side assert triggered.*n_classes", "", LABELS),
    KnownFailure("device-side assert triggered.*(?:srcSelectDimSize|index out of bounds|< sizes)", "", INDICES),
    KnownFailure(
        "device-side assert triggered",
        "",
        "The usual cause is a label or an index that is out of range. CUDA_LAUNCH_BLOCKING=1 makes the "
        "exception name the line.",
    ),
    KnownFailure(
        "CUDA driver version is insufficient|NVIDIA driver on your system is too old",
        "",
        "Update the driver, or install a torch build for the CUDA version that nvidia-smi shows in its first line.",
    ),
    KnownFailure(
        "no kernel image is available",
        "",
        "This torch build has no code for this GPU: compare torch.cuda.get_arch_list() with"
        " torch.cuda.get_device_capability() and install a build that has it.",
    ),
    KnownFailure("ncclSystemError|unhandled system error", "", NCCL_LOG),
    KnownFailure("nccl(?:InternalError|UnhandledCudaError|InvalidUsage|InvalidArgument)", "", NCCL_LOG),
    # ports and the rendezvous
    KnownFailure(
        "EADDRINUSE|address already in use",
        "port {port} is held by {holder}: address already in use",
        FREE_PORT,
    ),
    KnownFailure("EADDRINUSE|address already in use", "", f"`ss -ltnp` shows who holds the port. {FREE_PORT}"),
    KnownFailure(
        "clients joined|failed to connect to any network address|trying to connect to|cannot be retrieved"
        "|Rendezvous\\w*(?:Timeout|Connection)Error",
        "",
        RENDEZVOUS,
        lost_peer=True,
    ),
    KnownFailure(
        "connectFullMesh failed",
        "",
        "Ranks connect to each other at other ports than the rendezvous. Check whether the other rank has ended, and"
        " whether a firewall blocks these ports. If gloo uses the wrong network interface, set GLOO_SOCKET_IFNAME.",
        lost_peer=True,
    ),
    # the machine
    KnownFailure(
        r"No space left on device[\s\S]*full=/dev/shm",
        "no space left on device: {full} is full",
        SHARED_MEMORY,
    ),
    KnownFailure(
        "No space left on device",
        "no space left on device: the disk of {full} is full",
        "Free space there, or write somewhere else. Old checkpoints and caches (TMPDIR, HF_HOME) often "
        "take much space.",
    ),
    KnownFailure(
        r"inline_container\.cc.*unexpected pos|PytorchStreamWriter failed",
        "torch.save could not write its whole file",
        "The disk is full, its quota is used up, or it is no longer mounted (`df -h`). Write each checkpoint to a "
        "temporary name and then rename it, so that the last checkpoint stays complete.",
    ),
    KnownFailure("No space left on device", "", "`df -h` shows which disk is full; look at TMPDIR and /dev/shm too."),
    KnownFailure(
        "Too many open files|items of ancdata",
        "too many open files: the limit of this process is {open_files}",
        "Raise the limit (ulimit -n 65536), or call torch.multiprocessing.set_sharing_strategy('file_system'): each"
        " tensor from a DataLoader worker keeps a file open.",
    ),
    KnownFailure(
        "Too many open files|items of ancdata",
        "",
        "Raise the limit (ulimit -n 65536), or call torch.multiprocessing.set_sharing_strategy('file_system').",
    ),
    KnownFailure(
        "killed by SIGKILL(?!, )",
        "",
        "The kernel sends SIGKILL when memory is short (see dmesg), and a scheduler sends it at a limit of the job.",
    ),
    KnownFailure(
        "killed by SIGBUS",
        "",
        f"A mapped file could not be read or written, as when /dev/shm or a disk is full. {SHARED_MEMORY}",
    ),
    KnownFailure(
        "killed by SIG(?:SEGV|ILL|FPE)",
        "",
        "A library crashed in a call from {line}. Run that line alone with the same input, and try another version.",
    ),
    KnownFailure(
        "killed by SIG(?:SEGV|ILL|FPE)",
        "",
        "A library crashed. With PYTHONFAULTHANDLER=1, Python prints the line that called the library.",
    ),
    # the script
    KnownFailure(
        r"FileExistsError[\s\S]*\bpath=",
        "{path} already exists, and was created after this rank had started: FileExistsError",
        "All ranks run this line at the same time, and another rank was faster. Let one rank download, unpack or make "
        "folders (if rank == 0, and then dist.barrier()), or pass exist_ok=True.",
        ranks="several",
    ),
    KnownFailure(
        "BadGzipFile|BadZipFile|end-of-stream marker|unexpected end of data|pickle data was truncated"
        "|failed finding central directory|Error while deserializing header|EOFError: Ran out of input",
        "",
        INCOMPLETE,
        ranks="several",
    ),
    KnownFailure(
        r"Can't pickle|cannot pickle|Can't get (?:local object|attribute .* on <module '__main__')|PicklingError",
        "",
        PICKLE,
    ),
    KnownFailure(
        "^(?:ImportError|ModuleNotFoundError)",
        "",
        "Only some ranks fail with this error, so the environments of the ranks differ. This rank runs {python}. "
        "Compare the Python, PYTHONPATH and the node with those of the other ranks.",
        ranks="some",
    ),
    KnownFailure(
        "^(?:ImportError|ModuleNotFoundError)",
        "",
        "Install the module for the Python that runs the ranks, {python}, or activate another environment.",
    ),
    KnownFailure(
        "^(?:ImportError|ModuleNotFoundError)",
        "",
        "Install the module for the Python that runs the ranks, or activate another environment.",
    ),
    KnownFailure(
        "^[^:]+: error: (?:unrecognized arguments|argument |the following arguments are required|ambiguous option)",
        "",
        "The script rejects its arguments: all that follows the script belongs to it. Options of ddpmon and torchrun"
        " precede the script.",
    ),
    KnownFailure(
        r"\noption=(?P<option>\S+)",
        "",
        "The script got {option}, as all that follows the script belongs to it. If you meant ddpmon's {option}, write"
        " it before the script.",
    ),
    KnownFailure(r"Target -?\d+ is out of bounds", "", LABELS),
    KnownFailure("IndexError: index out of range in self", "", INDICES),
    KnownFailure(
        r"it exited after [\d,]+ steps? without an exception",
        "",
        "Let all ranks leave the loop in the same step: all-reduce the decision to stop, give every rank the same"
        " number of batches, or wrap the loop in model.join().",
    ),
    KnownFailure(
        r"^exit(?:ed with)? \d+\b",
        "",
        "The script ended this rank itself, as sys.exit does, or a library did. `ddpmon logs --rank {rank}` shows the"
        " rank's last output, which often says why.",
    ),
    # Messages of ranks whose peer has gone, in various wordings.
    KnownFailure(
        r"connection (?:was )?(?:likely )?(?:closed|reset|refused)|by peer|broken pipe|timed out|socket timeout"
        r"|wait timeout|caused pair closure|TCPStore|monitoredBarrier|gloo/transport/tcp",
        lost_peer=True,
    ),
)
