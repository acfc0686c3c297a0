"""One member of a group, in a process of its own: it reads, says what it read, and commits.

Run as `python -m tests.campaigns.churn_member LIBRARY OPTIONS` in the environment of a client
library; OPTIONS is a JSON object with bootstrap, group, topic, strategy and instance. Each line of
its output is a JSON object; `at` says what has happened:

    assigned    generation, member, partitions    all that it has now
    read        runs: [[partition, first, last]]
    committing  offsets: [[partition, offset]]    about to be sent
    committed   offsets                           acknowledged
    refused     why                               a commit that was not
    trouble     why                               what polling raised; it goes on
    ended       why

What was read is said before it is committed, so that whoever kills the process knows of every
record that the group will not read again. SIGTERM lets it leave as the library does.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SESSION_MS = 3_000
HEARTBEAT_MS = 300
REBALANCE_MS = 8_000
POLL_S = 0.2
TROUBLE_PAUSE_S = 0.2

Owned = list[int]
Records = list[tuple[int, int]]
Offsets = dict[int, int]


class FencedError(Exception):
    """Another process has this member's instance id now."""


def say(at: str, **fields: object) -> None:
    """Write one line, whole and at once."""
    sys.stdout.write(json.dumps({"at": at, **fields}) + "\n")
    sys.stdout.flush()


def runs_of(records: Records) -> list[list[int]]:
    """Return runs of consecutive offsets as [partition, first, last]."""
    runs: list[list[int]] = []
    for partition, offset in sorted(set(records)):
        if runs and runs[-1][0] == partition and runs[-1][2] == offset - 1:
            runs[-1][2] = offset
        else:
            runs.append([partition, offset, offset])
    return runs


class Holding:
    """The partitions that a member has now, and what it has read of them and not committed yet.

    A commit that was refused is tried again for as long as the member keeps the partition: it will
    not be given those records once more. What it gives away is another member's to commit.
    """

    def __init__(self) -> None:
        self.partitions: set[int] = set()
        self.uncommitted: Offsets = {}

    def gain(self, partitions: Iterable[int]) -> None:
        """Take partitions beside those that it has."""
        self.partitions.update(partitions)

    def lose(self, partitions: Iterable[int]) -> None:
        """Give partitions away."""
        for partition in partitions:
            self.partitions.discard(partition)
            self.uncommitted.pop(partition, None)

    def read(self, records: Records) -> None:
        """Take records that were read by the holder of these partitions."""
        for partition, offset in records:
            if partition in self.partitions:
                self.uncommitted[partition] = offset + 1

    def committed(self, offsets: Offsets) -> None:
        """Forget what was committed."""
        for partition, offset in offsets.items():
            if self.uncommitted.get(partition) == offset:
                del self.uncommitted[partition]


def is_fenced(error: BaseException) -> bool:
    """Whether a library says that it was fenced, in whatever way."""
    return "fenced" in f"{type(error).__name__} {error}".lower()


class ConfluentMember:
    """confluent-kafka."""

    def __init__(self, options: dict[str, Any]) -> None:
        from confluent_kafka import Consumer

        self.holding = Holding()
        self._topic = options["topic"]
        settings = {
            "bootstrap.servers": options["bootstrap"],
            "group.id": options["group"],
            "partition.assignment.strategy": options["strategy"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "max.poll.interval.ms": REBALANCE_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 300,
            "fetch.wait.max.ms": 100,
        }
        if options["instance"] is not None:
            settings["group.instance.id"] = options["instance"]
        self._consumer = Consumer(settings)
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def _assigned(self, _: object, partitions: list[Any]) -> None:
        self.holding.gain(one.partition for one in partitions)
        generation, member = self._place()
        owned = sorted(self.holding.partitions)
        say("assigned", generation=generation, member=member, partitions=owned)

    def _place(self) -> tuple[int, str]:
        """Return generation and member id, out of what the library keeps for transactions."""
        place = self._consumer.consumer_group_metadata()
        magic = b"CGMDv2:"
        assert place.startswith(magic)
        generation = int.from_bytes(place[len(magic) : len(magic) + 4], "little", signed=True)
        return generation, place[len(magic) + 4 :].split(b"\0")[1].decode()

    def _revoked(self, _: object, partitions: list[Any]) -> None:
        self.holding.lose(one.partition for one in partitions)

    def _lost(self, _: object, partitions: list[Any]) -> None:
        self._revoked(_, partitions)

    def poll(self) -> Records:
        """Read what comes."""
        from confluent_kafka import KafkaException

        until_s = time.monotonic() + POLL_S
        found: Records = []
        while len(found) < 500 and time.monotonic() < until_s:
            # Partitions come and go in this call, before the record that it returns.
            one = self._consumer.poll(0.05)
            if one is None:
                continue
            if one.error() is None:
                record = one.partition(), one.offset()
                found.append(record)
                self.holding.read([record])
            elif one.error().name() == "_FATAL":  # its fatal() is false, in 2.16
                raise KafkaException(one.error())
        return found

    def commit(self, offsets: Offsets) -> None:
        """Commit durably, or raise."""
        from confluent_kafka import KafkaException, TopicPartition

        wanted = [TopicPartition(self._topic, place, offset) for place, offset in offsets.items()]
        for one in self._consumer.commit(offsets=wanted, asynchronous=False):
            if one.error is not None:
                raise KafkaException(one.error)

    def close(self) -> None:
        """Leave the group, unless static."""
        self._consumer.close()


class KafkaPythonMember:
    """kafka-python, 2.x and 3.x."""

    def __init__(self, options: dict[str, Any]) -> None:
        from kafka import ConsumerRebalanceListener, KafkaConsumer

        from tests.interop.drivers.kafka_python import assignors

        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: object) -> None:
                member._assigned()

            def on_partitions_revoked(self, revoked: set[Any]) -> None:
                member.holding.lose(one.partition for one in revoked)

        self.holding = Holding()
        self._topic = options["topic"]
        self._consumer = KafkaConsumer(
            bootstrap_servers=options["bootstrap"],
            group_id=options["group"],
            group_instance_id=options["instance"],
            partition_assignment_strategy=assignors(options["strategy"]),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=REBALANCE_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            request_timeout_ms=REBALANCE_MS + 5_000,
            retry_backoff_ms=100,
            reconnect_backoff_ms=50,
            reconnect_backoff_max_ms=300,
            fetch_max_wait_ms=100,
        )
        self._consumer.subscribe([self._topic], listener=Listener())

    def _assigned(self) -> None:
        # No public way leads to the generation, neither here nor in aiokafka.
        place = self._consumer._coordinator._generation  # noqa: SLF001
        self.holding.gain(one.partition for one in self._consumer.assignment())
        say(
            "assigned",
            generation=place.generation_id,
            member=place.member_id,
            partitions=sorted(self.holding.partitions),
        )

    def poll(self) -> Records:
        """Read what comes. Rounds end before records are taken, so these belong to the new one."""
        # 3.0 begins to join anew at each poll whose time is too short for a round.
        found = self._consumer.poll(timeout_ms=int(POLL_S * 1_000) * 4, max_records=500)
        taken = [(one.partition, one.offset) for records in found.values() for one in records]
        self.holding.read(taken)
        return taken

    def commit(self, offsets: Offsets) -> None:
        """Commit durably, or raise."""
        from kafka import OffsetAndMetadata, TopicPartition

        self._consumer.commit(
            {
                TopicPartition(self._topic, place): OffsetAndMetadata(offset, "", -1)
                for place, offset in offsets.items()
            }
        )

    def close(self) -> None:
        """Leave the group, unless static."""
        self._consumer.close(autocommit=False)


