"""Collects the configuration that should be the same on all ranks: script, arguments, variables of communication."""

from __future__ import annotations

import os
import platform
import sys
import zlib
from collections.abc import Sequence

PREFIXES = ("NCCL_", "TORCH_NCCL_", "GLOO_", "UCX_")
OF_A_MACHINE = ("IFNAME", "HCA", "DEBUG", "FILE", "HOSTID", "COMM_ID", "NET_DEVICES", "TLS")
"""Ends of variables that say what a machine has, or where it writes."""
MAX_ENTRIES, MAX_VALUE = 64, 120
MAX_SCRIPT_BYTES = 1 << 20
GIVEN = "(given)"
"""The value of an option that has none."""


def configuration() -> dict[str, str]:
    """Return that of this process by name, without secrets: a variable, `script`, an option, or `argument K`."""
    from ddpmon.redaction import redact_variables, redact_words  # read by the background thread alone

    chosen = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(PREFIXES) and not name.endswith(OF_A_MACHINE)
    }
    found = {"Python": platform.python_version(), "script": _script(sys.argv[0]) if sys.argv else ""}
    found |= redact_variables(chosen) | _arguments(redact_words(sys.argv[1:]))
    return {name[:MAX_VALUE]: value[:MAX_VALUE] for name, value in list(found.items())[:MAX_ENTRIES] if value}


def _arguments(words: Sequence[str]) -> dict[str, str]:
    """Return the values of a command line by their options; those behind an option's first are its too."""
    found: dict[str, str] = {}
    option = ""
    for place, word in enumerate(words, 1):
        if word.startswith("-") and not word[1:2].isdecimal():
            option, _, value = word.partition("=")
            found[option] = value or GIVEN
        elif option:
            found[option] = word if found[option] == GIVEN else f"{found[option]} {word}"
        else:
            found[f"argument {place}"] = word
    return found


def _script(path: str) -> str:
    """Return a script's name with a checksum of its text; "" where there is none that can be read."""
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_SCRIPT_BYTES)
    except OSError:
        return ""
    return f"{os.path.basename(path)} (checksum {zlib.crc32(text):08x})"
