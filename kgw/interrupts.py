"""Ctrl-C while modules are imported. Imports as good as nothing itself."""

import signal


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