class AiokafkaMember:
    """aiokafka, in a loop that runs while something is asked of it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.holding = Holding()
        self._topic = options["topic"]
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open(options))

    async def _open(self, options: dict[str, Any]) -> None:
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, assigned: set[Any]) -> None:
                member._assigned(assigned)

            async def on_partitions_revoked(self, revoked: set[Any]) -> None:
                member.holding.lose(list(member.holding.partitions))

        strategies = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=options["bootstrap"],
            group_id=options["group"],
            group_instance_id=options["instance"],
            partition_assignment_strategy=[strategies[options["strategy"]]],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=REBALANCE_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            request_timeout_ms=REBALANCE_MS + 5_000,
            retry_backoff_ms=100,
            fetch_max_wait_ms=100,
        )
        self._consumer.subscribe([self._topic], listener=Listener())
        await self._consumer.start()

    def _assigned(self, assigned: set[Any]) -> None:
        place = self._consumer._coordinator  # noqa: SLF001
        partitions = sorted(one.partition for one in assigned)
        self.holding.gain(partitions)
        say("assigned", generation=place.generation, member=place.member_id, partitions=partitions)

    def poll(self) -> Records:
        """Read what comes."""
        found = self._loop.run_until_complete(
            self._consumer.getmany(timeout_ms=int(POLL_S * 1_000), max_records=500)
        )
        taken = [(one.partition, one.offset) for records in found.values() for one in records]
        self.holding.read(taken)
        return taken

    def commit(self, offsets: Offsets) -> None:
        """Commit durably, or raise."""
        from aiokafka import TopicPartition

        wanted = {TopicPartition(self._topic, place): offset for place, offset in offsets.items()}
        self._loop.run_until_complete(self._consumer.commit(wanted))

    def close(self) -> None:
        """Leave the group, unless static."""
        self._loop.run_until_complete(self._consumer.stop())


class Member(Protocol):
    """A consumer of some library, which reads into what it holds."""

    holding: Holding

    def poll(self) -> Records:
        """Read what comes."""

    def commit(self, offsets: Offsets) -> None:
        """Commit durably, or raise."""

    def close(self) -> None:
        """Leave the group, unless static."""


MEMBERS: dict[str, Callable[[dict[str, Any]], Member]] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python-2": KafkaPythonMember,
    "kafka-python-3": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}


def take_turn(member: Member) -> None:
    """Poll once, and commit what was read and is still this member's."""
    records = member.poll()
    if records:
        say("read", runs=runs_of(records))
    offsets = dict(sorted(member.holding.uncommitted.items()))
    if not offsets:
        return
    say("committing", offsets=list(offsets.items()))
    try:
        member.commit(offsets)
    except Exception as error:
        say("refused", why=f"{type(error).__name__}: {error}"[:200])
        if is_fenced(error):
            raise FencedError(str(error)) from error
        return
    say("committed", offsets=list(offsets.items()))
    member.holding.committed(offsets)


def main(library: str, options: dict[str, Any]) -> None:
    """Be a member until SIGTERM or until fenced."""
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    member: Member | None = None
    why = "left"
    while not stopping:
        try:
            member = MEMBERS[library](options) if member is None else member
            take_turn(member)
        except Exception as error:  # noqa: BLE001 - applications go on as well
            if is_fenced(error):
                why = "fenced"
                break
            say("trouble", why=f"{type(error).__name__}: {error}"[:200])
            time.sleep(TROUBLE_PAUSE_S)
    if member is not None:
        try:
            member.close()
        except Exception as error:  # noqa: BLE001 - it has left, or its session will end
            say("trouble", why=f"closing: {type(error).__name__}: {error}"[:200])
    say("ended", why=why)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
