"""What a history says of each transaction, and what every judge of a history has."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.campaigns.history.events import (
    Anomaly,
    AnomalyKind,
    Bounds,
    Commit,
    FetchedOffset,
    Outcome,
    Poll,
    Seek,
    Send,
    TransactionEnd,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tests.campaigns.history.events import Event, FinalLog


class History(NamedTuple):
    """The events of a history, those of each kind by themselves and in their order."""

    sends: list[Send]
    reads: list[Poll | Seek]
    bounds: list[Bounds]
    ends: dict[str, Outcome]
    """How transactions ended, by their names; the others have no end."""
    offsets: list[Commit | FetchedOffset | TransactionEnd | Poll]
    """What there is to know of committed offsets: polls say which transactions are committed."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        """Return the history of events that come in any iterable."""
        found = cls([], [], [], {}, [])
        for event in events:
            match event:
                case Send():
                    found.sends.append(event)
                case Poll():
                    found.reads.append(event)
                    found.offsets.append(event)
                case Seek():
                    found.reads.append(event)
                case Bounds():
                    found.bounds.append(event)
                case TransactionEnd():
                    found.ends[event.transaction] = event.outcome
                    found.offsets.append(event)
                case _:
                    found.offsets.append(event)
        return found


class Fates:
    """Which transactions are committed, and which records are acknowledged for good.

    A transaction of which nobody knows how it ended is committed when readers of committed records
    get one of its records in the end. It is aborted when they get none, and have passed one.
    """

    def __init__(self, history: History, final: Mapping[int, FinalLog]) -> None:
        self.of_value = {
            (send.partition, send.value): send.transaction
            for send in history.sends
            if send.transaction is not None
        }
        """The transaction of each record that has one."""
        self._outcomes = dict(history.ends)
        for partition, log in final.items():
            for _, value in log.committed or ():
                name = self.of_value.get((partition, value))
                if name is not None and self.outcome(name) is Outcome.INFO:
                    self._outcomes[name] = Outcome.OK
        self._undone = {
            name
            for partition, log in final.items()
            if log.committed is not None
            for name in self._hidden(partition, log, log.committed)
            if self.outcome(name) is Outcome.INFO
        }

    def _hidden(
        self, partition: int, log: FinalLog, committed: Sequence[tuple[int, bytes]]
    ) -> Iterator[str]:
        """Return whose records readers of committed records have passed by the end."""
        visible = {value for _, value in committed}
        for offset, value in log.records:
            name = self.of_value.get((partition, value))
            if name is not None and offset < log.stable_end and value not in visible:
                yield name

    def outcome(self, transaction: str) -> Outcome:
        """Return whether a transaction is committed, aborted, or nobody knows."""
        return self._outcomes.get(transaction, Outcome.INFO)

    def is_undone(self, transaction: str) -> bool:
        """Whether a transaction is aborted, by its client or by what is left of it at the end."""
        return self.outcome(transaction) is Outcome.FAIL or transaction in self._undone

    def is_acknowledged(self, send: Send) -> bool:
        """Whether a record must be there, and readers of committed records must get it."""
        return send.outcome is Outcome.OK and (
            send.transaction is None or self.outcome(send.transaction) is Outcome.OK
        )


class Judge:
    """Looks at one side of a history, and reports what it finds."""

    def __init__(self, anomalies: list[Anomaly]) -> None:
        """Findings go to the end of `anomalies`."""
        self._anomalies = anomalies

    def _report(self, kind: AnomalyKind, partition: int, detail: str) -> None:
        self._anomalies.append(Anomaly(kind, partition, detail))
