"""Where a container's control group is, in both versions."""

from __future__ import annotations

import pytest

from tests.image.container import MemoryGroup, memory_group


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("0::/one\n", MemoryGroup("one", is_first_version=False)),
        ("5:cpu:/\n4:memory:/one\n", MemoryGroup("memory/one", is_first_version=True)),
        ("0::/\n4:pids,memory:/one\n", MemoryGroup("memory/one", is_first_version=True)),
    ],
)
def test_memory(said: str, expected: MemoryGroup) -> None:
    """Version 2, version 1, and both at once, where memory is of version 1."""
    assert expected == memory_group(said)


def test_no_memory() -> None:
    """Without either there is no limit to look at."""
    with pytest.raises(ValueError, match="no control group limits memory"):
        memory_group("4:cpu:/\n")
