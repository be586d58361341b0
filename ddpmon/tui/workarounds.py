"""Works around limits of Textual 8.2. Each function gives the reason."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import sys
import termios
from abc import ABCMeta
from collections.abc import Callable
from functools import partial
from typing import Literal

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.drivers._writer_thread import WriterThread
from textual.drivers.linux_driver import LinuxDriver
from textual.keys import Keys
from textual.message import Message
from textual.message_pump import _MessagePumpMeta
from textual.widgets import OptionList


class Abstract(_MessagePumpMeta, ABCMeta):
    """Metaclass of widgets and screens that cannot be instantiated while an abstract method is missing.

    Textual's classes have a metaclass of their own. ABCMeta alone would conflict with that metaclass.
    """


def page_only_through_lines_that_are_there() -> None:
    """Prevent PgUp and PgDn in the command palette from ending the app.

    If the terminal is too narrow for a single column of the palette, its list has options but no lines. Textual then
    fails when it looks up the line of the highlighted option.
    """
    move_page = OptionList._move_page  # noqa: SLF001

    def move(self: OptionList, direction: Literal[-1, 1]) -> None:
        if self._index_to_line:
            move_page(self, direction)

    OptionList._move_page = move  # type: ignore[method-assign]  # noqa: SLF001


page_only_through_lines_that_are_there()


def write_to_nobody_once_the_terminal_is_gone() -> None:
    """Prevent Textual's output thread from dying when the terminal is closed.

    Without that thread, the output queue fills up. Then every write and close would block forever, and so would the
    whole app, which would not even react to signals. The error may come with the very last flush, after the end of the
    queue.
    """

    def run(self: WriterThread) -> None:
        text: str | None = ""
        try:
            while (text := self._queue.get()) is not None:
                self._file.write(text)
                if self._queue.empty():
                    self._file.flush()
            self._file.flush()
        except OSError:
            while text is not None:
                text = self._queue.get()

    WriterThread.run = run  # type: ignore[method-assign]


write_to_nobody_once_the_terminal_is_gone()


def read_whatever_is_typed() -> None:
    """Prevent bytes that no key of a UTF-8 terminal sends from ending the app.

    Textual's input thread decodes strictly, so an é typed in a latin-1 terminal raises. Its parser raises on escape
    sequences with nonsensical numbers, and on mouse events in a terminal that reports a width of no pixels. Undecodable
    bytes become U+FFFD, and such sequences are ignored.
    """
    get_decoder = codecs.getincrementaldecoder
    extended_key, mouse = XTermParser._parse_extended_key, XTermParser.parse_mouse_code  # noqa: SLF001

    def lenient(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
        return partial(get_decoder(encoding), errors="replace")

    def parse_extended_key(self: XTermParser, sequence: str) -> list[events.Key] | None:
        try:
            return extended_key(self, sequence)
        except (ValueError, OverflowError):
            return [events.Key(Keys.Ignore, sequence)]

    def parse_mouse_code(self: XTermParser, code: str) -> Message | None:
        try:
            return mouse(self, code)
        except ZeroDivisionError:
            return None

    vars(linux_driver)["getincrementaldecoder"] = lenient
    XTermParser._parse_extended_key = parse_extended_key  # type: ignore[assignment]  # noqa: SLF001
    XTermParser.parse_mouse_code = parse_mouse_code  # type: ignore[method-assign]


read_whatever_is_typed()


def stop_and_continue_between_two_events() -> None:
    """Prevent the signals that stop and continue the app from blocking the app forever, and from leaving the terminal
    without echo.

    Textual releases the terminal, and takes it again, inside the signals' handlers. A handler blocks forever if its
    signal arrives while the app is writing, for instance when a terminal is closed and its session gets a SIGCONT. So
    the event loop releases and takes the terminal instead. Textual also treats every SIGCONT as the end of a ctrl+z,
    for which it had released the terminal. But SIGSTOP leaves no time to release the terminal. If Textual then started
    a second time without stopping first, it would restore its own terminal settings when it ends, and would have two
    threads that read the keys. An app that is continued in the background is stopped again, as after ctrl+z. Once the
    app has ended there is nothing to release.
    """
    stop, resume = LinuxDriver._sigtstp_application, LinuxDriver._sigcont_application  # noqa: SLF001

    def stopped(self: LinuxDriver, *_: object) -> None:
        try:
            asyncio.get_running_loop().call_soon_threadsafe(stop, self)
        except RuntimeError:  # the app has ended
            os.kill(os.getpid(), signal.SIGSTOP)

    def continued(self: LinuxDriver, *_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the app has ended
            loop = asyncio.get_running_loop()
            if terminal_gone():
                return
            if self._key_thread is not None and self._key_thread.is_alive() and self._auto_restart:
                loop.call_soon_threadsafe(start_anew, self)
            else:  # the app was suspended by `stop` and resumes there
                resume(self)

    def start_anew(self: LinuxDriver) -> None:
        with contextlib.suppress(OSError):  # this process has no controlling terminal
            if os.tcgetpgrp(self.fileno) != os.getpgrp():
                os.kill(os.getpid(), signal.SIGSTOP)
                return
        self.suspend_application_mode()
        self._must_signal_resume = True
        resume(self)

    LinuxDriver._sigtstp_application = stopped  # type: ignore[method-assign]  # noqa: SLF001
    LinuxDriver._sigcont_application = continued  # type: ignore[method-assign]  # noqa: SLF001


stop_and_continue_between_two_events()


def terminal_gone() -> bool:
    """Return whether the terminal of the dashboard was closed.

    Reading from a closed terminal returns end of file, which Textual's input thread takes for "nothing typed". The
    thread then spins without ending the app, so the app checks the terminal itself.
    """
    stdin = sys.__stdin__
    if stdin is None or stdin.closed:
        return True
    try:
        termios.tcgetattr(stdin.fileno())
    except termios.error:
        return True
    return False


def can_come_back() -> bool:
    """Return whether there is a shell that can continue this process after a stop.

    `ssh -t HOST ddpmon attach`, and a tmux window that runs nothing else, have no such shell; Textual would stop the
    process all the same.
    """
    parent = os.getppid()
    with contextlib.suppress(OSError):
        return os.getsid(parent) == os.getsid(0) and os.getpgid(parent) != os.getpgrp()
    return False


def let_go_of_terminal() -> None:
    """Redirect the standard streams to /dev/null once the terminal is gone.

    When it exits, Textual writes its last sequences to the terminal from a thread, which would die with a traceback.
    The interpreter flushes the streams even later.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
