"""The script in a command line of Python: what is found is what Python itself runs."""

import subprocess
import sys

import pytest

from ddpmon import command_lines

SHOWN = (
    "import sys; flags = sys.flags; name = sys.argv[0].rpartition('/')[2];"
    " print([name, *sys.argv[1:]], flags.isolated, flags.ignore_environment)"
)


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ([], set()),
        (["-u", "-B"], {"u", "B"}),
        (["-Bu"], {"u", "B"}),
        (["-W", "ignore"], set()),
        (["-Wignore", "-Xdev"], set()),
        (["-uX", "utf8=1"], {"u"}),
        (["-EB"], {"E", "B"}),
        (["--check-hash-based-pycs", "never"], set()),
    ],
)
def test_the_script_is_the_word_that_python_runs(tmp_path, options, flags):
    script = tmp_path / "train.py"
    script.write_text(SHOWN)
    command = [sys.executable, *options, str(script), "-E", "--lr"]
    found, rest = command_lines.split(command)
    assert (found, rest) == (flags, [str(script), "-E", "--lr"])
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == f"['train.py', '-E', '--lr'] {int('I' in flags)} {int('E' in flags)}\n"


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        (["-m", "torch.x", "-c"], ["-m", "torch.x", "-c"]),
        (["-um", "torch.x"], ["-m", "torch.x"]),
        (["-mtorch.x"], ["-m", "torch.x"]),
        (["-c", "pass", "a"], ["-c", "pass", "a"]),
        (["-"], ["-"]),
        (["--", "train.py"], ["train.py"]),
        (["-i"], []),
        (["-W"], []),
        ([], []),
    ],
)
def test_modules_code_and_no_script_at_all(words, rest):
    assert command_lines.split(["python", *words])[1] == rest
