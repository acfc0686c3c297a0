"""What requests of many partitions name: Kafka refuses some that name a partition twice."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.turns import Share, Turns


def count_places(topics: Iterable[Any], share: Share) -> Turns[Counter[tuple[str, int]]]:
    """Return how often each partition is named, by topic and index.

    Topics have `name` and `partitions`, and those `partition_index`.
    """
    counts: Counter[tuple[str, int]] = Counter()
    for topic in topics:
        for place in topic.partitions:
            counts[topic.name, place.partition_index] += 1
            if share.spend():
                yield
        if share.spend():
            yield
    return counts
