"""Every data directory that a test used is checked when the test is over; a plug-in of pytest.

The storage checker walks the directories below `tmp_path` and the simulated disks that the test
made. A test fails whose directory breaks an invariant, although all that it asserted was right.
One that damages a directory on purpose says so and why: `@pytest.mark.damages_storage("...")`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.layout import FORMAT_NAME, STATE_PLACE_NAME
from kgw.backend.embedded.offline.check import check_directory
from kgw.backend.embedded.offline.opening import opened_state
from kgw.offsets.storage import OffsetStorage
from kgw.testing.faults import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kgw.backend.embedded.offline.problems import Problem
    from kgw.offsets.recovery import Checkpoint
    from kgw.types import PartitionKey

# A property makes hundreds of disks: the last ones stand for all.
_DISKS = 20


async def _checkpoints(root: str) -> dict[PartitionKey, Checkpoint]:
    async with opened_state(root) as state:
        return dict((await OffsetStorage(state).load()).checkpoints)


def problems_below(path: Path) -> list[Problem]:
    """Return what is wrong with the data directories below a path, which no process may use.

    Of the database only the checkpoints are compared: tests of backends create no topics.
    """
    problems: list[Problem] = []
    for found in sorted(path.rglob(FORMAT_NAME)):
        root = str(found.parent)
        checkpoints = None
        # A database server may be gone.
        if not (found.parent / STATE_PLACE_NAME).exists():
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                checkpoints = runner.run(_checkpoints(root))
        problems += check_directory(root, None, checkpoints)
    return problems


def problems_of(disk: SimulatedFs) -> list[Problem]:
    """Return what is wrong with the data directories of a simulated disk."""
    disk.inject(None)
    disk.on_operation = None
    roots = [path.rpartition("/")[0] for path in disk.files() if path.endswith(f"/{FORMAT_NAME}")]
    return [problem for root in roots for problem in check_directory(root, disk)]


@pytest.fixture(autouse=True)
def storage_is_sound(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check what the test leaves, after all its other fixtures have ended."""
    damage = request.node.get_closest_marker("damages_storage")
    if damage is not None:
        (reason,) = damage.args
        assert reason, "a test that damages its storage says why"
        yield
        return
    path: Path | None = None
    if "tmp_path" in request.fixturenames:
        path = request.getfixturevalue("tmp_path")
    disks: deque[SimulatedFs] = deque(maxlen=_DISKS)
    SimulatedFs.on_made = disks.append
    yield
    SimulatedFs.on_made = None
    problems = problems_below(path) if path is not None else []
    for disk in disks:
        problems += problems_of(disk)
    if problems:
        found = "\n".join(map(str, problems))
        pytest.fail(f"the storage checker finds:\n{found}", pytrace=False)
