from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.filer import FilerEntry, FilerError, OutcomeUnknownError
from kgw.backend.seaweedmq.topics.directories import (
    ReservedTopicError,
    TopicDirectories,
    TopicPlace,
    twins,
)
from kgw.backend.seaweedmq.topics.topic_conf import (
    parse_partition_name,
    partition_name,
    topic_conf,
    version_name,
)
from kgw.errors import CorruptionError, ErrorCode
from kgw.testing.filer import CallKind, MemoryFiler
from kgw.types import PartitionKey, TopicId, TopicName
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ORDERS = TopicName("orders")
ONE, OTHER = TopicId(bytes(16)), TopicId(bytes(range(16)))
NOW_MS = 1_700_000_000_999


async def _directories() -> tuple[MemoryFiler, TopicDirectories]:
    filer = MemoryFiler()
    await filer.open()
    return filer, TopicDirectories(filer, "kafka")


async def _fill(filer: MemoryFiler, place: TopicPlace, partition: int) -> None:
    await filer.create(place.partition(partition), FilerEntry("leader.offset", content=b"x"))


def test_names_are_smqs() -> None:
    """The second of the creation, and ranges of 32 slots with four digits at least."""
    assert "v2023-11-14-22-13-20" == version_name(1_700_000_000)
    assert ["0000-0031", "0032-0063", "9984-10015", "32000-32031"] == [
        partition_name(number) for number in (0, 1, 312, 1000)
    ]
    for number in (0, 1, 77, 312, 1000, 9999):
        assert number == parse_partition_name(partition_name(number))
    for other in ("0000-0630", "0001-0032", "consumers", "", "0000-0031.parquet"):
        assert parse_partition_name(other) is None


def test_topic_conf_is_what_protobuf_writes() -> None:
    """Names in lower camel case, every field, 64 bits as text; the ring has room for all."""
    conf = json.loads(topic_conf([1, 0], 1_700_000_000))
    assert {
        "brokerPartitionAssignments": [
            {
                "partition": {
                    "ringSize": 4096,
                    "rangeStart": 32 * number,
                    "rangeStop": 32 * number + 31,
                    "unixTimeNs": "1700000000000000000",
                },
                "leaderBroker": "",
                "followerBroker": "",
            }
            for number in (0, 1)
        ],
        "retention": None,
        "messageRecordType": None,
        "keyColumns": [],
        "schemaFormat": "",
    } == conf
    many = json.loads(topic_conf([200], 0))["brokerPartitionAssignments"]
    assert 8192 == many[0]["partition"]["ringSize"]


async def test_a_topic_is_found_again_by_its_id() -> None:
    """With one listing, however many of its partitions are asked for."""
    filer, topics = await _directories()
    assert await topics.find(ORDERS, ONE) is None
    place = await topics.create(ORDERS, ONE, NOW_MS)
    assert "/topics/kafka/orders/v2023-11-14-22-13-20/0032-0063" == place.partition(1)
    assert place == await topics.create(ORDERS, ONE, NOW_MS + 9_000)
    filer.calls.clear()
    again = TopicDirectories(filer, "kafka")
    assert [place] * 3 == [await again.find(ORDERS, ONE) for _ in range(3)]
    assert await again.find(ORDERS, OTHER) is None
    assert 1 == filer.count()
    assert place == await TopicDirectories(filer, "kafka").find_by_id(ONE)


async def test_what_has_been_listed_is_listed_again_when_asked_to() -> None:
    """Else a listing of all topics looks into those that are new alone."""
    filer, topics = await _directories()
    one = await topics.create(ORDERS, ONE, NOW_MS)
    await topics.list_all()
    other = await TopicDirectories(filer, "kafka").create(TopicName("new"), OTHER, NOW_MS)
    for again, looked_into in ((False, ["new"]), (False, []), (True, ["new", "orders"])):
        filer.calls.clear()
        assert {ONE: [one], OTHER: [other]} == await topics.list_all(again=again)
        directories = ["/topics/kafka", *(f"/topics/kafka/{name}" for name in looked_into)]
        assert directories == [call.directory for call in filer.calls]


async def test_a_topic_that_was_moved_away_is_found_when_it_is_back() -> None:
    """What is remembered of it goes with it, so that nobody makes it anew, empty."""
    filer, topics = await _directories()
    place = await topics.create(ORDERS, ONE, NOW_MS)
    moved = filer.store.directories["/topics/kafka"].pop(ORDERS)
    assert {} == await topics.list_all(again=True)
    filer.store.directories["/topics/kafka"][ORDERS] = moved
    assert place == await topics.find(ORDERS, ONE)


