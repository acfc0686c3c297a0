"""Clients of two gateways: the one that leads is killed or stopped, and they go to the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from tests.interop import groups
from tests.interop.client import Topic
from tests.interop.drivers.loop import Record
from tests.interop.libraries import NAMES
from tests.interop.scenario import START_MS, limits_by_name
from tests.interop.test_groups import STRATEGIES
from tests.interop.transactions import Story, Transformation
from tests.interop.two_gateways import TwoGateways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client
    from tests.seaweedfs.cluster import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(150)]

TRANSACTIONAL = [
    name
    for name in NAMES
    if limits_by_name(name).has_transactions
    and limits_by_name(name).ends_transactions_after_restarts
]
ENDS = ("kill", "stop")


@pytest.fixture
def pair(seaweedfs: Cluster, tmp_path: Path) -> Iterator[TwoGateways]:
    """Two gateways of a new namespace."""
    url = seaweedfs.url(seaweedfs.new_namespace())
    with TwoGateways(url, tmp_path) as pair:
        yield pair


def records(first: int, count: int = 5) -> list[Record]:
    """Return records that are told apart by their values."""
    return [Record(b"key", b"%d" % number, [], START_MS) for number in range(first, first + count)]


@pytest.mark.parametrize("name", NAMES)
def test_a_producer_goes_on_at_the_other_gateway(
    name: str, clients: Callable[[str], Client], pair: TwoGateways
) -> None:
    """With the library's own settings, after a kill and after a stop; everything is there once."""
    client = clients(name)
    topic = Topic(client, cast("GatewayProcess", pair), "orders", partition=0)
    topic.create(1)
    written: list[Record] = []
    for round_, end in enumerate(ENDS):
        pair.end = end
        producer = f"producer-{end}"
        client.open_producer(producer, bootstrap=pair.bootstrap, transactional_id=None)
        for half in range(2):
            sent = records(100 * round_ + 10 * half)
            offsets = topic.produce(sent, idempotent=True, producer=producer)
            written += [one._replace(offset=at) for one, at in zip(sent, offsets, strict=True)]
            if not half:
                pair.kill()
        client.close_producer(producer)
        pair.start()
    assert [one.value for one in written] == [one.value for one in topic.consume(0, len(written))]
    assert [one.offset for one in written] == list(range(len(written)))


@pytest.mark.parametrize("name", TRANSACTIONAL)
@pytest.mark.parametrize("end", [pytest.param("kill", marks=pytest.mark.full), "stop"])
def test_transactions_go_on_at_the_other_gateway(
    name: str, end: str, clients: Callable[[str], Client], pair: TwoGateways
) -> None:
    """One that is open when the leader ends is committed at the other, or aborted, as asked."""
    pair.end = end
    client = clients(name)
    story = Story(client, cast("GatewayProcess", pair), "two", "open")
    story.open("producer")
    story.transact("producer", commit=True)
    story.transact("producer", commit=False)
    story.transact("producer", commit=True)
    client.close_producer("producer")
    story.check()


@pytest.mark.full
@pytest.mark.parametrize("name", TRANSACTIONAL)
@pytest.mark.parametrize("end", ENDS)
def test_offsets_in_transactions_go_on_at_the_other_gateway(
    name: str, end: str, clients: Callable[[str], Client], pair: TwoGateways
) -> None:
    """What a group has read and written is committed once, however the leader ends meanwhile."""
    pair.end = end
    client = clients(name)
    work = Transformation(client, cast("GatewayProcess", pair), "sent")
    work.write()
    work.run(commit=True, kill="sent")
    work.write()
    work.run(commit=True, kill="ended")
    assert {0: 20, 1: 20} == work.committed()
    for partition in range(2):
        found = Topic(client, cast("GatewayProcess", pair), work.target.name, partition)
        assert 0 <= found.bounds()[1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("end", ["stop", pytest.param("kill", marks=pytest.mark.full)])
def test_a_group_goes_on_at_the_other_gateway(
    name: str, end: str, clients: Callable[[str], Client], pair: TwoGateways
) -> None:
    """Its members keep their partitions and read on from what is committed; nothing is left out."""
    pair.end = end
    story = groups.Story(clients(name), cast("GatewayProcess", pair), STRATEGIES[name][0])
    for member in ("first", "second"):
        story.open(member)
    story.share()
    story.write(5)
    story.read_everything()
    had, before = dict(story.assigned), story.rounds()
    story.read = sorted(story.written)
    pair.kill()
    assert story.ends() == story.committed()
    for _ in range(2):
        story.write(5)
        story.read_everything()
    assert sorted(story.written) == sorted(story.read), "read on elsewhere"
    if name not in groups.JOIN_ANEW_AFTER_A_RESTART:
        assert (had, before) == (story.assigned, story.rounds()), f"rebalanced: {story.causes()}"
    story.share()
    for member in ("first", "second"):
        story.close(member)
    pair.start()
