"""Transactional producers in threads, who live through whatever happens to their gateway.

Each sends transactions of a few records to several partitions, with an offset of a group of its
own, and commits or aborts them; between two it asks where its group is.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests import patience
from tests.campaigns.history import (
    NO_OFFSET,
    Commit,
    FetchedOffset,
    FinalLog,
    Outcome,
    Send,
    TransactionEnd,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from confluent_kafka import Message

    from tests.campaigns.history import Event

TOPIC: Final = "transactions"
PARTITIONS: Final = 4
RECORDS: Final = 5
"""Of a transaction, at most."""
ABORTED_ONE_IN: Final = 6
PATIENCE_S: Final = 30.0
"""For how long a transaction's end is asked for; then nobody knows how it ended."""
HUNG_S: Final = 60.0
"""A call that takes longer has been lost by the client library: none may by its own limit."""
CALL_S: Final = 5.0
READ_S: Final = 60.0

_SILENT = logging.getLogger("transactors")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def _common(bootstrap: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 30,
        "socket.timeout.ms": 10_000,
        # Without it a send_offsets_to_transaction that has lost every connection never returns.
        "metadata.recovery.strategy": "none",
        "log_level": 0,
    }


class _Sending(NamedTuple):
    """A record on its way."""

    partition: int
    value: bytes
    answers: list[int | None]
    """Where it landed; None for an error. Empty while there is no answer."""

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Take the client's verdict."""
        self.answers.append(message.offset() if error is None else None)


@dataclass(slots=True)
class _Transaction:
    """One that is not noted yet."""

    name: str
    offset: int
    sendings: list[_Sending] = field(default_factory=list)
    sends_offset: bool = False
    outcome: Outcome = Outcome.INFO


OPEN_MS = 180_000
"""How long a transaction may be open: longer than any fault, as the coordinator rightly fences a
producer whose transaction takes longer. A filer is away for a minute."""


