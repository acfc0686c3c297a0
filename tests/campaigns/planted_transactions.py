"""A broker of transactions with a known bug each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tests.campaigns.history import NO_OFFSET, AnomalyKind, Bounds, FinalLog, Poll
from tests.campaigns.planted_broker import Findings, Planted, found_by

if TYPE_CHECKING:
    from random import Random

PARTITIONS = 3
GROUP = "group"
BATCH = 7
"""Records that a poll gets at most."""

Place: TypeAlias = int | str
"""A partition or a group that has to hear of a decision."""


class Stored(NamedTuple):
    """What is at an offset: a marker has no value."""

    value: bytes | None
    transaction: str | None = None


class Transaction:
    """A transaction as its coordinator knows it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_commit: bool | None = None
        """What is decided."""
        self.places: set[Place] = set()
        """Where its end is not known yet."""
        self.offsets: dict[int, int] = {}
        """What it commits, by partition."""
        self.only_offsets = False
        """Whether its client writes no records in it."""
        self.written: set[int] = set()
        """The partitions that it has written to."""
        self.was_answered = False
        """Whether a client knows how it ended."""


class TransactionBroker(Planted):
    """Partitions, one group, and transactions."""

    def __init__(self, random: Random, bug: str | None) -> None:
        super().__init__(random, bug)
        self.logs: list[list[Stored]] = [[] for _ in range(PARTITIONS)]
        self.open: list[dict[str, int]] = [{} for _ in range(PARTITIONS)]
        """Where each transaction begins that is open in a partition."""
        self.committed: list[set[str]] = [set() for _ in range(PARTITIONS)]
        self.deciding: list[Transaction] = []
        self.offsets: dict[int, int] = {}
        self.offsets_before: dict[int, int] = {}
        self.aborted: list[tuple[int, str]] = []

    # --- transactions ---

    def write(self, partition: int, value: bytes, transaction: Transaction | None = None) -> int:
        log = self.logs[partition]
        if transaction is None:
            log.append(Stored(value))
            return len(log) - 1
        self.open[partition].setdefault(transaction.name, len(log))
        transaction.places.add(partition)
        transaction.written.add(partition)
        log.append(Stored(value, transaction.name))
        if self.strikes("writes-a-retry-again"):
            log.append(log[-1])
        return len(log) - 1

    def decide(self, transaction: Transaction, *, is_commit: bool, was_answered: bool) -> None:
        """End a transaction; the markers follow."""
        transaction.is_commit = is_commit
        transaction.was_answered = was_answered
        if transaction.places:
            self.deciding.append(transaction)

    def is_deciding(self, transaction: Transaction) -> bool:
        return transaction in self.deciding

    def carry_out(self, transaction: Transaction) -> None:
        """Write one marker, or tell the group."""
        place = self.random.choice(sorted(transaction.places, key=str))
        is_certain, is_commit = transaction.was_answered, bool(transaction.is_commit)
        if isinstance(place, str):
            self.tell_group(transaction, is_commit=is_commit)
        elif (
            is_commit
            and len(transaction.places - {GROUP}) > 1
            and self.strikes("forgets-a-marker", 0.5)
        ):
            pass
        else:
            self.mark(place, transaction, is_commit=is_commit, is_certain=is_certain)
        transaction.places.discard(place)
        if not transaction.places:
            self.deciding.remove(transaction)

    def mark(
        self, partition: int, transaction: Transaction, *, is_commit: bool, is_certain: bool
    ) -> None:
        name = transaction.name
        others = transaction.places - {partition, GROUP}
        if is_commit:
            bug = "aborts-in-one-partition" if is_certain else "aborts-a-part-of-an-unknown-one"
            if others and self.strikes(bug, 0.8):
                is_commit = False
        elif is_certain and self.strikes("commits-what-was-aborted", 0.5):
            is_commit = True
        if is_commit:
            self.committed[partition].add(name)
        else:
            self.aborted.append((partition, name))
        self.open[partition].pop(name, None)
        self.logs[partition].append(Stored(None))

    def tell_group(self, transaction: Transaction, *, is_commit: bool) -> None:
        for partition, offset in transaction.offsets.items():
            if is_commit and (
                (not transaction.written and self.bug == "drops-offsets-that-come-alone")
                or (not transaction.was_answered and self.bug == "drops-offsets-of-unknown-ones")
                or (transaction.written and self.strikes("drops-offsets", 0.5))
            ):
                continue
            if is_commit or self._counts_aborted_offsets(transaction):
                self.commit(partition, offset)

    def _counts_aborted_offsets(self, transaction: Transaction) -> bool:
        if self.bug == "counts-aborted-offsets-of-unknown-ones":
            return not transaction.was_answered and bool(transaction.written)
        return self.strikes("counts-aborted-offsets", 0.8)

    def crash(self) -> None:
        for transaction in self.deciding:
            if transaction.is_commit and self.bug == "answers-before-it-decides":
                transaction.is_commit = False
        for log in self.logs:
            if self.strikes("loses-committed-records", 0.5) and len(log) > 3:
                del log[-3:]
        if self.bug == "forgets-aborts-in-a-crash":
            for partition, name in self.aborted:
                self.committed[partition].add(name)
        if self.bug == "loses-an-offset-in-a-crash":
            self.offsets = dict(self.offsets_before)
        if self.bug == "loses-a-group-in-a-crash":
            self.offsets.clear()

    # --- groups ---

    def commit(self, partition: int, offset: int) -> None:
        self.offsets_before = dict(self.offsets)
        self.offsets[partition] = offset

    def is_stable(self, partition: int, transactions: list[Transaction]) -> bool:
        """Whether no transaction is about to change an offset."""
        return all(partition not in one.offsets or GROUP not in one.places for one in transactions)

    def fetch_offset(self, partition: int) -> int:
        offset = self.offsets.get(partition, NO_OFFSET)
        return offset + 1000 if self.strikes("invents-an-offset") else offset

    # --- readers ---

    def stable_end(self, partition: int, *, but: str | None = None) -> int:
        firsts = [first for name, first in self.open[partition].items() if name != but]
        return min([*firsts, len(self.logs[partition])])

    def bounds(self, partition: int) -> Bounds:
        end = len(self.logs[partition])
        stable_end = self.stable_end(partition)
        if self.strikes("stable-offset-goes-back"):
            stable_end //= 2
        if self.strikes("stable-offset-above-the-end"):
            stable_end = end + 1
        return Bounds(partition, 0, end, 0, stable_end)

    def poll(
        self,
        process: str,
        partition: int,
        position: int,
        *,
        committed: bool,
        transaction: Transaction | None = None,
    ) -> tuple[Poll, int]:
        """Return what a reader gets, and where it goes on."""
        name = None if transaction is None else transaction.name
        visible = self.committed[partition]
        end = len(self.logs[partition])
        if committed:
            end = self.stable_end(partition)
            if self.bug == "reads-beyond-the-stable-offset":
                end = len(self.logs[partition])
                visible = visible | set(self.open[partition])
            if name is not None and self.bug == "shows-a-transaction-its-own-records":
                end = self.stable_end(partition, but=name)
                visible = visible | {name}
            if name is not None and self.bug == "shows-transactions-each-other":
                end = len(self.logs[partition])
                visible = visible | set(self.open[partition]) - {name}
        hidden: set[str | None] = set()
        if committed and self.bug == "names-the-wrong-abort" and partition == 0:
            hidden = {one for one in visible if one[-1] in "05"}
        records: list[tuple[int, bytes]] = []
        at = position
        while at < end and len(records) < BATCH:
            value, writer = self.logs[partition][at]
            is_visible = not committed or writer is None or writer in visible
            if value is not None and is_visible and writer not in hidden:
                records.append((at, value))
            at += 1
        if name is not None and len(records) > 3:
            if self.strikes("skips-inside-a-transaction"):
                del records[1]
            if self.strikes("goes-back-inside-a-transaction"):
                records.append(records[0])
        return Poll(process, partition, tuple(records), name, committed), at

    def final(self, partition: int) -> FinalLog:
        """Return the log as it is read after everything has healed."""
        log = self.logs[partition]
        every = [(at, one.value) for at, one in enumerate(log) if one.value is not None]
        stable_end = self.stable_end(partition)
        committed = [
            (at, value)
            for at, value in every
            if at < stable_end
            and (log[at].transaction is None or log[at].transaction in self.committed[partition])
        ]
        plain = [at for at, (offset, _) in enumerate(committed) if not log[offset].transaction]
        if self.bug == "ends-without-a-plain-record":
            del committed[plain[-1]]
        if self.bug == "ends-with-a-part-of-a-transaction" and partition:
            committed = [one for one in committed if not log[one[0]].transaction]
        if self.bug == "ends-with-an-aborted-record":
            committed = [one for one in every if one[0] < stable_end]
        if self.bug == "ends-with-two-readings":
            committed[-1] = (committed[-1][0], committed[-2][1])
        if self.bug == "ends-with-committed-records-out-of-order":
            committed[-1], committed[-2] = committed[-2], committed[-1]
        return FinalLog(0, len(log), every, committed, stable_end)


