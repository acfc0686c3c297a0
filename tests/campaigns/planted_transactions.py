"""A broker of transactions with a known bug each, and what clients see of it.

Clients begin transactions, write, read, commit offsets, commit and abort. Answers are lost, clients
die and come again, old ones that were fenced go on, partitions change hands, and the broker
crashes. Markers are written one at a time, and others come between.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tests.campaigns.history import (
    NO_OFFSET,
    AnomalyKind,
    Bounds,
    Commit,
    FetchedOffset,
    FinalLog,
    Outcome,
    Poll,
    Seek,
    Send,
    TransactionEnd,
)
from tests.campaigns.planted_broker import Findings, Planted, found_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.campaigns.history import Event

PARTITIONS = 3
STEPS = 2200
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
            if is_commit or self.strikes("counts-aborted-offsets", 0.8):
                self.commit(partition, offset)

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


class Worker:
    """A client that reads, writes and commits offsets in transactions, and outside of them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.transaction: Transaction | None = None
        self.must_abort = False
        self.zombies: list[Transaction] = []
        """What it left open when it died, and may still believe to be open."""
        self.count = 0
        self.positions = dict.fromkeys(range(PARTITIONS), 0)


class Simulation:
    """What the clients of a broker do, and see."""

    def __init__(self, seed: int, bug: str | None) -> None:
        self.random = Random(seed)
        self.broker = TransactionBroker(self.random, bug)
        self.workers = [Worker(f"w{number}") for number in range(PARTITIONS)]
        self.owners = list(self.workers)
        """Who owns each partition in the group."""
        self.followers = {
            (process, number): 0
            for process in ("committed", "every")
            for number in range(PARTITIONS)
        }
        self.events: list[Event] = []
        self.values = 0
        self.transactions: list[Transaction] = []

    def run(self) -> tuple[list[Event], dict[int, FinalLog]]:
        """Return the history of some hundred steps, drained at the end."""
        steps: list[tuple[Callable[[], None], int]] = [
            (self._work, 70),
            (self._carry_out, 20),
            (self._follow, 12),
            (self._ask, 10),
            (self._rebalance, 3),
            (self._zombie, 6),
            (self._crash, 5),
        ]
        actions = [action for action, weight in steps for _ in range(weight)]
        for _ in range(STEPS):
            self.random.choice(actions)()
        self._heal()
        return self.events, {number: self.broker.final(number) for number in range(PARTITIONS)}

    # --- workers ---

    def _work(self) -> None:
        worker = self.random.choice(self.workers)
        roll = self.random.random()
        transaction = worker.transaction
        if transaction is None:
            if roll < 0.75:
                self._begin(worker)
            else:
                self._send(worker, None)
        elif roll < 0.4 and not worker.must_abort and not transaction.only_offsets:
            self._send(worker, transaction)
        elif roll < 0.7:
            self._poll(worker, transaction)
        elif roll < 0.88 and not worker.must_abort:
            self._commit_offsets(worker, transaction)
        elif roll < 0.985:
            self._end(worker, transaction)
        else:
            self._die(worker, transaction)

    def _begin(self, worker: Worker) -> None:
        # What is decided is carried out before the next transaction begins.
        for one in list(self.broker.deciding):
            while one.name.startswith(worker.name) and self.broker.is_deciding(one):
                self.broker.carry_out(one)
        for left in worker.zombies:
            if left.is_commit is None and self.broker.bug != "leaves-open-what-clients-left":
                self.broker.decide(left, is_commit=False, was_answered=False)
                while self.broker.is_deciding(left):
                    self.broker.carry_out(left)
        worker.count += 1
        worker.must_abort = False
        worker.transaction = Transaction(f"{worker.name}/{worker.count}")
        worker.transaction.only_offsets = self.random.random() < 0.2
        self.transactions.append(worker.transaction)

    def _send(self, worker: Worker, transaction: Transaction | None) -> None:
        self.values += 1
        value = b"value-%d" % self.values
        partition = self.random.randrange(PARTITIONS)
        name = None if transaction is None else transaction.name
        roll = self.random.random()
        if roll < 0.02:
            if self.broker.strikes("stores-what-a-transaction-is-refused", 0.9):
                self.broker.write(partition, value, transaction)
            worker.must_abort = True
            self._say(Send(worker.name, partition, value, Outcome.FAIL, None, name))
        elif roll < 0.04:
            if roll < 0.03:
                self.broker.write(partition, value, transaction)
            worker.must_abort = True
            self._say(Send(worker.name, partition, value, Outcome.INFO, None, name))
        else:
            offset = self.broker.write(partition, value, transaction)
            asked = None if roll > 0.95 else offset
            self._say(Send(worker.name, partition, value, Outcome.OK, asked, name))

    def _poll(self, worker: Worker, transaction: Transaction | None) -> None:
        partition = self.random.randrange(PARTITIONS)
        poll, worker.positions[partition] = self.broker.poll(
            worker.name,
            partition,
            worker.positions[partition],
            committed=True,
            transaction=transaction,
        )
        if poll.records:
            self._say(poll)

    def _commit_offsets(self, worker: Worker, transaction: Transaction) -> None:
        owned = [number for number, owner in enumerate(self.owners) if owner is worker]
        if not owned:
            return
        partition = self.random.choice(owned)
        self.values += 1
        offset = self.values
        outcome = Outcome.OK if self.random.random() < 0.9 else Outcome.INFO
        if outcome is Outcome.OK or self.random.random() < 0.5:
            transaction.places.add(GROUP)
            transaction.offsets[partition] = offset
        worker.must_abort = outcome is Outcome.INFO
        self._say(Commit(worker.name, GROUP, partition, offset, outcome, transaction.name))

    def _end(self, worker: Worker, transaction: Transaction) -> None:
        is_commit = not worker.must_abort and self.random.random() < 0.75
        was_answered = self.random.random() < 0.75
        worker.transaction = None
        if was_answered or self.random.random() < 0.8:
            self.broker.decide(transaction, is_commit=is_commit, was_answered=was_answered)
        else:
            worker.zombies.append(transaction)
        outcome = Outcome.OK if is_commit else Outcome.FAIL
        self._say(
            TransactionEnd(worker.name, transaction.name, outcome if was_answered else Outcome.INFO)
        )
        if not is_commit:
            for partition in range(PARTITIONS):
                self._seek(worker, partition)

    def _die(self, worker: Worker, transaction: Transaction) -> None:
        worker.zombies.append(transaction)
        worker.transaction = None
        for partition in range(PARTITIONS):
            self._seek(worker, partition)

    def _zombie(self) -> None:
        """Somebody whom a new client has fenced tries to commit."""
        worker = self.random.choice(self.workers)
        fenced = [one for one in worker.zombies if one.is_commit is False and one.written]
        if not fenced:
            return
        zombie = self.random.choice(fenced)
        worker.zombies.remove(zombie)
        current = worker.transaction
        if current is not None and current.places and self.broker.bug == "zombies-may-end":
            self.broker.decide(current, is_commit=True, was_answered=False)
            while self.broker.is_deciding(current):
                self.broker.carry_out(current)
            self._say(TransactionEnd(worker.name, zombie.name, Outcome.OK))
        else:
            self._say(TransactionEnd(worker.name, zombie.name, Outcome.FAIL))

    # --- groups ---

    def _rebalance(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        if not self._is_stable(partition):
            return
        before = self.owners[partition]
        self.owners[partition] = self.random.choice(self.workers)
        self._ask_offset(partition)
        self._seek(self.owners[partition], partition)
        if before is not self.owners[partition]:
            self._zombie_commit(before, partition)
        # The new owner begins with a commit outside of any transaction.
        self.values += 1
        offset = self.values
        lost = self.random.random() < 0.2
        arrives = not lost or self.random.random() < 0.5
        if arrives and not self.broker.strikes("drops-a-plain-commit", 0.5):
            self.broker.commit(partition, offset)
        outcome = Outcome.INFO if lost else Outcome.OK
        self._say(Commit(self.owners[partition].name, GROUP, partition, offset, outcome))

    def _zombie_commit(self, worker: Worker, partition: int) -> None:
        self.values += 1
        if self.broker.strikes("counts-refused-commits", 0.8):
            self.broker.commit(partition, self.values)
        self._say(Commit(worker.name, GROUP, partition, self.values, Outcome.FAIL))
        self._ask_offset(partition)

    def _is_stable(self, partition: int) -> bool:
        open_ones = [one for one in self.transactions if one.is_commit is None]
        return self.broker.is_stable(partition, [*open_ones, *self.broker.deciding])

    def _ask_offset(self, partition: int) -> None:
        offset = self.broker.fetch_offset(partition)
        self._say(FetchedOffset(GROUP, partition, offset))

    # --- everybody else ---

    def _ask(self) -> None:
        self._say(self.broker.bounds(self.random.randrange(PARTITIONS)))
        self._ask_offsets()

    def _ask_offsets(self) -> None:
        for partition in range(PARTITIONS):
            if self._is_stable(partition):
                self._ask_offset(partition)

    def _follow(self) -> None:
        process, partition = self.random.choice(list(self.followers))
        if self.random.random() < 0.05:
            self._say(Seek(process, partition))
            end = len(self.broker.logs[partition])
            self.followers[process, partition] = self.random.randint(0, end)
        self._follow_on(process, partition)

    def _follow_on(self, process: str, partition: int) -> bool:
        before = self.followers[process, partition]
        poll, after = self.broker.poll(process, partition, before, committed=process == "committed")
        if poll.records:
            self._say(poll)
        self.followers[process, partition] = after
        return after > before

    def _carry_out(self) -> None:
        if self.broker.deciding:
            self.broker.carry_out(self.random.choice(self.broker.deciding))

    def _crash(self) -> None:
        self.broker.crash()

    def _seek(self, worker: Worker, partition: int) -> None:
        end = len(self.broker.logs[partition])
        worker.positions[partition] = self.random.randint(0, end)
        self._say(Seek(worker.name, partition))

    def _heal(self) -> None:
        """End what is open, and let everybody read to the end."""
        for transaction in self.transactions:
            if transaction.is_commit is None and self.broker.bug != "leaves-open-what-clients-left":
                self.broker.decide(transaction, is_commit=False, was_answered=False)
        while self.broker.deciding:
            self._carry_out()
        for place in self.followers:
            self._say(Seek(*place))
            self.followers[place] = 0
            while self._follow_on(*place):
                pass
        self._ask_offsets()

    def _say(self, event: Event) -> None:
        self.events.append(event)


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
    "counts-refused-commits": found_by(COMMIT_INVENTED),
    "invents-an-offset": found_by(COMMIT_INVENTED),
    "loses-an-offset-in-a-crash": found_by(COMMIT_LOST),
    "loses-a-group-in-a-crash": found_by(COMMIT_LOST),
    "stable-offset-goes-back": found_by(BOUNDS_BACK),
    "stable-offset-above-the-end": found_by(BOUNDS_BACK, TWO_VALUES),
    "ends-without-a-plain-record": found_by(LOST, TIME_TRAVEL),
    "ends-with-a-part-of-a-transaction": found_by(TORN, TIME_TRAVEL, may=(LOST,)),
    "ends-with-an-aborted-record": found_by(ABORTED_READ, SKIP),
    "ends-with-two-readings": found_by(TWO_VALUES, DUPLICATE, may=(LOST, TORN)),
    "ends-with-committed-records-out-of-order": found_by(TWO_VALUES, SKIP),
}


def record_transactions(seed: int, bug: str | None) -> tuple[list[Event], dict[int, FinalLog]]:
    """Return what the clients of a planted broker see, drained at the end."""
    return Simulation(seed, bug).run()
