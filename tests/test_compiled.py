"""What ranks and workers import is compiled once, before there are several who would each do it."""

import py_compile
import subprocess
from types import SimpleNamespace

import pytest

from tests import compiled


@pytest.fixture
def started(monkeypatch):
    """The programs that were started, none of which runs; each was waited for if it says so."""
    programs = []

    class Program:
        def __init__(self, words, **options):
            self.words, self.options, self.waited_for = words, options, False
            programs.append(self)

        def wait(self):
            self.waited_for = True

    monkeypatch.setattr(subprocess, "Popen", Program)
    return programs


def begin(tmp_path, workers, **more):
    """A session of so many workers begins. more: what the configuration has besides."""
    config = SimpleNamespace(getoption=lambda name, _: ["popen"] * workers, rootpath=tmp_path, **more)
    compiled.pytest_sessionstart(SimpleNamespace(config=config))


def test_before_several_workers_start_it_is_compiled_once(tmp_path, started, monkeypatch):
    monkeypatch.setattr(compiled, "_is_compiled", lambda _: False)
    begin(tmp_path, 4)
    imports, collect = started
    assert all(f"import {module}" in imports.words[-1] for module in compiled.IMPORTED_BY_RANKS)
    assert imports.options["env"]["PYTHONPATH"] == str(tmp_path / "training")
    assert {"--collect-only", "0"} <= set(collect.words), "it starts no workers, or they would compile again"
    assert imports.waited_for
    assert collect.waited_for


@pytest.mark.parametrize(
    ("workers", "more", "is_compiled"),
    [(4, {}, True), (0, {}, False), (4, {"workerinput": {}}, False)],
    ids=["compiled", "no workers", "in a worker"],
)
def test_nothing_is_compiled_where_nobody_would_do_it_twice(tmp_path, started, monkeypatch, workers, more, is_compiled):
    monkeypatch.setattr(compiled, "_is_compiled", lambda _: is_compiled)
    begin(tmp_path, workers, **more)
    assert started == []


def test_a_module_is_compiled_when_python_has_its_bytecode(tmp_path, monkeypatch):
    source = tmp_path / "compiled_or_not.py"
    source.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert not compiled._is_compiled("compiled_or_not")
    py_compile.compile(source)
    assert compiled._is_compiled("compiled_or_not")
    assert compiled._is_compiled("is_not_installed"), "what cannot be imported needs no compiling"
