"""`python -m kgw`, and what the `kgw` command runs."""

import gc
import os
import signal
import sys

from kgw.interrupts import TELLING, EndedByInterrupts, hold

START_GARBAGE_THRESHOLD = 50_000


def run() -> None:
    """Run the command line."""
    # Modules are many objects and no garbage: looking for it was a tenth of a start. The server
    # sets what suits it once it answers.
    gc.set_threshold(START_GARBAGE_THRESHOLD)
    if os.getpid() == 1:
        # In a container. Until the server listens for signals, which it does before it opens
        # anything, the kernel would drop those that process 1 has no handler for.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if "serve" in sys.argv:
        # Until the server says what becomes of them: a stand-by that is only starting may be told
        # to take over, and the kernel would end it.
        hold(TELLING)
    with EndedByInterrupts():
        from kgw.cli.main import main

    main(prog_name="kgw")


if __name__ == "__main__":
    run()
