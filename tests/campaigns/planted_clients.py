"""What the clients of a planted broker of transactions do and see.

They begin transactions, write, read, commit offsets, commit and abort. Answers are lost, clients
die and come again, old ones that were fenced go on, partitions change hands, and the broker
crashes. Markers are written one at a time, and others come between.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.campaigns.history import Commit, FetchedOffset, Outcome, Seek, Send, TransactionEnd
from tests.campaigns.planted_transactions import (
    GROUP,
    PARTITIONS,
    Transaction,
    TransactionBroker,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.campaigns.history import Event, FinalLog

STEPS = 2200


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


def record_transactions(seed: int, bug: str | None) -> tuple[list[Event], dict[int, FinalLog]]:
    """Return what the clients of a planted broker see, drained at the end."""
    return Simulation(seed, bug).run()
