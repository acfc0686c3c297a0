"""What the judge of late updates says of a partition."""

from __future__ import annotations

import pytest

from tests.campaigns.seaweedmq_late import HOLES, LOST, TWICE, PartitionBook

ACKNOWLEDGED = [(0, b"a"), (1, b"b"), (2, b"c")]


def book() -> PartitionBook:
    """Return what was sent to a partition: three that were acknowledged, one without an answer."""
    partition = PartitionBook()
    partition.acknowledged += ACKNOWLEDGED
    partition.unknown |= {b"a", b"b", b"c", b"d"}
    return partition


@pytest.mark.parametrize("found", [ACKNOWLEDGED, [*ACKNOWLEDGED, (3, b"d")]])
def test_what_was_acknowledged_is_right(found: list[tuple[int, bytes]]) -> None:
    """With what has no answer, or without it."""
    assert "" == book().judge(found)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (ACKNOWLEDGED[:2], LOST),
        (ACKNOWLEDGED[1:], LOST),
        ([(0, b"a"), (1, b"c"), (2, b"b")], LOST),
        ([(0, b"a"), (1, b"b"), (3, b"c")], LOST),
        ([*ACKNOWLEDGED, (4, b"d")], HOLES),
        ([*ACKNOWLEDGED, (2, b"d")], HOLES),
        ([*ACKNOWLEDGED, (3, b"c")], TWICE),
        ([*ACKNOWLEDGED, (3, b"x")], TWICE),
    ],
)
def test_each_kind_of_loss_is_told(found: list[tuple[int, bytes]], words: str) -> None:
    """Lost, moved, a hole, an offset given twice, a record stored twice, one that nobody sent."""
    assert book().judge(found).startswith(words)