class Transactor(threading.Thread):
    """One producer with a transactional id."""

    def __init__(self, bootstrap: str, name: str, random: Random, first: int = 0) -> None:
        """Take where to begin to count transactions: no two of an id have the same number."""
        super().__init__(name=name, daemon=True)
        self.events: list[Event] = []
        self.committed = 0
        self.last_committed = first
        """Number of the last transaction that was committed; where it began to count before."""
        self.aborted = 0
        self.renewed = 0
        """How often it had to begin anew under its id."""
        self.trouble: list[str] = []
        """Errors that ended a producer."""
        self.retries: list[str] = []
        """Errors after which a call was repeated."""
        self._servers = bootstrap
        self._random = random
        self._is_over = threading.Event()
        self._number = first
        self._since_s = time.monotonic()
        self._open: _Transaction | None = None
        self._noting = threading.Lock()

    def end(self) -> None:
        """Let it finish its transaction, and wait for that, or until it must be said to hang."""
        self._is_over.set()
        while self.is_alive() and not self.is_hung:
            self.join(0.2)
        self._note()

    @property
    def is_hung(self) -> bool:
        """Whether a call of the library has taken longer than any may."""
        return self.is_alive() and time.monotonic() - self._since_s > HUNG_S

    def replace(self) -> Transactor:
        """Return another one with the same id, for one that hangs.

        What this one has sent is noted: nobody knows what becomes of it. It notes nothing more.
        """
        self._is_over.set()
        self._note()
        return Transactor(self._servers, self.name, self._random, self._number)

    def run(self) -> None:
        """Send transactions until it is told to end."""
        asker = Consumer({**_common(self._servers), "group.id": self.name}, logger=_SILENT)
        while not self._is_over.is_set():
            try:
                producer = self._begin_anew()
                while not self._is_over.is_set():
                    self._transaction(producer, asker)
                    self._ask(asker)
            except (KafkaException, SystemError) as error:
                # The library raises SystemError for a fatal one that a call-back has met.
                self.renewed += 1
                self.trouble.append(str(error.__cause__ or error))
        asker.close()

    def _begin_anew(self) -> Producer:
        producer = Producer(
            {
                **_common(self._servers),
                "transactional.id": self.name,
                "transaction.timeout.ms": OPEN_MS,
                "linger.ms": 2,
            },
            logger=_SILENT,
        )
        self._insist(producer, lambda: producer.init_transactions(CALL_S))
        return producer

    def _transaction(self, producer: Producer, asker: Consumer) -> None:
        self._number += 1
        one = self._open = _Transaction(f"{self.name}-{self._number}", self._number)
        aborts = self._random.randrange(ABORTED_ONE_IN) == 0
        try:
            producer.begin_transaction()
            for number in range(self._random.randint(1, RECORDS)):
                partition = self._random.randrange(PARTITIONS)
                sending = _Sending(partition, f"{one.name}-{number}".encode(), [])
                one.sendings.append(sending)
                producer.produce(
                    TOPIC, sending.value, partition=partition, on_delivery=sending.delivered
                )
            self._since_s = time.monotonic()
            producer.flush(CALL_S)
            one.sends_offset = True
            try:
                self._insist(
                    producer,
                    lambda: producer.send_offsets_to_transaction(
                        [TopicPartition(TOPIC, 0, one.offset)],
                        asker.consumer_group_metadata(),
                        CALL_S,
                    ),
                )
                if not aborts:
                    self._insist(producer, lambda: producer.commit_transaction(CALL_S))
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                aborts = True
            if aborts:
                self._insist(producer, lambda: producer.abort_transaction(CALL_S))
            one.outcome = Outcome.FAIL if aborts else Outcome.OK
            self.committed += not aborts
            if not aborts:
                self.last_committed = one.offset
            self.aborted += aborts
        finally:
            self._note()

    def _note(self) -> None:
        """Note the transaction that is open, once."""
        with self._noting:
            one, self._open = self._open, None
        if one is None:
            return
        for sending in one.sendings:
            landed = sending.answers[0] if sending.answers else None
            self.events.append(
                Send(
                    self.name,
                    sending.partition,
                    sending.value,
                    Outcome.INFO if landed is None else Outcome.OK,
                    landed,
                    one.name,
                )
            )
        if one.sends_offset:
            how = Outcome.OK if one.outcome is Outcome.OK else Outcome.INFO
            self.events.append(Commit(self.name, self.name, 0, one.offset, how, one.name))
        self.events.append(TransactionEnd(self.name, one.name, one.outcome))

    def _ask(self, asker: Consumer) -> None:
        """Ask where the group is; an answer that does not come says nothing."""
        self._since_s = time.monotonic()
        try:
            (found,) = asker.committed([TopicPartition(TOPIC, 0)], CALL_S)
        except KafkaException:
            return
        offset = found.offset if found.offset >= 0 else NO_OFFSET
        self.events.append(FetchedOffset(self.name, 0, offset))

    def _insist(self, producer: Producer, call: Callable[[], object]) -> None:
        """Call again what the client says can be called again, for a while."""
        limit = patience.Limit(PATIENCE_S)
        while True:
            self._since_s = time.monotonic()
            try:
                call()
            except KafkaException as error:
                if not error.args[0].retriable() or limit.is_over:
                    raise
                self.retries.append(str(error))
                # A client of this library waits in vain for what it is not polled for.
                producer.poll(0.05)
            else:
                return


def read_final(bootstrap: str) -> dict[int, FinalLog]:
    """Read the topic as readers of all and of committed records do."""
    everything = read_topic(bootstrap, TOPIC, range(PARTITIONS))
    committed = read_topic(bootstrap, TOPIC, range(PARTITIONS), "read_committed")
    return {
        number: FinalLog(low, high, records, committed[number][2], committed[number][1])
        for number, (low, high, records) in everything.items()
    }


def read_topic(
    bootstrap: str,
    topic: str,
    partitions: Iterable[int],
    isolation: str = "read_uncommitted",
    *,
    within_s: float = READ_S,
) -> dict[int, tuple[int, int, list[tuple[int, bytes]]]]:
    """Return where each partition begins and ends, and its records; raises KafkaException.

    What does not come in time is missing.
    """
    consumer = Consumer(
        {
            **_common(bootstrap),
            "group.id": isolation,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        },
        logger=_SILENT,
    )
    found: dict[int, tuple[int, int, list[tuple[int, bytes]]]] = {}
    for number in partitions:
        low, high = consumer.get_watermark_offsets(
            TopicPartition(topic, number), timeout=patience.seconds(20)
        )
        found[number] = (low, high, [])
    consumer.assign([TopicPartition(topic, number, low) for number, (low, *_) in found.items()])
    unread = set(found)
    limit = patience.Limit(within_s)
    while unread and not limit.is_over:
        for message in consumer.consume(1_000, 0.2):
            error = message.error()
            if error is None:
                found[message.partition()][2].append((message.offset(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - it has no other name
                unread.discard(message.partition())
    consumer.close()
    return found
