"""Consumer groups of every Python client library: join, rebalance, commit, resume, stay."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from kgw.client import AsyncClient, GroupClient
from tests.interop.drivers.loop import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

PARTITIONS = 4
MEMBERS = [
    ("kafka-python-2", "range"),
    ("kafka-python-2", "roundrobin"),
    ("kafka-python-3", "range"),
    ("kafka-python-3", "cooperative-sticky"),
    ("aiokafka", "range"),
    ("aiokafka", "roundrobin"),
    ("confluent-kafka", "range"),
    ("confluent-kafka", "cooperative-sticky"),
]


class Story:
    """Some members of one group, and what has been read."""

    def __init__(self, client: Client, gateway: GatewayProcess, strategy: str) -> None:
        self.client = client
        self.gateway = gateway
        self.strategy = strategy
        self.topic = f"group-{client.name}-{strategy}"
        self.written: set[tuple[int, int]] = set()
        self.read: list[tuple[int, int]] = []
        self.assigned: dict[str, set[int]] = {}
        client.create_topic(gateway.bootstrap, self.topic, PARTITIONS)

    def write(self, count: int) -> None:
        """Writes so many records to each partition."""
        records = [Record(None, b"value", [], 1_700_000_000_000)] * count
        for partition in range(PARTITIONS):
            offsets = self.client.produce(
                self.gateway.bootstrap,
                self.topic,
                partition,
                records,
                codec="none",
                idempotent=False,
            )
            self.written.update((partition, offset) for offset in offsets)

    def open(self, member: str, instance: str | None = None) -> None:
        """Lets another member in."""
        self.client.open_member(
            self.gateway.bootstrap,
            member,
            group=self.topic,
            topic=self.topic,
            strategy=self.strategy,
            instance=instance,
        )
        self.assigned[member] = set()

    def close(self, member: str) -> None:
        """Closes a member."""
        self.client.close_member(member)
        del self.assigned[member]

    def poll(self, done: Callable[[], bool], what: str) -> None:
        """Lets all members poll until something has come about."""
        deadline = time.monotonic() + 40
        while not done():
            assert time.monotonic() < deadline, f"{what}: {self.assigned}, {len(self.read)} read"
            found = self.client.poll_members(list(self.assigned))
            for member, (records, assigned) in found.items():
                self.read += records
                self.assigned[member] = assigned

    def read_everything(self) -> None:
        """Reads all that was written, and commits it."""
        self.poll(lambda: set(self.read) >= self.written, "reading")
        for member in self.assigned:
            self.client.commit_member(member)

    def share(self) -> None:
        """Polls until every partition has one owner and every member has some."""

        def is_shared() -> bool:
            owned = [one for assigned in self.assigned.values() for one in assigned]
            return sorted(owned) == list(range(PARTITIONS)) and all(self.assigned.values())

        self.poll(is_shared, "sharing")

    def rounds(self) -> int:
        """How many generations have formed, as the coordinator tells."""

        async def ask() -> int:
            host, _, port = self.gateway.bootstrap.rpartition(":")
            async with await AsyncClient.connect(host, int(port)) as client:
                explained = await GroupClient(client).explain(self.topic)
                return int(explained["generation"])

        return asyncio.run(ask())


@pytest.mark.parametrize(("name", "strategy"), MEMBERS)
def test_a_group_lives_through_everything(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str, strategy: str
) -> None:
    """Members share, commit and live through a kill -9; others resume after them."""
    story = Story(clients(name), own_gateway, strategy)
    story.write(20)
    story.open("first")
    story.read_everything()
    assert {"first": set(range(PARTITIONS))} == story.assigned
    story.open("second")
    story.share()
    story.write(5)
    story.read_everything()
    assert sorted(story.written) == sorted(set(story.read))
    before = story.rounds()
    own_gateway.kill()
    own_gateway.start()
    story.write(5)
    story.read_everything()
    story.share()
    assert before == story.rounds(), "rebalanced because of the restart"
    story.close("first")
    story.share()
    assert {"second": set(range(PARTITIONS))} == story.assigned
    story.close("second")
    story.read = sorted(story.written)
    story.write(3)
    story.open("third")
    story.read_everything()
    assert sorted(story.written) == sorted(story.read), "resumed elsewhere"
    story.close("third")


@pytest.mark.parametrize("name", ["kafka-python-3", "aiokafka", "confluent-kafka"])
def test_static_members_return_without_a_rebalance(
    clients: Callable[[str], Client], own_gateway: GatewayProcess, name: str
) -> None:
    """KIP-345: a member that is back within its session has its partitions, in the same round."""
    story = Story(clients(name), own_gateway, "range")
    story.write(5)
    for member in ("first", "second"):
        story.open(member, instance=member)
    story.share()
    story.read_everything()
    had, before = story.assigned["second"], story.rounds()
    story.close("second")
    story.write(5)
    story.open("second", instance="second")
    story.share()
    story.read_everything()
    assert (had, before) == (story.assigned["second"], story.rounds())
    assert sorted(story.written) == sorted(set(story.read))
    for member in ("first", "second"):
        story.close(member)
