"""What the processes of one exactly-once pipeline said, and what must not be there."""

from __future__ import annotations

from collections import defaultdict
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.campaigns.history import Commit, FetchedOffset, Outcome, Poll, Send, TransactionEnd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.campaigns.history import Event
    from tests.campaigns.support import Report

_NEIGHBOURS = 10

Place = tuple[int, int]
"""A partition and an offset."""


class Transaction:
    """What a worker said of one of its transactions."""

    def __init__(
        self,
        process: str,
        name: str,
        records: Sequence[tuple[int, str]],
        offsets: Sequence[tuple[int, int]],
    ) -> None:
        self.process = process
        self.name = name
        self.records = records
        self.offsets = offsets
        """By partition of the source, up to where it goes."""
        self.acknowledged: Sequence[int] | None = None
        self.has_offsets = False
        """Whether the group has taken the offsets, as part of it."""
        self.outcome: Outcome | None = None
        """None as long as its worker has not said how it ended."""


class Output(NamedTuple):
    """A record of the target."""

    transaction: str
    read_at: Place
    value: str


def output_of(text: str) -> Output:
    """Return what a text of the target says."""
    transaction, partition, offset, value = text.split("|", 3)
    return Output(transaction, (int(partition), int(offset)), value)


class PipelineBook:
    """The evidence of one pipeline. Its processes are heard in threads of their own."""

    def __init__(self, name: str, report: Report) -> None:
        self.name = name
        self._report = report
        self._lock = Lock()
        self._transactions: dict[str, Transaction] = {}
        self._last: dict[str, Transaction] = {}
        self._heard: list[Event] = []
        self._found: dict[str, dict[Place, Place]] = defaultdict(dict)
        self._values: dict[Place, str] = {}

    def hear(self, process: str, line: Mapping[str, Any]) -> None:
        """Take what a worker or a reader says; see exactly_once_member.py."""
        with self._lock:
            at = line["at"]
            if at == "begun":
                one = Transaction(process, line["transaction"], line["records"], line["offsets"])
                self._transactions[one.name] = self._last[process] = one
            elif at == "sent":
                self._transactions[line["transaction"]].acknowledged = line["offsets"]
                self._report.count("records_sent", len(line["offsets"]))
            elif at == "offsets":
                one = self._transactions[line["transaction"]]
                one.has_offsets = True
                self._heard += self._commits(one, Outcome.OK)
            elif at == "ended":
                one = self._transactions[line["transaction"]]
                one.outcome = Outcome(line["outcome"])
                self._heard.append(TransactionEnd(process, one.name, one.outcome))
                self._report.count(f"transactions_{one.outcome.value}")
            elif at == "polled":
                self._poll(process, line["records"])
            elif at == "stale":
                self._report.count("stale_positions", len(line["places"]))
                for partition, offset, committed in line["told"]:
                    self._fail(
                        f"TOLD: {process} was told that the group is at {(partition, offset)}, and "
                        f"then at {committed}"
                    )

    def _commits(self, one: Transaction, outcome: Outcome) -> list[Commit]:
        """Return the commits of a transaction: they count if it does."""
        return [
            Commit(one.process, self.name, partition, offset, outcome, one.name)
            for partition, offset in one.offsets
        ]

    def _poll(self, reader: str, records: Sequence[tuple[int, int, str]]) -> None:
        by_partition: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        found = self._found[reader]
        for partition, offset, text in records:
            by_partition[partition].append((offset, text.encode()))
            output = output_of(text)
            if output.read_at in found:
                before = found[output.read_at]
                self._fail(
                    f"DUPLICATE: {reader} got what was made of {output.read_at} at {before} and, "
                    f"by {output.transaction}, at {(partition, offset)}"
                )
            found[output.read_at] = (partition, offset)
            known = self._values.setdefault(output.read_at, output.value)
            if known != output.value:
                self._fail(f"WRONG: {output.read_at} became {known} and {output.value}")
        for partition, those in by_partition.items():
            self._heard.append(Poll(reader, partition, tuple(those), read_committed=True))
        self._report.count("records_read", len(records))

    def _fail(self, what: str) -> None:
        self._report.fail(f"{self.name}: {what}")

    def open_transaction(self, process: str) -> str | None:
        """Return the transaction that a worker has begun and not ended, as far as it has said."""
        with self._lock:
            one = self._last.get(process)
            return one.name if one is not None and one.outcome is None else None

    def outcome(self, transaction: str) -> Outcome | None:
        """Return how a transaction ended, by its worker; None where it did not say."""
        with self._lock:
            return self._transactions[transaction].outcome

    def judge_zombies(self, transactions: Iterable[str]) -> None:
        """Hold it against the pipeline when one of these has ended well, as its worker says."""
        for name in transactions:
            if self.outcome(name) is Outcome.OK:
                self._fail(f"ZOMBIE: {name} was committed")

    def count_read(self, reader: str) -> int:
        """Return of how many input records a reader has what was made of them."""
        with self._lock:
            return len(self._found[reader])

    def judge(
        self, source: Mapping[Place, str], readers: Iterable[str], offsets: Mapping[int, int]
    ) -> None:
        """Compare what each of these readers, who read to the end, has with the whole input.

        MISSING is what the group will never read again, by its committed offsets; of what lies
        behind these nothing is lost, and the pipeline is BEHIND.
        """
        with self._lock:
            for place, value in self._values.items():
                if place not in source:
                    self._fail(f"INVENTED: nothing was read at {place}, which became {value}")
                elif value != source[place][::-1]:
                    self._fail(f"WRONG: {source[place]} at {place} became {value}")
            for reader in readers:
                unread = sorted(source.keys() - self._found[reader].keys())
                missing = [place for place in unread if place[1] < offsets.get(place[0], 0)]
                self._report.count("records_compared", len(source))
                if len(missing) < len(unread):
                    self._fail(
                        f"BEHIND: {reader} has nothing of {len(unread) - len(missing)} records of "
                        f"the input that the group has not read; it is at {offsets}"
                    )
                if missing:
                    self._fail(
                        f"MISSING: {reader} has nothing of {len(missing)} records of the input: "
                        f"{missing[:10]}; around the first: {self._around(missing[0])}"
                    )

    def _around(self, place: Place) -> list[str]:
        """Return what was done with a record of the input, and with its neighbours."""
        partition, offset = place
        found = []
        for one in self._transactions.values():
            read = [output_of(text).read_at for _, text in one.records]
            offsets = [at for number, at in read if number == partition]
            if offsets and min(offsets) - _NEIGHBOURS <= offset <= max(offsets) + _NEIGHBOURS:
                outcome = "unknown" if one.outcome is None else one.outcome.value
                found.append(f"{one.name} {min(offsets)}-{max(offsets)} {outcome}")
        return found

    def events(self, offsets: Mapping[int, int]) -> list[Event]:
        """Return the history, with the group's offsets at its end, for the checker."""
        with self._lock:
            sends: list[Event] = []
            for one in self._transactions.values():
                for number, (partition, text) in enumerate(one.records):
                    offset = None if one.acknowledged is None else one.acknowledged[number]
                    outcome = Outcome.INFO if offset is None else Outcome.OK
                    sends.append(
                        Send(one.process, partition, text.encode(), outcome, offset, one.name)
                    )
            unknown: list[Event] = [
                commit
                for one in self._transactions.values()
                if not one.has_offsets and one.outcome is not Outcome.FAIL
                for commit in self._commits(one, Outcome.INFO)
            ]
            fetched = [
                FetchedOffset(self.name, partition, offset) for partition, offset in offsets.items()
            ]
            return [*sends, *self._heard, *unknown, *fetched]
