"""The gateway with a wall clock that is wrong by what a file says, in milliseconds.

`KGW_CAMPAIGN_CLOCK=FILE python -m tests.campaigns.jumping_serve serve ...`
"""

from __future__ import annotations

import os
from pathlib import Path

from kgw.cli.main import main
from kgw.clock import SystemClock

CLOCK_FILE = "KGW_CAMPAIGN_CLOCK"

if __name__ == "__main__":
    wall_ms = SystemClock.wall_ms
    wrong_by = Path(os.environ[CLOCK_FILE])

    def jumping_wall_ms(self: SystemClock) -> int:
        """Read the clock, and be wrong."""
        return wall_ms(self) + int(wrong_by.read_text())

    SystemClock.wall_ms = jumping_wall_ms  # type: ignore[method-assign]
    main(prog_name="kgw")
