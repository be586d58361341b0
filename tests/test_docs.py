"""README and docs say what is so: pages made from code are up to date, links hold, commands are commands."""

from __future__ import annotations

import functools
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from ddpmon.analysis.kinds import KINDS
from ddpmon.cli import command_line
from ddpmon.cli.commands.replaying import unpack
from ddpmon.export import report
from tests.in_process import called

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
REFERENCE = runpy.run_path(str(DOCS / "reference.py"))
PAGES = [ROOT / "README.md", ROOT / "training" / "README.md", *sorted(DOCS.rglob("*.md"))]
FIRST_READ = [
    ROOT / "README.md",
    ROOT / "training" / "README.md",
    *(DOCS / name for name in ("index.md", "install.md", "tutorial.md", "coming-from.md")),
    *sorted((DOCS / "howto").glob("*.md")),
]
"""Pages that people read first. Their sentences are short, and have an actor."""
MAX_WORDS = 25
BEGINNINGS = re.compile(r"(?:Of|What of|As of)\b")
WITHOUT_ACTOR = re.compile(r"\bis (?:told|said|known|held)\b")
READ = {"diff", "export", "logs", "ls", "report", "status"}
"""Commands that a recording is enough for: they are run. The others start, watch or stop runs, which tests/cli,
tests/remote, tests/launch and tests/test_main_job.py do."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The run that ships with ddpmon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDPMON_HOME", str(tmp_path_factory.mktemp("docs") / "home"))
        yield unpack()


@pytest.mark.parametrize("name", sorted(REFERENCE["PAGES"]))
def test_pages_that_are_made_from_code_are_up_to_date(name):
    made = REFERENCE["PAGES"][name]().rstrip() + "\n"
    assert (DOCS / "reference" / name).read_text() == made, "python docs/reference.py brings it up to date"


def test_every_kind_of_finding_says_what_to_do():
    assert [kind.name for kind in KINDS if len(REFERENCE["what_to_do"](kind)) < 20] == []
    assert {kind.name for kind in KINDS} >= REFERENCE["FALSE_ALARMS"].keys()


def test_every_variable_that_ddpmon_reads_or_sets_is_in_the_table():
    code = "\n".join(path.read_text() for path in (ROOT / "ddpmon").rglob("*.py"))
    named = set(re.findall(r"\b(?<!_)DDPMON_[A-Z_]*[A-Z]\b", code)) - {"DDPMON_COMPLETE"}  # click's own
    assert named == {name for name in REFERENCE["VARIABLES"] | REFERENCE["INNER"] if name.startswith("DDPMON_")}


def fields(built: Any, path: str = "") -> Iterator[str]:
    """The fields of a report; those whose names are the run's own are one field."""
    own_names = {"ranks[].named_ms", "findings[].evidence", "time.pauses", "ranks[].gpu", "run.attempts"}
    if isinstance(built, dict) and path not in own_names:
        for name, value in built.items():
            yield from fields(value, f"{path}.{name}" if path else name)
    elif isinstance(built, list) and built and isinstance(built[0], dict) and path not in own_names:
        yield from fields(built[0], f"{path}[]")
    else:
        yield path


def test_every_field_of_the_report_is_described_and_every_described_one_is_there(demo):
    page = (DOCS / "reference" / "report.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    described = set(re.findall(r"`([^`]+)`", " ".join(rows)))
    there = set(fields(report.build(demo)))
    phases = {name for name in there if ".phases_ms." in name}
    assert {"ranks[].phases_ms.data", "ranks[].phases_ms.transfer"} <= described & phases
    assert described - phases == there - phases


def test_the_site_builds_with_every_link_in_place(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "site" / "reference" / "findings" / "index.html").exists()


def test_every_screen_has_its_picture_on_a_page_about_it():
    pages = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    pictures = sorted(path.name for path in (ROOT / "screenshots").glob("*.svg"))
    assert [name for name in pictures if f"screenshots/{name})" not in pages] == []


def test_links_of_the_readme_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / "README.md").read_text()):
        assert "://" in target or (ROOT / target).exists(), target


def marked(page: Path) -> Iterator[tuple[bool, str]]:
    """Yield (is code, line) of a page. Code is fenced, or indented by four columns more than the text around it."""
    fenced = listed = code = False
    before = ""
    for line in page.read_text().splitlines():
        if line.strip().startswith("```"):
            fenced = not fenced
            yield True, ""
            continue
        if re.match(r"(?:[-*]|\d+\.) ", line):
            listed = True
        elif line.strip() and not line.startswith(" "):
            listed = False
        code = line.startswith(" " * (8 if listed else 4)) and (code or not before.strip())
        yield fenced or code, line
        before = line


