"""Signal handling of commands and of the start. Has few imports, as it runs before all others."""

import os
import signal
import sys

TELLING = (signal.SIGUSR1, signal.SIGUSR2)
"""The signals that give a server a command. The second one has no meaning yet."""


def hold(numbers: tuple[signal.Signals, ...]) -> None:
    """Block signals until `release`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)


def release(numbers: tuple[signal.Signals, ...]) -> None:
    """Unblock signals. Pending signals are delivered at once."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


class EndedByInterrupts:
    """A context in which Ctrl-C ends the process at once, without a KeyboardInterrupt.

    In an import a KeyboardInterrupt prints a traceback of twenty lines, or is lost, as callbacks of
    the import system ignore it. The context changes nothing if the signal has another handler or is
    ignored, or outside the main thread.
    """

    _is_entered = False

    def __enter__(self) -> None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
            except ValueError:  # not the main thread
                return
            self._is_entered = True

    def __exit__(self, *_: object) -> None:
        if self._is_entered:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class InterruptedByTermination:
    """A context in which SIGTERM raises KeyboardInterrupt; at its end SIGTERM ends the process.

    So a command that prints its results after Ctrl-C also does so after `kill`, or when a service
    manager stops it. The context changes nothing if the signal has another handler or is ignored,
    or outside the main thread.
    """

    def __init__(self) -> None:
        self._is_entered = False
        self._is_terminated = False

    def __enter__(self) -> None:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            try:
                signal.signal(signal.SIGTERM, self._interrupt)
            except ValueError:  # not the main thread
                return
            self._is_entered = True

    def __exit__(self, *_: object) -> None:
        if self._is_entered:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._is_terminated:
            from contextlib import suppress

            for stream in (sys.stdout, sys.stderr):
                # The reader of the pipe may have ended.
                with suppress(OSError, ValueError):
                    stream.flush()
            os.kill(os.getpid(), signal.SIGTERM)

    def _interrupt(self, *_: object) -> None:
        self._is_terminated = True
        handled = signal.getsignal(signal.SIGINT)
        if handled is signal.SIG_DFL:  # in `EndedByInterrupts`: the command has not begun
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        elif handled is signal.SIG_IGN:  # in the background of a shell without job control
            signal.signal(signal.SIGINT, signal.default_int_handler)
        # If an event loop runs, its handler of SIGINT cancels the main task.
        signal.raise_signal(signal.SIGINT)
