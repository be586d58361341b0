"""Works around what Textual 8.2 does not do by itself, each with the reason. Nothing else in here."""

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
from textual.keys import Keys, _character_to_key
from textual.message import Message
from textual.message_pump import _MessagePumpMeta
from textual.widgets import OptionList


class Abstract(_MessagePumpMeta, ABCMeta):
    """Metaclass of widgets and screens that cannot be made before their abstract methods are there.

    Textual's classes have a metaclass of their own, so that they cannot be abstract by themselves.
    """


def key_name(typed: str) -> str:
    """Return the name of a key in the table of keys, where Textual takes a single character only in bindings."""
    return _character_to_key(typed) if len(typed) == 1 else typed


def page_only_through_lines_that_are_there() -> None:
    """Keep PgUp and PgDn in the command palette from ending the app.

    In a terminal too narrow for a single column of it the list has options but no lines, and Textual looks up the line
    of the highlighted one all the same.
    """
    move_page = OptionList._move_page  # noqa: SLF001

    def move(self: OptionList, direction: Literal[-1, 1]) -> None:
        if self._index_to_line:
            move_page(self, direction)

    OptionList._move_page = move  # type: ignore[method-assign]  # noqa: SLF001


page_only_through_lines_that_are_there()


def write_to_nobody_once_the_terminal_is_gone() -> None:
    """Keep Textual's output thread from dying when the terminal is closed.

    Nobody would take from its queue any more, and once that is full, whoever writes or closes waits for ever: the whole
    app, which then hears of no signal either. The error may come with the very last flush, behind the end of the queue.
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
    """Keep bytes that no key of a UTF-8 terminal sends from ending the app.

    Textual's input thread decodes strictly, so that an é typed in a latin-1 terminal raises, and its parser raises on
    escape sequences with numbers that make no sense, and on a mouse in a terminal that says it is no pixel wide.
    Undecodable bytes become U+FFFD, such sequences nothing.
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
    """Keep the signals that stop and continue the app from hanging it, and from leaving the terminal without echo.

    Textual gives the terminal back, and takes it again, inside the signal's handler. That waits for ever where the
    signal came while the app was writing, as it may when a terminal goes away: its session gets a SIGCONT. So the event
    loop does both. Textual also takes every SIGCONT for the end of a ctrl+z, before which it had given the terminal
    back. SIGSTOP gives no time for that: started again over itself, Textual takes its own settings for those to restore
    when it ends, and has two threads that read the keys. Whoever continues the app in the background has it stopped
    again, as after ctrl+z. Once the app has ended there is nothing to give back.
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
            else:  # it has been waiting in `stop`
                resume(self)

    def start_anew(self: LinuxDriver) -> None:
        with contextlib.suppress(OSError):  # no terminal has it as a job
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
    """Return whether the terminal that the dashboard runs in was closed.

    Textual's input thread takes the end of file that a closed terminal reads as for "nothing typed", and spins. That
    does not end the app, so it asks for itself.
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
    """Return whether a shell is there that continues this process once it is stopped.

    `ssh -t HOST ddpmon attach` and a window of tmux that runs nothing else have none, and Textual stops all the same.
    """
    parent = os.getppid()
    with contextlib.suppress(OSError):
        return os.getsid(parent) == os.getsid(0) and os.getpgid(parent) != os.getpgrp()
    return False


def let_go_of_terminal() -> None:
    """Point the standard streams to nowhere, once the terminal is gone.

    Textual writes its farewell to the terminal when it exits, from a thread that would die of an error with a
    traceback, and the interpreter flushes the streams after that.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