def prose(page: Path) -> Iterator[str]:
    """Yield each paragraph, list item, heading and table cell. Code is left out."""
    paragraph: list[str] = []
    for is_code, line in [*marked(page), (False, "")]:
        begins = re.match(r"\s*(?:[-*] |\d+\. |#+ |\|)", line)
        if paragraph and (is_code or begins or not line.strip()):
            yield " ".join(paragraph)
            paragraph = []
        if not is_code and re.match(r"\s*\|", line):
            yield from (cell.strip() for cell in line.split("|"))
        elif not is_code and line.strip():
            paragraph.append(re.sub(r"^\s*(?:[-*] |\d+\. |#+ )?", "", line).strip())


def sentences(page: Path) -> Iterator[str]:
    """Yield the sentences of a page. A span of code or a link's text counts as the words that a reader sees."""
    for paragraph in prose(page):
        plain = re.sub(r"`[^`]*`", "code", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)).replace("**", "")
        yield from re.split(r"(?<=[.!?])\s+", plain)


@pytest.mark.parametrize("page", FIRST_READ, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_sentences_of_pages_that_people_read_first_are_short_and_have_an_actor(page):
    told = list(sentences(page))
    assert [sentence for sentence in told if len(sentence.split()) > MAX_WORDS] == []
    assert [sentence for sentence in told if BEGINNINGS.match(sentence) or WITHOUT_ACTOR.search(sentence)] == []


def blocks(page: Path) -> Iterator[str]:
    """Yield the lines of a page's blocks of code."""
    yield from (line.strip() for is_code, line in marked(page) if is_code and line.strip())


def lines() -> list[tuple[str, str]]:
    """(page, command line) of every line in a block of code that begins with ddpmon; of several pages, the first."""
    commands: dict[str, str] = {}
    for page in PAGES:
        if page.name != "commands.md":  # help texts, in which any line may begin with the word
            for line in blocks(page):
                if line.startswith("ddpmon "):
                    commands.setdefault(re.split(r"\s{2,}#|\s>\s", line)[0], str(page.relative_to(ROOT)))
    return [(page, line) for line, page in commands.items() if not {"…", "|", "["} & set(line)]


def parsed(words: list[str]) -> click.Context:
    """Its options and arguments, as the command would get them; raises click's error for what it does not take."""
    name, *rest = words
    assert name in command_line.commands, f"no command {name}"
    return command_line.commands[name].make_context(name, list(rest))


answered = functools.cache(called)
"""Runs a command line once: pages have several that differ in the names of runs only, and here all are one run."""


@pytest.mark.parametrize(("page", "line"), [pytest.param(*each, id=" ".join(each)) for each in lines()])
def test_a_command_on_a_page_is_one(page, line, demo, tmp_path, monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "1")
    words = shlex.split(line)[1:]
    if "--on-alert" in words:
        words[words.index("--on-alert") + 1] = sys.executable
    context = parsed(words)
    runs = [value for name, value in context.params.items() if name in {"run", "a", "b"} and value]
    if words[0] not in READ or any(":" in word for word in words):  # a run on another machine
        return
    monkeypatch.chdir(tmp_path)
    here = [demo.name if word in runs else word for word in words]
    if "--output" in here:
        here[here.index("--output") + 1] = "output"
    answer = answered(*here)
    needs_a_look = words[0] == "status"  # a rank cost the demo a seventh of its time
    assert answer.returncode == needs_a_look, answer.stderr
