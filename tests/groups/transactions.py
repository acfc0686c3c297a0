"""Transactions in the model of groups: what producers and their coordinator believe of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.groups.requests import NO_MEMBER_ID, TxnCommitRequest
from kgw.offsets.pending import PendingCommit

if TYPE_CHECKING:
    from kgw.coordinator.entry import Reply
    from kgw.offsets.committed import Place
    from kgw.types import TopicId
    from tests.groups.model import GroupModel
    from tests.groups.own_clock import Moment

PRODUCERS = 3


class Transaction:
    """What a producer and its coordinator believe of one transaction."""

    def __init__(self, producer: int, epoch: int) -> None:
        self.producer = producer
        self.epoch = epoch
        self.sent: dict[Place, set[int]] = {}
        """What may have been stored, by the numbers of the commits."""
        self.told: dict[Place, int] = {}
        """What was acknowledged and nobody has deleted since."""
        self.moments: dict[Place, Moment] = {}
        self.waiting = 0
        """Commits that have not been answered."""
        self.is_commit: bool | None = None
        """How it ends: then that is told until it has been stored."""
        self.is_ending = False


class Transactions:
    """Those of a few producers, one at a time of each."""

    def __init__(self, model: GroupModel) -> None:
        self._model = model
        self._open = [Transaction(number, 0) for number in range(PRODUCERS)]

    def forget(self) -> None:
        """The group is another one: what was pending for it is expected no more."""
        for one in self._open:
            one.told = {}

    def forget_topic(self, topic_id: TopicId) -> None:
        """A topic is gone, and what was pending for it."""
        for one in self._open:
            for place in [place for place in one.told if place[0] == topic_id]:
                del one.told[place]

    def crash(self) -> None:
        """The process has died: nobody waits any more."""
        for one in self._open:
            one.waiting, one.is_ending = 0, False

    def holds(self, place: Place) -> bool:
        """Whether a transaction that goes on has committed to a place."""
        return any(place in one.told for one in self._open if one.is_commit is None)

    # --- actions ---------------------------------------------------------------------------------

    async def commit_in_transaction(self) -> None:
        """A producer commits, for a member or for nobody; several commits of one may overlap."""
        transaction = self._model.random.choice(self._open)
        if transaction.is_commit is not None:
            return
        client = self._model.random.choice(self._model.clients)
        for _ in range(self._model.random.randint(1, 2)):
            names_member = self._model.random.random() < 0.5
            if names_member:
                member = (client.member_id, client.instance, client.generation)
            else:
                member = (NO_MEMBER_ID, None, -1)
            self.start_commit_of(transaction, member)

    def start_commit_of(
        self, transaction: Transaction, member: tuple[str, str | None, int]
    ) -> None:
        self._model.commit_number += 1
        number = self._model.commit_number
        topic_id = self._model.random.choice(self._model.topics)
        partitions = self._model.random.choice(((0,), (1,), (17,), (0, 1), (0, 17), (17, 1, 0)))
        places = [(topic_id, partition) for partition in partitions]
        offsets = {topic_id: dict.fromkeys(partitions, self._model.committed(number))}
        commit = PendingCommit(transaction.producer, transaction.epoch, offsets)
        request = TxnCommitRequest(*member, commit)
        answer = self._model.coordinator.commit_in_transaction(self._model.group, request)
        if answer.is_done:
            self._model.tell("commit in a transaction", number, answer.result.name)
            assert answer.result is not ErrorCode.NONE, "I12: answered before it is stored"
            return
        transaction.waiting += 1
        for place in places:
            transaction.sent.setdefault(place, set()).add(number)
        told, moment = transaction.told, self._model.now

        def done(_: object) -> None:
            transaction.waiting -= 1
            self._model.tell("commit in a transaction", number, answer.result.name)
            if answer.result is ErrorCode.NONE and number > self._model.dropped.get(topic_id, 0):
                told.update(dict.fromkeys(places, number))
                transaction.moments.update(dict.fromkeys(places, moment))
                self._model.counts["commits in transactions"] += 1

        answer.when_done(done)

    async def end_transaction(self) -> None:
        """A producer ends its transaction, or its time is over; what was decided is told again."""
        await self.end_of(self._model.random.choice(self._open))

    async def fail_in_a_transaction(self) -> None:
        """A commit fails, its producer aborts, and then the process dies, too."""
        transaction = self._model.random.choice(self._open)
        if transaction.is_commit is None and self._model.store.gate is None:
            self._model.store.outcome = "unknown"
            self.start_commit_of(transaction, (NO_MEMBER_ID, None, -1))
            await self._model.settle()
            await self.end_of(transaction)
            await self._model.settle()
            if self._model.crashes:
                await self._model.crash()

    async def end_of(self, transaction: Transaction) -> None:
        if transaction.is_ending:
            return
        if transaction.is_commit is None:
            transaction.is_commit = not transaction.waiting and self._model.random.random() < 0.6
            if transaction.is_commit:
                for place, numbers in transaction.sent.items():
                    self._model.accepted.setdefault(place, set()).update(numbers)
        answer = self.tell_end(transaction)
        transaction.is_ending = True
        acknowledged = self._model.acknowledged

        def done(_: object) -> None:
            transaction.is_ending = False
            self._model.tell("end", transaction.producer, transaction.epoch, answer.result.name)
            if answer.result is ErrorCode.NONE:
                self.ended(transaction, acknowledged)

        if answer.is_done:
            done(answer)
        else:
            answer.when_done(done)

    def tell_end(self, transaction: Transaction) -> Reply[ErrorCode]:
        return self._model.coordinator.end_transaction(
            self._model.group,
            transaction.producer,
            transaction.epoch + 1,  # KIP-890
            is_commit=bool(transaction.is_commit),
        )

    def ended(self, transaction: Transaction, acknowledged: dict[Place, int]) -> None:
        """The group has said that it is done: the producer goes on with its next epoch."""
        self._model.counts["transactions"] += 1
        self._model.counts["transactions committed"] += bool(transaction.is_commit)
        for place, number in transaction.told.items() if transaction.is_commit else ():
            if number > acknowledged.get(place, 0):
                acknowledged[place] = number
                self._model.own_clock.committed([place], transaction.moments[place])
        if self._model.random.random() < 0.2:
            self.tell_end(transaction)  # told twice does no harm
        after = Transaction(transaction.producer, transaction.epoch + 1)
        self._open[self._open.index(transaction)] = after

    async def zombie_of_a_transaction(self) -> None:
        """A producer of an older epoch changes nothing of what is pending."""
        transaction = self._model.random.choice(self._open)
        if not transaction.told or transaction.is_commit is not None:
            return
        epoch = transaction.epoch - 1
        commit = PendingCommit(
            transaction.producer, epoch, {self._model.topics[0]: {5: self._model.committed(-7)}}
        )
        before = self.unstable()
        answers = [
            self._model.coordinator.commit_in_transaction(
                self._model.group, TxnCommitRequest(NO_MEMBER_ID, None, -1, commit)
            ),
            self._model.coordinator.end_transaction(
                self._model.group, transaction.producer, epoch, is_commit=True
            ),
        ]
        for one in answers:
            assert one.is_done, "I11: a fenced producer is heard"
            assert ErrorCode.INVALID_PRODUCER_EPOCH is one.result
        assert before == self.unstable()

    def unstable(self) -> set[Place]:
        """Return the places that are told to be unstable."""
        pending = self._model.coordinator.unstable_offsets(self._model.group)
        if pending is None:
            return set()
        return {(one, index) for one in pending.topic_ids() for index in pending.partitions(one)}

    def check(self) -> None:
        """I11 and I12; what each place holds is seen to by `check_offsets`."""
        unstable = self.unstable()
        may_be_open: set[Place] = set()
        for one in self._open:
            may_be_open.update(one.sent)
            if one.is_commit is None:
                assert one.told.keys() <= unstable, "I12: an open place is told to be stable"
        assert unstable <= may_be_open, "I12: an ended transaction holds a place open"

    def check_halves(self) -> None:
        """After a crash, what a transaction was about to commit is committed as a whole (I11)."""
        table = self._model.coordinator.offsets(self._model.group)
        for one in self._open:
            if one.is_commit and table is not None:
                offsets = {place: table.get(*place) for place in one.told}
                is_there = {
                    place: found is not None and found.offset >= one.told[place]
                    for place, found in offsets.items()
                }
                is_own = any(
                    found is not None and found.offset == one.told[place]
                    for place, found in offsets.items()
                )
                assert not is_own or all(is_there.values()), "I11: half of it is committed"
