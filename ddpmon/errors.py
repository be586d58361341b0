"""Errors for users: one line that says what happened, to what, and what to do.

DdpmonError
├── UsageError          an argument, script or file cannot be used
├── RunNotFoundError    there is no run with that name, id or place
├── UnsafePathError     another user could read or write a folder of ddpmon
├── HubUnreachableError no hub answers on a run's socket
├── UnreachableError    ssh, or ddpmon on the other machine, does not answer
└── RecordingError      a recording cannot be read
    └── NothingRecordedError  there is no recording, or it is empty
"""

from __future__ import annotations


class DdpmonError(Exception):
    """Base of every error that the command line prints as one line, without a traceback."""


class UsageError(DdpmonError):
    """Reports an argument, script or file that cannot be used."""


class RunNotFoundError(DdpmonError):
    """Reports that there is no run with that name, id or place."""


class UnsafePathError(DdpmonError):
    """Reports a folder of ddpmon that another user owns or can enter, or a link that leads elsewhere."""


class HubUnreachableError(DdpmonError):
    """Reports that no hub answers on a run's socket."""


class UnreachableError(DdpmonError):
    """Reports another machine that ssh does not reach, or whose ddpmon does not answer."""


class RecordingError(DdpmonError):
    """Reports a recording that is missing, damaged or of another version."""


class NothingRecordedError(RecordingError):
    """Reports a recording that is missing or empty."""
