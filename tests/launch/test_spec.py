"""Test the mistakes that are refused before anything starts, each with one line that says what to do."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.errors import UsageError
from ddpmon.launch import spec
from ddpmon.runs import NAME_PATTERN


def refused(check, *arguments) -> str:
    with pytest.raises(UsageError) as caught:
        check(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_script_that_compiles_is_taken_whatever_it_would_do_when_run(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(3)\n'\\d'\n")
    spec.check_script(str(script))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"def f(:\n", "line 1: invalid syntax"),
        (b"import os\n\nif:\n", "line 3: invalid syntax"),
        (b"return 1\n", "line 1: 'return' outside function"),
        (b"\x7fELF\x02\x01\x01\x00", "not Python"),
        (b"\xff\xfe\x00\x01", "not Python"),
        (b"(" * 10_000, "not Python"),
    ],
)
def test_what_is_not_python_is_refused_with_the_place(tmp_path, content, said):
    script = tmp_path / "train.py"
    script.write_bytes(content)
    assert said in refused(spec.check_script, str(script))


def test_a_missing_script_a_folder_and_an_unreadable_one_are_refused(tmp_path):
    assert "no script" in refused(spec.check_script, str(tmp_path / "nothing.py"))
    assert str(os.getcwd()) in refused(spec.check_script, "nothing.py")
    assert "is a folder" in refused(spec.check_script, str(tmp_path))
    assert "cannot be read" in refused(spec.check_script, "/proc/self/mem")


def test_a_module_is_found_from_the_working_directory_without_being_imported(tmp_path, monkeypatch):
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    spec.check_module("mine.train")
    assert "mine" not in sys.modules
    assert "no module mine.other" in refused(spec.check_module, "mine.other")
    assert "has no __main__.py" in refused(spec.check_module, "mine")
    (package / "__main__.py").write_text("")
    spec.check_module("mine")


@pytest.mark.parametrize("name", ["", ".", "a..b", "train.py/x", "-c", "no_such_module_anywhere"])
def test_what_is_no_module_is_refused(name):
    assert name in refused(spec.check_module, name)


def test_processes_may_be_a_number_or_what_the_machine_has(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2, 5,-1")
    assert spec.processes("3") == 3
    assert spec.processes("cpu") == os.cpu_count()
    assert spec.processes("gpu") == 3
    assert spec.processes("auto") == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert spec.processes("auto") == os.cpu_count()
    assert "no GPU" in refused(spec.processes, "gpu")


@given(st.text(min_size=1))
def test_every_script_gives_a_name_that_a_run_can_have(script):
    assert NAME_PATTERN.fullmatch(spec.name_for(script))


@pytest.mark.parametrize(
    ("script", "name"),
    [("training/mnist.py", "mnist"), ("pkg.train", "train"), ("./my script.py", "my-script"), ("/usr/bin/env", "env")],
)
def test_a_run_is_named_after_its_script(script, name):
    assert spec.name_for(script) == name


def test_a_python_without_torch_is_told_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert sys.executable in refused(spec.check_torch)
