"""A public training program as field_scripts.toml describes it, and a copy of its checkout that can run here."""

from __future__ import annotations

import ast
import os
import re
import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import field_data

WITNESS = Path(__file__).parent / "field_witness.py"
INSIDE = r"(?:[^()]|\([^()]*\))*"
"""Pattern of the text between a call's parentheses, nested calls included."""
FOR_CPU = (
    (rf"torch\.cuda\.(set_device|synchronize|empty_cache)\({INSIDE}\)", "None"),
    (rf"\.cuda\({INSIDE}\)", ".cpu()"),
    (r"device_ids=\[[^\]]*\]", "device_ids=None"),
    (r"(['\"])nccl\1", '"gloo"'),
    (r"assert torch\.cuda\.is_available\(\)", "assert True"),
    (r"f?(['\"])cuda:[^'\"]*\1", '"cpu"'),
    (r"(device ?= ?|default ?= ?|device\(|to\()(['\"])cuda\2", r'\1"cpu"'),
    (r"\.to\((self\.gpu_id|self\.local_rank|gpu_id|rank)\)", '.to("cpu")'),
    (r"torch\.cuda\.device_count\(\)", "2"),
    (r"(torch\.)?nn\.SyncBatchNorm\.convert_sync_batchnorm\((\w+)\)", r"\2"),
    (r"dist\.all_reduce\((\w+), op=dist\.ReduceOp\.AVG\)", r"dist.all_reduce(\1); \1 /= dist.get_world_size()"),
)
"""Replacements with which most programs run as two processes without a GPU, in the files that `cpu` names."""
OFFLINE = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"),
    **dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"), "1"),
    "CUDA_VISIBLE_DEVICES": "",
    "no_proxy": "localhost,127.0.0.1",
}
STILL = {
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "COLUMNS": "120",
}
"""Variables with which two runs of one script print the same, without anything that depends on the clock."""


class UnfitError(Exception):
    """Reports a checkout that does not match its description."""


@dataclass(frozen=True)
class Program:
    """One program. The texts of commands, edits and environment may contain {python}, {bin}, {data} and {checkouts}."""

    name: str
    repository: str
    entry: str
    """The file that is started, below `folder`."""
    batch: int
    """Samples of one rank in one step, gradient accumulation included."""
    steps: int
    """Number of steps that the program makes."""
    calls: int = 0
    """Calls of `step` of its busiest optimizer, if there are more than `steps`: a step may update a model twice."""
    folder: str = ""
    launch: str = "run"
    """run: torchrun starts `entry` with `args`; exec: `args` are the whole command line of a launcher."""
    args: tuple[str, ...] = ()
    ranks: int = 2
    cpu: tuple[str, ...] = ()
    edits: tuple[dict[str, str], ...] = ()
    """Edits {file, find, put}: a regular expression, which must match, and its replacement."""
    stand_ins: dict[str, str] = field(default_factory=dict)
    """Files and texts that replace modules which are not installed and not examined."""
    data: tuple[str, ...] = ()
    """Calls of functions of field_data: name and arguments in one text."""
    env: dict[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    """Folders for PYTHONPATH."""
    mask: tuple[str, ...] = ()
    """Patterns of output that differs between runs, mostly times."""


def programs(table: Path) -> list[Program]:
    described = tomllib.loads(table.read_text())["program"]
    lists = {"args", "cpu", "edits", "data", "paths", "mask"}
    return [Program(**{k: tuple(v) if k in lists else v for k, v in one.items()}) for one in described]


@dataclass(frozen=True)
class Copy:
    """A copy of a checkout for one run, so that no run finds files of another."""

    program: Program
    root: Path
    python: str
    checkouts: Path

    @property
    def folder(self) -> Path:
        return self.root / "code" / self.program.folder

    @property
    def witness(self) -> Path:
        return self.root / "witness"

    def make(self) -> None:
        """Copy and edit the checkout, and add the witness and the data. Raise UnfitError if it does not match its
        description.
        """
        program = self.program
        checkout = self.checkouts / program.repository.split("/")[1]
        if not (checkout / program.folder / program.entry).is_file():
            raise UnfitError(f"no {program.folder}/{program.entry} in {checkout}")
        shutil.copytree(checkout, self.root / "code", ignore=shutil.ignore_patterns(".git"))
        for name in program.cpu:
            self._edit(name, FOR_CPU)
        for edit in program.edits:
            self._edit(edit["file"], [(edit["find"], self._filled(edit["put"]))], needed=True)
        self._add_witness(self.folder / program.entry)
        self.witness.mkdir()
        modules = self.root / "modules"
        modules.mkdir()
        shutil.copy(WITNESS, modules)
        for name, text in program.stand_ins.items():
            (modules / name).parent.mkdir(parents=True, exist_ok=True)
            (modules / name).write_text(self._filled(text))
        for call in program.data:
            name, *arguments = call.split()
            getattr(field_data, name)(self.root / "data", *arguments)

    def _edit(self, name: str, edits: object, *, needed: bool = False) -> None:
        path = self.folder / name
        text = path.read_text()
        for find, put in edits:
            text, times = re.subn(find, lambda match, put=put: match.expand(put), text, flags=re.MULTILINE)
            if needed and not times:
                raise UnfitError(f"{self.program.name}: {name} has no {find!r}")
        path.write_text(text)

    def _add_witness(self, path: Path) -> None:
        """Insert the witness's import after the script's own imports, so that these stay first, in their order."""
        text = path.read_text()
        imports = [n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom)]
        lines = text.splitlines(keepends=True)
        lines.insert(imports[-1].end_lineno, "import field_witness\n")
        path.write_text("".join(lines))

    def _filled(self, text: str) -> str:
        places = {
            "{python}": self.python,
            "{bin}": str(Path(self.python).parent),
            "{data}": str(self.root / "data"),
            "{checkouts}": str(self.checkouts),
        }
        for name, place in places.items():
            text = text.replace(name, place)
        return text

    @property
    def arguments(self) -> list[str]:
        return [self._filled(text) for text in self.program.args]

    def environment(self, **more: str) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("DDPMON", "HF_", "PYTHON"))}
        paths = [str(self.root / "modules"), *(self._filled(path) for path in self.program.paths)]
        own = {
            "FIELD_WITNESS": str(self.witness),
            "PYTHONPATH": os.pathsep.join(paths),
            "PATH": f"{Path(self.python).parent}{os.pathsep}{os.environ['PATH']}",
            **dict.fromkeys(("HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME"), str(self.root / "cache")),
        }
        given = {name: self._filled(text) for name, text in self.program.env.items()}
        return inherited | OFFLINE | STILL | own | given | more

    def masked(self, text: str) -> list[str]:
        """Return the lines of output, with everything masked that differs between runs."""
        text = text.replace(str(self.root), "<copy>")
        for pattern in (*self.program.mask, *ALWAYS_DIFFERENT):
            text = re.sub(pattern, "#", text)
        return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


ALWAYS_DIFFERENT = (
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([.,]\d+)?",
    r"\b\d\d:\d\d:\d\d([.,]\d+)?\b",
    r"\b\d+:\d\d:\d\d\b",
    r"\[rank\d\]:[A-Z]\d{4} ",
    r"(?i)\bpid[ =:]*\d+",
)
