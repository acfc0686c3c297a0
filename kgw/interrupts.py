"""Signals of commands and of starts. Imports as good as nothing itself."""

import os
import signal
import sys

TELLING = (signal.SIGUSR1, signal.SIGUSR2)
"""What tells a server something. Nothing is asked of it by the second one yet."""


def hold(numbers: tuple[signal.Signals, ...]) -> None:
    """Keep signals waiting until `release`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)


def release(numbers: tuple[signal.Signals, ...]) -> None:
    """Let them come, those that have waited at once. Held or not."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


class EndedByInterrupts:
    """While it is entered, Ctrl-C ends the process as it ends any other: there is nothing to tell.

    A KeyboardInterrupt in an import is a traceback of twenty lines, or is lost: callbacks of the
    import system ignore it. Nothing is changed where somebody else handles the signal or ignores
    it, nor outside the main thread.
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
    """While it is entered, SIGTERM interrupts as Ctrl-C does; on leaving, the process ends by it.

    A command that tells after Ctrl-C what it has done tells it to `kill` and to a service manager,
    too. Nothing is changed where somebody else handles the signal or ignores it, nor outside the
    main thread.
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
                # Whoever read it may be gone.
                with suppress(OSError, ValueError):
                    stream.flush()
            os.kill(os.getpid(), signal.SIGTERM)

    def _interrupt(self, *_: object) -> None:
        self._is_terminated = True
        handled = signal.getsignal(signal.SIGINT)
        if handled is signal.SIG_DFL:  # modules are imported: there is nothing to tell
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        elif handled is signal.SIG_IGN:  # in the background of a shell without job control
            signal.signal(signal.SIGINT, signal.default_int_handler)
        # An event loop that runs has it reach its main task.
        signal.raise_signal(signal.SIGINT)
