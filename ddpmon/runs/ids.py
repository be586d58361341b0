"""Creates unique ids of runs, even if several runs start in the same second. Standard library only."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from ddpmon.errors import UnsafePathError
from ddpmon.runs.folders import (
    home,
    make_socket_dir,
    missing_folders,
    private_dir,
    run_dir,
    runs_dir,
    runtime_dir,
    socket_dir,
)


def new_id() -> str:
    """Return a new id such as 20261120-141502-7f3a, and create its folders, so that no other run can get this id.

    Raises:
        UnsafePathError: The folders cannot be created.

    """
    while True:
        private_dir(home())
        private_dir(runs_dir())
        run_id = time.strftime("%Y%m%d-%H%M%S-") + os.urandom(2).hex()
        try:
            run_dir(run_id).mkdir(mode=0o700)
        except (FileExistsError, FileNotFoundError):  # Another start may have removed an empty folder at this moment.
            continue
        except OSError as error:
            raise UnsafePathError(f"cannot make {run_dir(run_id)}: {error.strerror}") from None
        try:  # Another DDPMON_HOME of this user may have a run with this id.
            make_socket_dir(run_id, exclusive=True)
        except FileExistsError:
            run_dir(run_id).rmdir()
        except BaseException:
            run_dir(run_id).rmdir()
            raise
        else:
            return run_id


@contextlib.contextmanager
def reserved() -> Iterator[str]:
    """Reserve a new id. If the body fails before it has stored a run, all folders made for the id are removed again."""
    made = [*missing_folders(runs_dir()), *missing_folders(runtime_dir())]
    run_id = ""
    try:
        run_id = new_id()
        yield run_id
    except BaseException:
        of_run = [run_dir(run_id), socket_dir(run_id)] if run_id else []
        for folder in (*of_run, *made):
            with contextlib.suppress(OSError):  # The folder belongs to a run, or is not empty.
                folder.rmdir()
        raise
