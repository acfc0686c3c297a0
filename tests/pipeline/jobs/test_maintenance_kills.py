"""merge, compact and sweep killed with -9 at any moment, while the topic is archived.

MAINTENANCE_KILLS=20 says how often.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kgw.pipeline.archive.units import Sizes
from kgw.pipeline.jobs import compact
from tests.pipeline.archive.test_units import row
from tests.pipeline.jobs.lives import append, new_life, pieces, read
from tests.pipeline.jobs.runners import Backwards

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("MAINTENANCE_KILLS", "20"))


def state_of(rows: list[dict[str, Any]]) -> dict[bytes, tuple[int, bytes]]:
    """Return what a reader knows in the end: offset and value by key, without what was deleted."""
    newest = {one["key"]: one for one in rows}
    return {
        key: (one["offset"], one["value"])
        for key, one in newest.items()
        if one["value"] is not None
    }


def test_a_reader_knows_the_same_whenever_a_job_was_killed(tmp_path: Path) -> None:
    """The newest record of each key is there, no deleted key comes back, an audit is content."""
    choices = random.Random(20261)
    life = new_life(tmp_path / "archive")
    every: list[dict[str, Any]] = []

    def archive() -> None:
        first = len(every)
        rows = [
            row(
                first + at,
                key=b"%d" % choices.randrange(200),
                value=None if choices.random() < 0.2 else b"%d" % (first + at),
            )
            for at in range(choices.randrange(1, 300))
        ]
        append(life, rows, first + len(rows))
        every.extend(rows)

    archive()
    command = [sys.executable, "-m", "tests.pipeline.jobs.maintaining", str(life.root)]
    for _ in range(KILLS):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
            assert job.stdout is not None
            for _ in range(choices.randrange(1, 12)):
                archive()
                assert job.stdout.readline() in {"unit\n", "round\n"}
            job.kill()
        pieces(life)
        assert state_of(every) == state_of(read(life))

    settings = compact.Settings(life, 1 << 60, 1 << 20, Sizes())
    dues = compact.plan(life.log.read().coverage, min_dirty_ratio=0.0)
    compact.run(settings, dues, Backwards(), now_ms=lambda: 0)
    pieces(life)
    left = read(life)
    assert state_of(every) == {one["key"]: (one["offset"], one["value"]) for one in left}
    assert len({one["key"] for one in left}) == len(left)
    print(f"{len(every)} records, {KILLS} kills, version {life.log.read().version}")
