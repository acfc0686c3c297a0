"""The gateway with a wall clock that is wrong by what a file says, in milliseconds.

`KGW_CAMPAIGN_CLOCK=FILE python -m tests.campaigns.jumping_serve serve ...`

The file holds the number of its version and the milliseconds. A file beside it says which version
the last completed run of retention has gone by.
"""

from __future__ import annotations

import os
from pathlib import Path

from kgw.cli.main import main
from kgw.clock import SystemClock
from kgw.partitions.log_manager import LogManager

CLOCK_FILE = "KGW_CAMPAIGN_CLOCK"
RETAINED = ".retained"
"""What the name of the file beside the clock's ends in."""


def set_clock(clock: Path, version: int, wrong_by_ms: int) -> None:
    """Make a server's clock wrong by so much, and say which version of it that is."""
    _replace(clock, f"{version} {wrong_by_ms}")


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


def _replace(path: Path, text: str) -> None:
    """Write a file that is never seen half written."""
    new = path.with_suffix(path.suffix + ".new")
    new.write_text(text)
    new.replace(path)


if __name__ == "__main__":
    wall_ms = SystemClock.wall_ms
    retain = LogManager.retain
    clock_file = Path(os.environ[CLOCK_FILE])

    def jumping_wall_ms(self: SystemClock) -> int:
        """Read the clock, and be wrong."""
        return wall_ms(self) + read_clock(clock_file)[1]

    async def noted_retain(self: LogManager) -> None:
        """Run retention, and note which version of the clock it began with."""
        version, _ = read_clock(clock_file)
        await retain(self)
        _replace(clock_file.with_suffix(RETAINED), str(version))

    SystemClock.wall_ms = jumping_wall_ms  # type: ignore[method-assign]
    LogManager.retain = noted_retain  # type: ignore[method-assign]
    main(prog_name="kgw")
