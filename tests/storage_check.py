"""Every data directory that a test used is checked when the test is over; a plug-in of pytest.

The storage checker walks the directories below `tmp_path` and the simulated disks that the test
made. A test fails whose directory breaks an invariant, although all that it asserted was right.
One that damages a directory on purpose says so and why: `@pytest.mark.damages_storage("...")`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest

from tests.data_directories import problems_below, problems_of
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A property makes hundreds of disks: the last ones stand for all.
_DISKS = 20


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
