"""Producers that come while a topic is being loaded: they wait, and go on where that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.request import urlopen
from uuid import UUID

import pytest

from kgw.client import AdminClient
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from kgw.pipeline.jobs.loading import begin, hand_over
from kgw.pipeline.jobs.restore import Restore, plan, run
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.wire import WireClient
from tests import patience
from tests.interop.client import Topic
from tests.interop.drivers.loop import Record
from tests.interop.libraries import NAMES
from tests.interop.scenario import limits_by_name
from tests.pipeline.jobs.runners import Backwards
from tests.pipeline.sending import send, send_aborted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Clients
    from tests.interop.libraries import NewGateway

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(60)]

ARCHIVED = 3000
LIVE = 50
TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def gateway(
    new_gateway: NewGateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway whose refusals can be counted."""
    directory = tmp_path_factory.mktemp("loading")
    with new_gateway(directory / "data", "kgw.admin.listeners=127.0.0.1:0") as process:
        yield process


@pytest.fixture(scope="module")
def wire(gateway: GatewayProcess) -> Iterator[WireClient]:
    """A client of the gateway."""
    with WireClient(gateway.bootstrap) as wire:
        yield wire


@pytest.fixture(scope="module")
def restore(
    gateway: GatewayProcess, wire: WireClient, tmp_path_factory: pytest.TempPathFactory
) -> Restore:
    """An archive of a topic that begins at 100, and ends with two offsets without a record."""
    root = tmp_path_factory.mktemp("archive")
    admin = AdminClient(wire.client)
    wire.call(admin.create_topic("source", partitions=1))
    wire.call(send(wire.client, "source", ARCHIVED))
    wire.call(send_aborted(wire.client, "source"))
    wire.call(admin.delete_records("source", {0: 100}))
    job = ArchiveJob(
        wire, Cluster(gateway.bootstrap), root, Backwards(), ArchiveOptions(), now_ms=lambda: 0
    )
    job.run_once("source")
    described = wire.find_topic("source")
    assert described is not None
    topic_id = UUID(bytes=bytes(described.topic_id))
    generation = generation_directory(str(root), "source", topic_id)
    return Restore(Cluster(gateway.bootstrap), generation, topic_id, "")


def refusals(gateway: GatewayProcess) -> float:
    """Return how many batches were refused because their topic is being loaded."""
    with urlopen(
        f"http://127.0.0.1:{gateway.admin_port}/metrics", timeout=patience.seconds(TIMEOUT_S)
    ) as page:
        text: str = page.read().decode()
    (line,) = (line for line in text.splitlines() if line.startswith("kgw_loading_refusals_total"))
    return float(line.split()[1])


# kafka-go has no idempotent producer, and its driver hands every refusal on.
@pytest.mark.parametrize("name", [one for one in NAMES if limits_by_name(one).is_idempotent])
def test_a_live_producer_goes_on_where_loading_ends(
    name: str, clients: Clients, gateway: GatewayProcess, wire: WireClient, restore: Restore
) -> None:
    """It is refused, keeps trying, and has its first record at the very offset of the hand-over."""
    topic = Topic(clients(name), gateway, f"again-{name}", 0)
    wire.call(AdminClient(wire.client).create_topic(topic.name, partitions=1))
    asked = restore._replace(target=topic.name)
    begin(wire, asked)
    before = refusals(gateway)
    live = [Record(b"live", b"%d" % index, [], 5000 + index, index) for index in range(LIVE)]
    topic.start_produce(live, "none", idempotent=True)
    limit = patience.Limit(TIMEOUT_S)
    while refusals(gateway) < before + 2:
        assert not limit.is_over, topic.client.answer()
    assert [(0, ARCHIVED - 100, ARCHIVED + 2)] == run(wire, asked, Backwards())
    ((_, offset),) = hand_over(wire, asked, plan(wire, asked))
    assert ARCHIVED + 2 == offset
    assert list(range(offset, offset + LIVE)) == topic.finish_produce()
    wanted = OffsetRange(topic.name, 0, 100, offset + LIVE)
    rows = [row for piece in wire.decoded(wanted) for row in piece.batch.to_pylist()]
    expected = [*range(100, ARCHIVED), *range(offset, offset + LIVE)]
    assert expected == [row["offset"] for row in rows]
    assert [b"%d" % index for index in range(LIVE)] == [row["value"] for row in rows[-LIVE:]]
    assert expected == [one.offset for one in topic.consume(100, len(expected))]
