"""Test the report of an exception that nobody caught."""

import pytest
from torch._utils import ExceptionWrapper

from ddpmon.messages import encode
from ddpmon.probe.sender import one_line


def raised(source):
    """Return the exception that a line of Python raises."""
    try:
        exec(compile(source, "train.py", "exec"))
    except Exception as error:
        return error
    raise AssertionError(source)


def of_a_worker():
    """Return the exception that torch raises in a rank for an error in its DataLoader worker."""
    try:
        raise ValueError("bad picture")
    except ValueError:
        wrapper = ExceptionWrapper(where="in DataLoader worker process 0")
    try:
        wrapper.reraise()
    except ValueError as error:
        return error


def with_note(error):
    error.add_note("what the framework adds\nover two lines")
    return error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("wrong on purpose"), "ValueError: wrong on purpose"),
        (ValueError(), "ValueError"),
        (
            RuntimeError(
                "CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA` to enable them.\n"
            ),
            "RuntimeError: CUDA error: device-side assert triggered",
        ),
        (RuntimeError("\n\nno checkpoint there\nadvice"), "RuntimeError: no checkpoint there advice"),
        (with_note(ValueError("wrong on purpose")), "ValueError: wrong on purpose"),
        (raised("a b"), "SyntaxError: invalid syntax"),
        (of_a_worker(), "ValueError: bad picture"),
        (OSError("postgres://bob:hunter2@db refused"), "OSError: postgres://bob:…@db refused"),
        (OSError("no file tr\udcffin.csv"), "OSError: no file tr?in.csv"),
        (ValueError("x" * 1000), "ValueError: " + "x" * 386 + " …"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_exception_is_told_in_the_line_that_names_its_cause(error, line):
    assert one_line(error) == line
    assert encode(line)
