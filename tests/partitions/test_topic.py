from __future__ import annotations

import pytest

from kgw.partitions.topics.topic import TopicRow, name_problem
from kgw.types import TopicId, TopicName


def test_row_round_trip() -> None:
    """A stored topic is read back as it was."""
    row = TopicRow(TopicName("orders"), TopicId(bytes(range(16))), 3, {"segment.bytes": "4096"})
    assert row == TopicRow.decode(row.encode())
    assert "AAECAwQFBgcICQoLDA0ODw" == row.key


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"{}",
        b'{"name": "a", "topic_id": "short", "partitions": 1, "configs": {}}',
        b'{"name": "a", "topic_id": "AAECAwQFBgcICQoLDA0ODw", "partitions": 1, "configs": []}',
        b'{"name": "a", "topic_id": "AAECAwQFBgcICQoLDA0ODw", "partitions": null, "configs": {}}',
    ],
)
def test_what_is_no_row_is_refused(value: bytes) -> None:
    """A row that means nothing is an error, never a topic with odd properties."""
    with pytest.raises(ValueError):  # noqa: PT011 - JSON's own errors among them
        TopicRow.decode(value)


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "...", "_", "-"])
def test_legal_names(name: str) -> None:
    """Letters, digits, '.', '_' and '-', up to 249 of them."""
    assert name_problem(name) is None
