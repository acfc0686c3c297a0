"""What writes and reads while SeaweedFS and gateways are struck, and what is said of it later."""

from __future__ import annotations

import threading
import time
from random import Random
from typing import TYPE_CHECKING, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests import patience
from tests.campaigns import kill_loop, transactors
from tests.campaigns.history import Outcome, Send, check_history
from tests.campaigns.seaweedmq_judges import changed, unread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.campaigns.history import Event, FinalLog
    from tests.campaigns.support import Report

RECORDS_PER_S = 1_000
TRANSACTORS = 2
STEP_S = 0.002
ANSWERED_S = 120.0
EMPTY_POLLS = 600
"""A reader of many small files waits for a while before the first record comes."""


class Load:
    """Idempotent producers, transactional ones and readers, in threads of their own."""

    def __init__(
        self,
        bootstrap: str,
        seed: int,
        settings: Mapping[str, str] | None = None,
        *,
        empty_polls: int = EMPTY_POLLS,
    ) -> None:
        """`bootstrap` names every gateway that may lead; one does. `settings` are of the topics.

        After so many polls in vain a final reader gives up.
        """
        self._bootstrap = bootstrap
        self._empty_polls = empty_polls
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        topics = [
            NewTopic(topic, partitions, 1, config=dict(settings or {}))
            for topic, partitions in (
                (kill_loop.TOPIC, kill_loop.PARTITIONS),
                (transactors.TOPIC, transactors.PARTITIONS),
            )
        ]
        for future in admin.create_topics(topics).values():
            future.result(patience.seconds(20))
        self.clients = kill_loop.Clients(bootstrap, Random(seed), RECORDS_PER_S)
        self._transactors = [
            transactors.Transactor(bootstrap, f"transactor-{number}", Random(seed + number))
            for number in range(TRANSACTORS)
        ]
        self._hung: list[transactors.Transactor] = []
        self._is_over = threading.Event()
        self._stepping = threading.Thread(target=self._step, daemon=True)

    def __enter__(self) -> Self:
        self._stepping.start()
        for one in self._transactors:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._stepping.join(patience.seconds(60))

    def _step(self) -> None:
        began_s = time.monotonic()
        while not self._is_over.is_set():
            self.clients.step(time.monotonic() - began_s)
            self._replace_hung()
            time.sleep(STEP_S)

    def _replace_hung(self) -> None:
        """Go on without producers whose library has lost a call."""
        for number, one in enumerate(self._transactors):
            if one.is_hung:
                self._transactors[number] = one.replace()
                self._hung.append(one)
                self._transactors[number].start()

    @property
    def transactors(self) -> Sequence[transactors.Transactor]:
        """The transactional producers that live."""
        return tuple(self._transactors)

    def sent_in_transactions(self) -> dict[str, set[bytes]]:
        """Return the values of each transaction that were answered, as far as it is over."""
        found: dict[str, set[bytes]] = {}
        for one in (*self._hung, *self._transactors):
            for event in tuple(one.events):
                if (
                    isinstance(event, Send)
                    and event.outcome is Outcome.OK
                    and event.transaction is not None
                ):
                    found.setdefault(event.transaction, set()).add(event.value)
        return found

    def _go_on(self) -> bool:
        """Wait until every transactional producer has committed once more; whether they have."""
        before = {one: one.committed for one in self._transactors}
        limit = patience.Limit(ANSWERED_S)
        while not limit.is_over:
            if all(one.committed > before.get(one, 0) for one in self._transactors):
                return True
            time.sleep(0.05)
        return False

    def ask_bounds(self) -> None:
        """Have the bounds asked for, again while the gateway does not know whether it leads."""
        limit = patience.Limit(ANSWERED_S)
        while True:
            try:
                self.clients.ask_bounds()
            except KafkaException:
                if limit.is_over:
                    raise
                time.sleep(0.2)
            else:
                return

    def judge(self, report: Report) -> dict[int, FinalLog]:
        """Let everything be answered, read it all, and report what must not be; return the logs."""
        if not self._go_on():
            report.fail("a transactional producer does not go on")
        self._is_over.set()
        self._stepping.join(patience.seconds(60))
        report.count("hung_producers", len(self._hung))
        for one in self._transactors:
            one.end()
            report.count("hung_producers", one.is_alive())
        for one in (*self._hung, *self._transactors):
            report.count("transactions", one.committed)
            report.count("aborted", one.aborted)
            report.count("renewed_producers", one.renewed)
            if fatal := [words for words in one.trouble if "FATAL" in words]:
                report.fail(f"{one.name}: {fatal}")
            for words in one.trouble:
                print(f"{one.name} began anew: {words}", flush=True)
        if unanswered := self.clients.finish(ANSWERED_S):
            report.fail(f"{unanswered} records were never answered")
        for number, reason in self.clients.fatal.items():
            report.fail(f"producer {number} gave up: {reason}")
        try:
            final, transactional = self._read_final()
        except KafkaException as error:
            report.fail(f"the final logs cannot be read: {error}")
            return {}
        for problem in unread(final):
            report.fail(problem)
        self.clients.drain(final, 60)
        kill_loop.judge(report, self.clients.events(), final)
        events: list[Event] = [
            event for one in (*self._hung, *self._transactors) for event in one.events
        ]
        for anomaly in check_history(events, transactional):
            report.count(anomaly.kind.value)
            report.fail(
                f"{anomaly.kind.value} in transactions, partition {anomaly.partition}: "
                f"{anomaly.detail}"
            )
        return {**final, **{-1 - number: log for number, log in transactional.items()}}

    def _read_final(self) -> tuple[dict[int, FinalLog], dict[int, FinalLog]]:
        """Read the logs of the producers and of the transactional producers.

        On a slow machine a gateway may renew its lease too late. Until it has renewed it, it names
        no leader, and librdkafka gives up at once: read again. Raises KafkaException.
        """
        limit = patience.Limit(ANSWERED_S)
        while True:
            try:
                return (
                    self.clients.read_final(self._empty_polls),
                    transactors.read_final(self._bootstrap),
                )
            except KafkaException:
                if limit.is_over:
                    raise
                time.sleep(1)

    def judge_again(self, report: Report, final: Mapping[int, FinalLog]) -> None:
        """Read it all by another gateway: it must be the same, to the byte."""
        try:
            records, transactional = self._read_final()
        except KafkaException as error:
            report.fail(f"a later gateway cannot be read: {error}")
            return
        again = {**records, **{-1 - number: log for number, log in transactional.items()}}
        report.count("read_again", sum(len(log.records) for log in final.values()))
        for problem in changed(final, again):
            report.fail(problem)
