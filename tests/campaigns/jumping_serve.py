"""The gateway with a wall clock that is wrong by what a file says, in milliseconds.

`KGW_CAMPAIGN_CLOCK=FILE python -m tests.campaigns.jumping_serve serve ...`

With KGW_CAMPAIGN_AGES=wall in the environment ages go by that clock, too: a bug, for the control.

The file holds the number of its version and the milliseconds. A file beside it says which version
the last completed run of retention has gone by.
"""

from __future__ import annotations

import os
from pathlib import Path

from kgw.cli.main import main
from kgw.clock import RunningClock
from kgw.partitions.maintain.log_manager import LogManager
from tests.campaigns.serve_hooks import hook_clock, replace_file

CLOCK_FILE = "KGW_CAMPAIGN_CLOCK"
AGES = "KGW_CAMPAIGN_AGES"
RETAINED = ".retained"
"""What the name of the file beside the clock's ends in."""


def set_clock(clock: Path, version: int, wrong_by_ms: int) -> None:
    """Make a server's clock wrong by so much, and say which version of it that is."""
    replace_file(clock, f"{version} {wrong_by_ms}")


def read_clock(clock: Path) -> tuple[int, int]:
    """Return the version and the milliseconds."""
    version, wrong_by_ms = clock.read_text().split()
    return int(version), int(wrong_by_ms)


def last_retention(clock: Path) -> int:
    """Return the version of the clock that the last completed run of retention began with.

    -1 when there was no run yet.
    """
    noted = clock.with_suffix(RETAINED)
    return int(noted.read_text()) if noted.exists() else -1


if __name__ == "__main__":
    retain = LogManager.retain
    clock_file = Path(os.environ[CLOCK_FILE])

    async def noted_retain(self: LogManager) -> None:
        """Run retention, and note which version of the clock it began with."""
        version, _ = read_clock(clock_file)
        await retain(self)
        replace_file(clock_file.with_suffix(RETAINED), str(version))

    hook_clock(lambda: read_clock(clock_file)[1])
    if os.environ.get(AGES) == "wall":
        RunningClock.running_ms = RunningClock.wall_ms  # type: ignore[method-assign]
    LogManager.retain = noted_retain  # type: ignore[method-assign]
    main(prog_name="kgw")
