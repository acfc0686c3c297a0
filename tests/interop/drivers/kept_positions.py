"""Where a consumer of kafka-python 3 reads on that was put out of its group while it joined.

Run as `python -m tests.interop.drivers.kept_positions BOOTSTRAP TOPIC WAY`. The topic has two
partitions with RECORDS records each. WAY is `plain`, or `seeks`: then the consumer goes to where
the group is after each assignment. Prints a JSON object of offsets in one partition: how far the
consumer was when it was put out (`left_at`), how far the group is when it is back (`committed`),
and what it reads then (`read`).

It is put out by an administrator here. A network that fails for longer than its session does the
same.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from kafka import (
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import MemberToRemove

from tests import patience

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP = "kept-positions"
RECORDS = 10
READ_BEFORE = 3
POLL_MS = 500
PATIENCE_S = 20.0
POLLS_IN_VAIN = 6
"""After these nothing comes any more."""


class Rounds(ConsumerRebalanceListener):  # type: ignore[misc]
    """Whether there is an assignment that nobody has looked at."""

    def __init__(self) -> None:
        self.has_new = False

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Nothing is to be done."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Note it."""
        self.has_new = True


class Member:
    """A consumer of the group."""

    def __init__(self, bootstrap: str, topic: str, *, seeks: bool = False) -> None:
        self.consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=6_000,
            max_poll_interval_ms=20_000,
        )
        self._seeks = seeks
        self._rounds = Rounds()
        self.consumer.subscribe([topic], listener=self._rounds)

    def poll(self, most: int = 1) -> list[tuple[TopicPartition, int]]:
        """Read so many records at most, if any come soon; their places."""
        found = self.consumer.poll(timeout_ms=POLL_MS, max_records=most)
        if self._seeks and self._rounds.has_new:
            self._rounds.has_new = False
            for place in self.consumer.assignment():
                self.consumer.seek(place, self.consumer.committed(place) or 0)
            return []
        return [(place, record.offset) for place, records in found.items() for record in records]

    def read(self, place: TopicPartition, end: int) -> None:
        """Read one partition up to there, from where the group is, and commit that."""
        self.consumer.seek(place, self.consumer.committed(place) or 0)
        wait(lambda: (place, end - 1) in self.poll())
        self.consumer.commit({place: OffsetAndMetadata(end, "", -1)})

    def close(self) -> None:
        """Leave."""
        self.consumer.close(autocommit=False)


class Poller:
    """Polls a member in a thread, as its program would."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._member.poll()

    def stop(self) -> None:
        """Poll no more."""
        self._is_over.set()
        self._thread.join()


def wait(until: Callable[[], bool]) -> None:
    """Ask again and again. Raises TimeoutError when it takes too long."""
    deadline_s = time.monotonic() + patience.seconds(PATIENCE_S)
    while not until():
        if time.monotonic() > deadline_s:
            raise TimeoutError


def tell(bootstrap: str, topic: str, *, seeks: bool) -> dict[str, Any]:
    """Have it happen."""

    def one_each() -> bool:
        first.poll()
        return len(first.consumer.assignment()) == len(slow.consumer.assignment()) == 1

    first, slow = Member(bootstrap, topic, seeks=seeks), Member(bootstrap, topic)
    poller = Poller(slow)
    wait(one_each)
    (place,) = first.consumer.assignment()
    first.read(place, READ_BEFORE)
    # The round that the next member begins waits for this one, which polls no more.
    poller.stop()
    other = Member(bootstrap, topic)
    poller = Poller(other)
    generation = first.consumer.group_metadata().generation_id
    time.sleep(1.0)  # a heartbeat tells the first one of the round
    first.poll()
    assert generation == first.consumer.group_metadata().generation_id, "the round did not wait"
    out = MemberToRemove(member_id=first.consumer.group_metadata().member_id)
    KafkaAdminClient(bootstrap_servers=bootstrap).remove_group_members(GROUP, [out])
    slow.close()
    wait(lambda: len(other.consumer.assignment()) == 2)
    poller.stop()
    other.read(place, RECORDS)
    other.close()
    read, in_vain = [], 0
    while in_vain < POLLS_IN_VAIN:
        found = first.poll(RECORDS)
        read += [offset for where, offset in found if where == place]
        in_vain = 0 if found else in_vain + 1
    committed = first.consumer.committed(place)
    first.close()
    return {"left_at": READ_BEFORE, "committed": committed, "read": read}


if __name__ == "__main__":
    server, name, way = sys.argv[1:]
    print(json.dumps(tell(server, name, seeks=way == "seeks")))
