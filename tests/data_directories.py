"""What the storage checker says of the data directories that tests leave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.backend.embedded.layout import FORMAT_NAME, STATE_PLACE_NAME
from kgw.backend.embedded.offline.check import check_directory
from kgw.backend.embedded.offline.opening import opened_state
from kgw.offsets.storage import OffsetStorage

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.backend.storage_problem import StorageProblem
    from kgw.offsets.recovery import Checkpoint
    from kgw.types import PartitionKey
    from tests.simulated_fs import SimulatedFs


async def _checkpoints(root: str) -> dict[PartitionKey, Checkpoint]:
    async with opened_state(root) as state:
        return dict((await OffsetStorage(state).load()).checkpoints)


def problems_below(path: Path) -> list[StorageProblem]:
    """Return what is wrong with the data directories below a path, which no process may use.

    Of the database only the checkpoints are compared: tests of backends create no topics.
    """
    problems: list[StorageProblem] = []
    for found in sorted(path.rglob(FORMAT_NAME)):
        root = str(found.parent)
        checkpoints = None
        # A database server may be gone.
        if not (found.parent / STATE_PLACE_NAME).exists():
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                checkpoints = runner.run(_checkpoints(root))
        problems += check_directory(root, None, checkpoints)
    return problems


def problems_of(disk: SimulatedFs) -> list[StorageProblem]:
    """Return what is wrong with the data directories of a simulated disk."""
    disk.inject(None)
    disk.on_operation = None
    roots = [path.rpartition("/")[0] for path in disk.files() if path.endswith(f"/{FORMAT_NAME}")]
    return [problem for root in roots for problem in check_directory(root, disk)]
