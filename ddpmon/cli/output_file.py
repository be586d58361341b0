"""The option `--output FILE`, and a file that appears once it is whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click


def output_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `output`. text: its help."""
    file = click.Path(dir_okay=False, path_type=Path)
    return click.option("-o", "--output", type=file, metavar="FILE", help=text)


@contextlib.contextmanager
def drafted(output: Path | None) -> Iterator[Path | None]:
    """A file beside the one that is asked for, which takes its place once it is whole; None: standard output.

    A pipe or a device is written to as it is.
    """
    from ddpmon.errors import UsageError

    if output is None:
        yield None
        return
    if not output.name:
        raise UsageError("--output '': give the name of a file")
    in_place = os.path.exists(output) and not os.path.isfile(output)
    target = Path(os.path.realpath(output))  # a link goes on leading there
    draft = output if in_place else target.with_name(f"{target.name}.part")
    try:
        yield draft
        if not in_place:
            draft.replace(target)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from None
    finally:
        if not in_place:
            with contextlib.suppress(OSError):
                draft.unlink()
