"""A chunk that SeaweedFS has lost, or holds other bytes of: named, never passed over."""

from __future__ import annotations

import time
import urllib.request
from typing import TYPE_CHECKING, Final

from kgw.client import AdminClient, AsyncClient
from kgw.errors import ErrorCode
from kgw.records.errors import RecordError
from kgw.testing.batches import read_stored
from tests import patience
from tests.campaigns.seaweedmq_judges import Answer, difference, unnamed, wrong_answer
from tests.campaigns.seaweedmq_site import open_filer, partition_places
from tests.campaigns.transactors import read_topic
from tests.handlers.support import batch

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.filer import Chunk, FilerEntry
    from kgw.client import FetchedPartition
    from tests.campaigns.seaweedmq_site import Site

NAMESPACE: Final = "damaged"
TOPIC: Final = "damaged"
PARTITIONS: Final = 3
WRITTEN: Final = [b"%d" % number for number in range(6)]
"""Of each partition, a chunk for each."""
DAMAGED: Final = len(WRITTEN) // 2
HOW: Final = ("removed", "altered")


async def damage_chunks(site: Site) -> None:
    """Remove a chunk of one partition and alter one of another; a third one is left alone."""
    url = site.cluster.url(NAMESPACE)
    gateway = site.gateway(url)
    gateway.start(60)
    try:
        async with AsyncClient([(gateway.host, gateway.port)]) as client:
            await AdminClient(client).create_topic(TOPIC, partitions=PARTITIONS)
            await client.topic(TOPIC)
            for partition in range(PARTITIONS):
                for value in WRITTEN:
                    await client.produce(TOPIC, partition, batch(value))
        gateway.stop()
        files = await _files(site)
        for (_, entry), how in zip(files, HOW, strict=False):
            _damage(site, entry.chunks[DAMAGED], how)
            site.report.count(f"chunks_{how}")
        # Another gateway, which has nothing in memory.
        gateway.start(60)
        async with AsyncClient([(gateway.host, gateway.port)]) as client:
            await client.topic(TOPIC)
            for partition, ((place, entry), how) in enumerate(zip(files, HOW, strict=False)):
                await _must_be_refused(site, client, partition, how)
                for problem in unnamed(f"{place}/{entry.name}", gateway.log()):
                    site.report.fail(f"{how}: {problem}")
                await client.produce(TOPIC, partition, batch(b"behind"))
        records = read_topic(gateway.bootstrap, TOPIC, range(PARTITIONS))[PARTITIONS - 1][2]
        for problem in difference(records, list(enumerate(WRITTEN))):
            site.report.fail(f"the partition beside them: {problem}")
        site.report.count("read_beside", len(records))
    finally:
        if gateway.running:
            gateway.kill()


async def _must_be_refused(site: Site, client: AsyncClient, partition: int, how: str) -> None:
    for offset in range(len(WRITTEN)):
        found = await _answer(client, partition, offset)
        site.report.count(f"{how}_told", found.error_code == ErrorCode.CORRUPT_MESSAGE)
        try:
            records = [(one.offset, one.value) for one in read_stored([found.records])]
        except (AssertionError, RecordError) as error:
            site.report.fail(f"{how}: offset {offset} is answered with no batch: {error}")
            continue
        for problem in wrong_answer(Answer(offset, found.error_code, records), WRITTEN, DAMAGED):
            site.report.fail(f"{how}: {problem}")


async def _answer(client: AsyncClient, partition: int, offset: int) -> FetchedPartition:
    """Ask until there are records or an error: a read that lasts is answered without, at first."""
    until_s = time.monotonic() + patience.seconds(30)
    while True:
        # Where it is not told of an error, the client asks again and again.
        (found,) = await client.fetch(
            TOPIC,
            {partition: offset},
            partition_max_bytes=1,
            told=frozenset({ErrorCode.CORRUPT_MESSAGE}),
        )
        if found.error_code or found.records or time.monotonic() > until_s:
            return found


async def _files(site: Site) -> list[tuple[str, FilerEntry]]:
    """Return the file of each partition, with where it is."""
    async with open_filer(site) as filer:
        return [
            (place, entry)
            async for place in partition_places(filer, NAMESPACE, TOPIC)
            async for entry in filer.list_entries(place)
            if entry.chunks
        ]


def _damage(site: Site, chunk: Chunk, how: str) -> None:
    url = f"http://{site.cluster.address('volume')}/{chunk.file_id}"
    request = urllib.request.Request(url, method="DELETE")
    if how == "altered":
        request = urllib.request.Request(url, b"?" * chunk.size_bytes, method="PUT")
    with urllib.request.urlopen(request, timeout=patience.seconds(10)):  # noqa: S310
        pass
