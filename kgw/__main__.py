"""The entry point of `python -m kgw` and of the `kgw` command."""

import gc
import os
import signal
import sys

from kgw.interrupts import TELLING, EndedByInterrupts, hold

START_GARBAGE_THRESHOLD = 50_000


def run() -> None:
    """Run the command line."""
    # Imported modules are many objects and no garbage: garbage collection took a tenth of a start.
    # The server sets other thresholds when it begins to answer.
    gc.set_threshold(START_GARBAGE_THRESHOLD)
    if os.getpid() == 1:
        # In a container the kernel drops signals for which process 1 has no handler. The server
        # installs its handlers before it opens anything; this one is for the time before.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if "serve" in sys.argv:
        # Until the server has handlers for these signals: the kernel would end a standby server
        # that gets the signal to take over while it is starting.
        hold(TELLING)
    with EndedByInterrupts():
        from kgw.cli.main import main

    main(prog_name="kgw")


if __name__ == "__main__":
    run()
