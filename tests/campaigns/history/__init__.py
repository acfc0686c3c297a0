"""Judges what clients saw of a broker, and its logs as they are at the end.

The model is that of the public Kafka workload of Jepsen, made stricter by what one node allows: at
the end every partition is read from start to end, so that each acknowledged record can be looked up
at its very offset. Each sent value must be unique. A send that got no definite answer is `INFO`:
its record may be there once or not at all; so are the records and offsets of a transaction of which
nobody knows how it ended, all of them or none. Cost is linear in the history, but for sorting the
offsets of transactional records.

`events` says what a history is made of, `fates` what became of its transactions. `records`,
`transactions` (with `cycles`) and `commits` judge a side of it each; `progress` judges times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.campaigns.history.commits import CommitChecker
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
from tests.campaigns.history.fates import Fates, History
from tests.campaigns.history.progress import check_progress
from tests.campaigns.history.records import RecordChecker
from tests.campaigns.history.transactions import TransactionChecker

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
    keeps_all: bool = False,
) -> list[Anomaly]:
    """Return every anomaly of a history.

    `events` come in the order in which they completed, except that the sends of one process come in
    the order of sending. With `drained` consumers were left to read to the end, so that what was
    acknowledged must have been polled. `ordered_sends` says that each process kept the order of its
    sends (idempotent producers do). With `keeps_all` nothing is removed from the start of a log:
    where one begins excuses no record that is not there.
    """
    history = History.of(events)
    fates = Fates(history, final)
    anomalies: list[Anomaly] = []
    RecordChecker(
        anomalies,
        fates,
        final,
        drained=drained,
        ordered_sends=ordered_sends,
        keeps_all=keeps_all,
    ).check(history)
    TransactionChecker(anomalies, fates, final).check(history)
    CommitChecker(anomalies, fates).check(history)
    return anomalies
