"""Judges what clients saw of a broker: sends, polls, bounds, and the logs as they are at the end.

The model is that of the public Kafka workload of Jepsen, made stricter by what one node allows: at
the end every partition is read from start to end, so that each acknowledged record can be looked up
at its very offset. Each sent value must be unique. A send that got no definite answer is `INFO`:
its record may be there once or not at all. Cost is linear in the history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.campaigns.history.events import (
    NO_OFFSET,
    NO_PARTITION,
    Anomaly,
    AnomalyKind,
    Bounds,
    Commit,
    Event,
    FetchedOffset,
    FinalLog,
    Outcome,
    Poll,
    Seek,
    Send,
    TransactionEnd,
)
from tests.campaigns.history.progress import check_progress
from tests.campaigns.history.records import RecordChecker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "NO_OFFSET",
    "NO_PARTITION",
    "Anomaly",
    "AnomalyKind",
    "Bounds",
    "Commit",
    "Event",
    "FetchedOffset",
    "FinalLog",
    "Outcome",
    "Poll",
    "Seek",
    "Send",
    "TransactionEnd",
    "check_history",
    "check_progress",
]


def check_history(
    events: Iterable[Event],
    final: Mapping[int, FinalLog],
    *,
    drained: bool = False,
    ordered_sends: bool = True,
) -> list[Anomaly]:
    """Return every anomaly of a history.

    `events` come in the order in which they completed, except that the sends of one process come in
    the order of sending. With `drained` consumers were left to read to the end, so that what was
    acknowledged must have been polled. `ordered_sends` says that each process kept the order of its
    sends (idempotent producers do).
    """
    return RecordChecker(final, drained, ordered_sends).check(events)
