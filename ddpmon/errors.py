"""Errors for people: one line that says what happened, to what, and what to do.

DdpmonError
├── UsageError          an argument, script or file that cannot be used
├── RunNotFoundError    no run of that name, id or place
├── UnsafePathError     a folder of ours that someone else could read or write
├── HubUnreachableError nobody answers on a run's socket
├── UnreachableError    another machine that ssh, or ddpmon there, does not answer on
└── RecordingError      a recording that cannot be read
    └── NothingRecordedError  there is none, or nothing is in it
"""

from __future__ import annotations


class DdpmonError(Exception):
    """Base of every error that the command line prints as one line, without a traceback."""


class UsageError(DdpmonError):
    """An argument, script or file that cannot be used."""


class RunNotFoundError(DdpmonError):
    """No run of that name, id or place."""


class UnsafePathError(DdpmonError):
    """A folder of ours that another user owns, links elsewhere or can enter."""


class HubUnreachableError(DdpmonError):
    """Nobody answers on a run's socket."""


class UnreachableError(DdpmonError):
    """Another machine that ssh does not reach, or whose ddpmon does not answer."""


class RecordingError(DdpmonError):
    """A recording that is missing, damaged or of another version."""


class NothingRecordedError(RecordingError):
    """A recording that is not there, or in which nothing is."""
