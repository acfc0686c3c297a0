"""Merges, compacts and sweeps an archive until it is killed: `python -m ... DIRECTORY`.

Prints a line after each unit, and one that says `round` after each round.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kgw.pipeline.archive.sweeping import sweep
from kgw.pipeline.archive.units import Sizes
from kgw.pipeline.jobs import compact, merge
from tests.pipeline.jobs.lives import new_life
from tests.pipeline.jobs.runners import Backwards


def main() -> None:
    """Do it."""
    life = new_life(Path(sys.argv[1]))
    runner = Backwards(lambda: print("unit", flush=True))
    sizes = Sizes()
    while True:
        groups = merge.plan_life(life, 1 << 20)
        merge.run(life, groups, runner, sizes=sizes, now_ms=lambda: 0)
        # Every tombstone is old enough.
        settings = compact.Settings(life, 1 << 60, 1 << 20, sizes)
        dues = compact.plan(life.log.read().coverage, min_dirty_ratio=0.0)
        compact.run(settings, dues, runner, now_ms=lambda: 0)
        sweep(life.generation, life.log, now_s=time.time(), replaced_grace_s=0)
        print("round", flush=True)


if __name__ == "__main__":
    main()