LOST, DUPLICATE = AnomalyKind.ACKED_LOST, AnomalyKind.DUPLICATE
ABORTED_READ, TIME_TRAVEL = AnomalyKind.ABORTED_READ, AnomalyKind.TIME_TRAVEL
TORN, HANGING = AnomalyKind.TORN_TRANSACTION, AnomalyKind.HANGING
PRECOMMITTED, CIRCULAR = AnomalyKind.PRECOMMITTED_READ, AnomalyKind.CIRCULAR_INFORMATION
COMMIT_LOST, COMMIT_INVENTED = AnomalyKind.COMMIT_LOST, AnomalyKind.COMMIT_INVENTED
TWO_VALUES, BOUNDS_BACK = AnomalyKind.INCONSISTENT_OFFSETS, AnomalyKind.BOUNDS_WENT_BACK
POLL_BACK, SKIP = AnomalyKind.NONMONOTONIC_POLL, AnomalyKind.POLL_SKIP
MOVED, UNSEEN = AnomalyKind.ACKED_MOVED, AnomalyKind.UNSEEN
SEND_BACK = AnomalyKind.NONMONOTONIC_SEND

TRANSACTION_BUGS: dict[str, Findings] = {
    "forgets-a-marker": found_by(HANGING),
    "leaves-open-what-clients-left": found_by(HANGING),
    "aborts-in-one-partition": found_by(TORN),
    "aborts-a-part-of-an-unknown-one": found_by(TORN),
    "commits-what-was-aborted": found_by(ABORTED_READ),
    "answers-before-it-decides": found_by(LOST, may=(COMMIT_LOST, TORN, TIME_TRAVEL)),
    "forgets-aborts-in-a-crash": found_by(ABORTED_READ, SKIP, may=(COMMIT_LOST, TORN)),
    "loses-committed-records": found_by(
        *(LOST, BOUNDS_BACK, SEND_BACK, TWO_VALUES, TIME_TRAVEL, UNSEEN), may=(SKIP, TORN, MOVED)
    ),
    "zombies-may-end": found_by(
        LOST, may=(ABORTED_READ, COMMIT_LOST, HANGING, PRECOMMITTED, TORN, CIRCULAR)
    ),
    "stores-what-a-transaction-is-refused": found_by(ABORTED_READ),
    "writes-a-retry-again": found_by(DUPLICATE),
    "reads-beyond-the-stable-offset": found_by(
        ABORTED_READ, PRECOMMITTED, may=(CIRCULAR, TIME_TRAVEL)
    ),
    "shows-a-transaction-its-own-records": found_by(PRECOMMITTED, may=(TIME_TRAVEL,)),
    "shows-transactions-each-other": found_by(
        CIRCULAR, may=(ABORTED_READ, SKIP, TIME_TRAVEL, TORN)
    ),
    "names-the-wrong-abort": found_by(SKIP, TORN),
    "skips-inside-a-transaction": found_by(SKIP, may=(TORN,)),
    "goes-back-inside-a-transaction": found_by(POLL_BACK, may=(SKIP,)),
    "drops-offsets": found_by(COMMIT_LOST),
    "drops-offsets-that-come-alone": found_by(COMMIT_LOST),
    "drops-offsets-of-unknown-ones": found_by(COMMIT_LOST),
    "drops-a-plain-commit": found_by(COMMIT_LOST),
    "counts-aborted-offsets": found_by(ABORTED_READ),
    "counts-aborted-offsets-of-unknown-ones": found_by(ABORTED_READ),
    "counts-refused-commits": found_by(COMMIT_INVENTED),
    "invents-an-offset": found_by(COMMIT_INVENTED),
    "loses-an-offset-in-a-crash": found_by(COMMIT_LOST),
    "loses-a-group-in-a-crash": found_by(COMMIT_LOST),
    "stable-offset-goes-back": found_by(BOUNDS_BACK),
    "stable-offset-above-the-end": found_by(BOUNDS_BACK, TWO_VALUES),
    "ends-without-a-plain-record": found_by(LOST, TIME_TRAVEL),
    "ends-with-a-part-of-a-transaction": found_by(TORN, TIME_TRAVEL, may=(LOST, ABORTED_READ)),
    "ends-with-an-aborted-record": found_by(ABORTED_READ, SKIP),
    "ends-with-two-readings": found_by(TWO_VALUES, DUPLICATE, may=(LOST, TORN)),
    "ends-with-committed-records-out-of-order": found_by(TWO_VALUES, SKIP),
}