async def test_a_directory_whose_making_was_not_answered_is_found() -> None:
    """The topic does not get a second one, and what is removed is all of it."""
    filer, directories = await _directories()
    filer.lose_answer(CallKind.CREATE)
    with pytest.raises(OutcomeUnknownError):
        await directories.create(ORDERS, ONE, NOW_MS)
    place = await directories.create(ORDERS, ONE, NOW_MS + 5_000)
    assert version_name(NOW_MS // 1000) == place.name
    await directories.remove(PartitionKey(ONE, 0))
    assert {} == await directories.list_all()


async def test_a_namesake_has_files_of_its_own() -> None:
    """Also one that is created in the same second."""
    _, topics = await _directories()
    one = await topics.create(ORDERS, ONE, NOW_MS)
    other = await topics.create(ORDERS, OTHER, NOW_MS)
    assert (one.created_s + 1, "v2023-11-14-22-13-21") == (other.created_s, other.name)


@pytest.mark.parametrize("name", [".kgw", ".system", ".meta", "."])
async def test_reserved_names_are_refused(name: str) -> None:
    """With Kafka's code for a name that a topic cannot have."""
    filer, topics = await _directories()
    with pytest.raises(ReservedTopicError) as refused:
        await topics.create(TopicName(name), ONE, NOW_MS)
    assert ErrorCode.INVALID_TOPIC_EXCEPTION is refused.value.code
    assert 0 == filer.count()


async def test_the_last_partition_takes_the_topic_with_it() -> None:
    """Its version directory, topic.conf and the topic's own directory."""
    filer, topics = await _directories()
    place = await topics.create(ORDERS, ONE, NOW_MS)
    for partition in (0, 1):
        await _fill(filer, place, partition)
    await topics.write_conf(place, [0, 1])
    await topics.remove(PartitionKey(ONE, 0))
    assert [1] == await topics.partitions(place)
    await topics.remove(PartitionKey(ONE, 1))
    assert {} == filer.store.directories["/topics/kafka"]
    await topics.remove(PartitionKey(ONE, 1))
    assert await topics.find(ORDERS, ONE) is None
    assert place.created_s + 1 == (await topics.create(ORDERS, ONE, NOW_MS)).created_s


async def test_what_is_removed_late_is_nothing_of_a_namesake() -> None:
    """A removal that arrives again, after the name is free, finds nothing under its name."""
    filer, topics = await _directories()
    place = await topics.create(ORDERS, ONE, NOW_MS)
    await _fill(filer, place, 0)
    await topics.remove(PartitionKey(ONE, 0))
    other = await topics.create(ORDERS, OTHER, NOW_MS)
    await _fill(filer, other, 0)
    await filer.delete(place.parent, place.name, is_recursive=True)
    await filer.delete(place.directory, partition_name(0), is_recursive=True)
    assert [0] == await topics.partitions(other)


async def test_what_another_has_made_in_its_place_stays() -> None:
    """A gateway that has not seen the removal knows the name as that of the old topic."""
    filer, topics = await _directories()
    await _fill(filer, await topics.create(ORDERS, ONE, NOW_MS), 0)
    elsewhere = TopicDirectories(filer, "kafka")
    await elsewhere.remove(PartitionKey(ONE, 0))
    other = await TopicDirectories(filer, "kafka").create(ORDERS, OTHER, NOW_MS)
    await _fill(filer, other, 0)
    await topics.remove(PartitionKey(ONE, 0))
    assert [0] == await topics.partitions(other)
    assert await topics.find_by_id(ONE) is None


async def test_a_removal_that_failed_can_be_repeated() -> None:
    """The directory is still known."""
    filer, topics = await _directories()
    await _fill(filer, await topics.create(ORDERS, ONE, NOW_MS), 0)
    filer.hold_next(CallKind.DELETE, times=2)
    removing = asyncio.ensure_future(topics.remove(PartitionKey(ONE, 0)))
    await turns()
    filer.held[0].answer()
    await turns()
    filer.held[1].refuse()
    with pytest.raises(FilerError):
        await removing
    await topics.remove(PartitionKey(ONE, 0))
    assert {} == filer.store.directories["/topics/kafka"]


async def _copy(filer: MemoryFiler, place: TopicPlace, parent: str, name: str) -> None:
    entry = await filer.look_up(place.parent, place.name)
    assert entry is not None
    await filer.create(parent, entry._replace(name=name))


async def test_a_copy_of_a_directory_is_never_taken_for_the_topic() -> None:
    """Both are named; once the copy has been moved away, the topic is found again."""
    filer, directories = await _directories()
    place = await directories.create(ORDERS, ONE, NOW_MS)
    await _copy(filer, place, place.parent, "v2023-11-14-22-13-21")
    for _ in range(2):
        again = TopicDirectories(filer, "kafka")
        for find in (again.find(ORDERS, ONE), again.find_by_id(ONE), again.create(ORDERS, ONE, 1)):
            with pytest.raises(CorruptionError) as refused:
                await find
            assert f"{place.directory} and {place.parent}/v2023" in str(refused.value)
    assert 1 == len(twins(await again.list_all()))
    with pytest.raises(CorruptionError):
        await again.remove(PartitionKey(ONE, 0))
    await filer.delete(place.parent, "v2023-11-14-22-13-21", is_recursive=True)
    assert place == await again.find(ORDERS, ONE)


async def test_a_copy_under_another_name_is_not_the_topic_either() -> None:
    """The topic's own name says which one is meant; where nobody knows the name, nothing does."""
    filer, directories = await _directories()
    place = await directories.create(ORDERS, ONE, NOW_MS)
    await _copy(filer, place, "/topics/kafka/backup", place.name)
    assert place == await directories.find(ORDERS, ONE)
    (problem,) = twins(await directories.list_all(again=True))
    assert "/topics/kafka/backup/" in problem
    for topic in (ORDERS, TopicName("backup")):
        # Whichever of the two was looked at last.
        assert topic == getattr(await directories.find(topic, ONE), "topic", None)
        with pytest.raises(CorruptionError):
            await directories.remove(PartitionKey(ONE, 0))
    assert place == await directories.find(ORDERS, ONE)


async def test_what_a_namesake_has_stays() -> None:
    """topic.conf is its own by then; so is that of SMQ's broker."""
    filer, topics = await _directories()
    place = await topics.create(ORDERS, ONE, NOW_MS)
    await _fill(filer, place, 0)
    other = await topics.create(ORDERS, OTHER, NOW_MS)
    await _fill(filer, other, 0)
    await topics.write_conf(other, [0])
    await TopicDirectories(filer, "kafka").remove(PartitionKey(ONE, 0))
    assert ["topic.conf", other.name] == sorted(filer.store.directories[place.parent])


async def test_directories_of_others_are_none_of_ours() -> None:
    """SMQ's broker makes them without a topic id."""
    filer, topics = await _directories()
    await filer.create("/topics/kafka/native/v2023-11-14-22-13-20", FilerEntry("0000-2520"))
    await filer.create(
        "/topics/kafka/orders", FilerEntry("v1", is_directory=True, extended={"a": b"b"})
    )
    assert {} == await topics.list_all()
    assert await topics.find(ORDERS, ONE) is None
    assert 3 == filer.count(CallKind.LIST)


class LateListings(MemoryFiler):
    """Lists what the topic's directory had when it was asked, and answers when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def list_entries(
        self, directory: str, *, prefix: str = "", after: str = "", chunks: bool = True
    ) -> AsyncIterator[FilerEntry]:
        listing = super().list_entries(directory, prefix=prefix, after=after, chunks=chunks)
        found = [entry async for entry in listing]
        if directory.endswith("/orders"):
            await self.may_answer.wait()
        for entry in found:
            yield entry


async def _row(filer: MemoryFiler) -> bytes:
    """Return the row that stands with the topic's directory."""
    ((place,),) = (await TopicDirectories(filer, "kafka").list_all()).values()
    return place.row


async def test_of_two_who_write_a_row_the_later_one_is_remembered() -> None:
    """So that the first one's is written, and not left out as there already, when it comes back."""
    filer, topics = await _directories()
    await topics.create(ORDERS, ONE, NOW_MS)
    filer.hold_all(CallKind.UPDATE)
    writing = [asyncio.ensure_future(topics.write_row(ONE, row)) for row in (b"first", b"later")]
    await turns()
    for _ in range(2):
        for request in filer.held:
            request.answer()
        await turns()
    filer.hold_all()
    await asyncio.gather(*writing)
    assert b"later" == await _row(filer)
    await topics.write_row(ONE, b"first")
    assert b"first" == await _row(filer)


async def test_a_listing_that_is_answered_late_brings_no_older_row_back() -> None:
    """A row that is written while its topic is listed is remembered, and what was there is not."""
    filer = LateListings()
    await filer.open()
    topics = TopicDirectories(filer, "kafka")
    await topics.create(ORDERS, ONE, NOW_MS)
    await topics.write_row(ONE, b"old")
    filer.may_answer.clear()
    listing = asyncio.ensure_future(topics.list_all(again=True))
    await turns()
    writing = asyncio.ensure_future(topics.write_row(ONE, b"new"))
    await turns()
    filer.may_answer.set()
    await asyncio.gather(listing, writing)
    await topics.write_row(ONE, b"old")
    assert b"old" == await _row(filer)


async def test_a_topic_whose_row_is_written_while_it_is_removed_is_forgotten() -> None:
    """Its place has another row than the one that was to be removed."""
    filer, topics = await _directories()
    await _fill(filer, await topics.create(ORDERS, ONE, NOW_MS), 0)
    await topics.create(ORDERS, OTHER, NOW_MS)
    filer.hold_next(CallKind.LOOK_UP)
    removing = asyncio.ensure_future(topics.remove(PartitionKey(ONE, 0)))
    await turns()
    await topics.write_row(ONE, b"row")
    filer.held[0].answer()
    await removing
    assert await topics.find(ORDERS, ONE) is None
