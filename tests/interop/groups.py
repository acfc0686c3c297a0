"""Groups of a client library that are led through kills and restarts."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kgw.client import AsyncClient, GroupClient
from tests import patience
from tests.interop.client import DriverError, Topic
from tests.interop.drivers.loop import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client

    Answer = TypeVar("Answer")

PARTITIONS = 4
KILLS = 4
# These join anew by themselves when they had no connection; docs/clients/ says more.
JOIN_ANEW_AFTER_A_RESTART = frozenset({"franz-go", "sarama", "sarama-0.11", "kafka-go", "java-4"})
JOINED_ANEW = frozenset({"member_joined", "leader_rejoined", "member_changed", "member_left"})


class Story:
    """Some members of one group, and what has been read."""

    def __init__(self, client: Client, gateway: GatewayProcess, strategy: str) -> None:
        self.client = client
        self.gateway = gateway
        self.strategy = strategy
        self.topic = Topic(client, gateway, f"group-{client.name}-{strategy}")
        self.written: set[tuple[int, int]] = set()
        self.read: list[tuple[int, int]] = []
        self.assigned: dict[str, set[int]] = {}
        self.topic.create(PARTITIONS)

    def write(self, count: int) -> None:
        """Writes so many records to each partition."""
        records = [Record(None, b"value", [], 1_700_000_000_000)] * count
        for partition in range(PARTITIONS):
            offsets = replace(self.topic, partition=partition).produce(records)
            self.written.update((partition, offset) for offset in offsets)

    def open(self, member: str, instance: str | None = None) -> None:
        """Lets another member in."""
        self.client.open_member(
            member,
            instance=instance,
            bootstrap=self.gateway.bootstrap,
            group=self.topic.name,
            topic=self.topic.name,
            strategy=self.strategy,
        )
        self.assigned[member] = set()

    def close(self, member: str) -> None:
        """Closes a member."""
        self.client.close_member(member)
        del self.assigned[member]

    def poll(self, done: Callable[[], bool], what: str) -> None:
        """Lets all members poll until something has come about."""
        limit = patience.Limit(40)
        while not done():
            assert not limit.is_over, f"{what}: {self.assigned}, {len(self.read)} read"
            found = self.client.poll_members(list(self.assigned))
            for member, (records, assigned) in found.items():
                self.read += records
                self.assigned[member] = assigned

    def read_everything(self) -> None:
        """Reads all that was written, and commits it: again where a rebalance came between."""
        self.poll(lambda: set(self.read) >= self.written, "reading")
        self.commit()
        self.poll(self.is_committed, "committing")

    def commit(self) -> None:
        """Lets every member commit what it has read."""
        for member in self.assigned:
            self.client.commit_member(member)

    def is_committed(self) -> bool:
        """Whether all is committed that was written; commits what was not."""
        if self.ends() == self.committed():
            return True
        self.commit()
        return False

    def share(self) -> None:
        """Polls until every partition has one owner and every member has some."""

        def is_shared() -> bool:
            owned = [one for assigned in self.assigned.values() for one in assigned]
            return sorted(owned) == list(range(PARTITIONS)) and all(self.assigned.values())

        self.poll(is_shared, "sharing")

    def rounds(self) -> int:
        """How many generations have formed, as the coordinator tells."""
        explained = self._ask(lambda groups: groups.explain(self.topic.name))
        return int(explained["generation"])

    def causes(self) -> set[str]:
        """Why there were rebalances since the gateway started, as the coordinator tells."""
        explained = self._ask(lambda groups: groups.explain(self.topic.name))
        return {one["cause"] for one in explained["rounds"]}

    def committed(self) -> dict[int, int]:
        """What the group has committed, by partition, as the coordinator tells."""
        offsets = self._ask(lambda groups: groups.offsets(self.topic.name))
        return {partition: one.offset for (_, partition), one in offsets.items()}

    def ends(self) -> dict[int, int]:
        """Where each partition ends."""
        return {
            index: 1 + max(offset for partition, offset in self.written if partition == index)
            for index in range(PARTITIONS)
        }

    def _ask(self, question: Callable[[GroupClient], Awaitable[Answer]]) -> Answer:
        async def ask() -> Answer:
            async with AsyncClient([(self.gateway.host, self.gateway.port)]) as client:
                return await question(GroupClient(client))

        return asyncio.run(ask())


def check_life(client: Client, gateway: GatewayProcess, strategy: str) -> None:
    """Members share, commit, live through a kill -9 and a restart; others resume after them."""
    story = Story(client, gateway, strategy)
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
    for end in (gateway.kill, gateway.stop):
        end()
        gateway.start()
        assert story.ends() == story.committed()
        story.write(5)
        story.read_everything()
        story.share()
        if client.name in JOIN_ANEW_AFTER_A_RESTART:
            assert story.causes() <= JOINED_ANEW
        else:
            assert before == story.rounds(), f"rebalanced: {story.causes()}"
    story.close("first")
    story.share()
    assert {"second": set(range(PARTITIONS))} == story.assigned
    story.close("second")
    gateway.kill()
    gateway.start()
    story.read = sorted(story.written)
    story.write(3)
    story.open("third")
    story.read_everything()
    assert sorted(story.written) == sorted(story.read), "resumed elsewhere"
    story.close("third")


def check_commits_under_kills(client: Client, gateway: GatewayProcess, strategy: str) -> None:
    """A commit that was acknowledged outlives a kill in the middle of commits; nothing is skipped.

    For drivers whose `commit_member` tells what was acknowledged.
    """
    story = Story(client, gateway, strategy)
    story.write(5)
    story.open("first")
    story.open("second")
    story.share()
    acknowledged = dict.fromkeys(range(PARTITIONS), 0)

    def end_and_start() -> None:
        gateway.kill()
        gateway.start()

    for number in range(KILLS):
        story.write(20)
        story.poll(lambda: set(story.read) >= story.written, "reading before a kill")
        ending = threading.Thread(target=end_and_start)
        # In turn: right behind the acknowledgements, and at the same time as the commits.
        if number % 2:
            ending.start()
        for member in story.assigned:
            for partition, offset in _try_commit(client, member):
                acknowledged[partition] = max(acknowledged[partition], offset)
        if not number % 2:
            ending.start()
        ending.join()
        committed, ends = story.committed(), story.ends()
        for partition, offset in acknowledged.items():
            assert offset <= committed.get(partition, 0), "an acknowledged commit is lost"
        for partition, offset in committed.items():
            assert offset <= ends[partition], "committed what nobody has read"
    assert all(acknowledged.values()), f"never acknowledged: {acknowledged}"
    story.share()
    for member in tuple(story.assigned):
        story.close(member)
    story.write(3)
    committed = story.committed()
    rest = {one for one in story.written if one[1] >= committed.get(one[0], 0)}
    story.read = []
    story.open("third")
    story.poll(lambda: set(story.read) >= rest, "resuming")
    assert sorted(rest) == sorted(story.read), "resumed elsewhere"
    story.close("third")


def _try_commit(client: Client, member: str) -> list[tuple[int, int]]:
    try:
        return client.commit_member(member)
    except DriverError:
        return []  # refused, or the connection ended: not acknowledged
