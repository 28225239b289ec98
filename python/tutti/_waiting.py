"""Calls that may wait for other ranks: without the GIL, ended by Ctrl-C, and not left behind at the interpreter's end.

A signal's Python handler runs in the main thread only, and not before the C call there returns. So Python's own C
handler writes the signal's number to a descriptor, a thread reads it, and when the main thread is in a call it aborts
the communicators of that call: the call returns, and KeyboardInterrupt passes.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import socket
import threading
import weakref
from typing import Any, Callable

_main_thread = threading.main_thread().ident


class _Watcher:
    def __init__(self) -> None:
        self.waiting: tuple = ()  # the communicators of the main thread's call
        self.also: list = []  # called with False at once, and with True when the main thread does not come to the signal
        self.is_started = False

    def start(self) -> None:
        """In the main thread. Where another framework has the descriptor already, it keeps it."""
        self.is_started = True
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if previous != -1:
            signal.set_wakeup_fd(previous)
            reader.close()
            writer.close()
            return
        self._writer = writer  # open as long as signals may come
        os.register_at_fork(after_in_child=self._forget)
        threading.Thread(target=self._watch, args=(reader,), name="tutti-signals", daemon=True).start()

    def _forget(self) -> None:
        """In a forked child, whose signals must not reach the parent's thread."""
        previous = signal.set_wakeup_fd(-1)
        if previous != self._writer.fileno():
            signal.set_wakeup_fd(previous)

    def _watch(self, reader: socket.socket) -> None:
        while numbers := reader.recv(64):
            # Any other handler may want the call to go on; it runs when the call returns.
            if signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                for communicator in self.waiting:
                    communicator.abort()
                for each in self.also:
                    each(False)
                if self.also and not _main_thread_runs(1.0):
                    for each in self.also:
                        each(True)


_PENDING = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def _main_thread_runs(seconds: float) -> bool:
    """Whether the main thread executes Python within that time. If not, it waits in C, and no handler of it runs."""
    came = threading.Event()

    @_PENDING
    def call(_: Any) -> int:
        came.set()
        return 0

    _kept.append(call)  # until the main thread has called it
    ctypes.pythonapi.Py_AddPendingCall(call, None)
    return came.wait(seconds)


_kept: list = []
_watcher = _Watcher()
_alive: weakref.WeakSet = weakref.WeakSet()


def call(communicators: tuple, function: Callable[..., int], *arguments: Any) -> int:
    """function(*arguments), whose wait ends when one of the communicators is aborted."""
    if threading.get_ident() != _main_thread:
        return function(*arguments)
    if not _watcher.is_started:
        _watcher.start()
    _watcher.waiting = communicators
    try:
        return function(*arguments)
    finally:
        _watcher.waiting = ()


def watch_also(interrupt: Callable[[bool], None]) -> None:
    """Has interrupt(False) called when Ctrl-C comes, and interrupt(True) if the main thread still waits a second later."""
    if interrupt not in _watcher.also:
        _watcher.also.append(interrupt)
    if not _watcher.is_started and threading.get_ident() == _main_thread:
        _watcher.start()


def remember(communicator: Any) -> None:
    _alive.add(communicator)


@atexit.register
def _abort_all() -> None:
    # Operations that still run in threads or on streams would keep the process, and read freed arrays.
    for communicator in list(_alive):
        communicator._end_at_exit()
