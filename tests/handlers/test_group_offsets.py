"""OffsetCommit, OffsetFetch and OffsetDelete through the codec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import ErrorCode
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.offsets.rows import places_of, row_key
from kgw.ownership.placement import OneProcess
from kgw.protocol.api_keys import ApiKey
from kgw.state.base import Change
from kgw.state.kinds import GROUP_OFFSETS, OFFSET_BLOCK
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import call, create_topic

if TYPE_CHECKING:
    from kgw.backend.memory import MemoryBackend


async def commit(
    gateway: InProcessGateway,
    offsets: dict[int, int],
    *,
    version: int = 8,
    name: str = "orders",
    topic_id: bytes = bytes(16),
    metadata: str | None = "note",
    member_id: str = "",
    generation: int = -1,
) -> list[int]:
    """Commit offsets of one topic, and return the codes."""
    partitions = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": 3,
            "committed_metadata": metadata,
        }
        for index, offset in offsets.items()
    ]
    response = await call(
        gateway,
        ApiKey.OFFSET_COMMIT,
        version,
        group_id="group",
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[{"name": name, "topic_id": topic_id, "partitions": partitions}],
    )
    return [one.error_code for one in response.topics[0].partitions]


async def fetch(
    gateway: InProcessGateway,
    indexes: list[int] | None,
    *,
    version: int = 7,
    topic_id: bytes = bytes(16),
) -> list[Any]:
    """Return what the group has committed of one topic, or of all when no partitions are named."""
    wanted: Any = None
    if indexes is not None:
        wanted = [{"name": "orders", "partition_indexes": indexes}]
    if version >= 8:
        for topic in wanted or ():
            topic["topic_id"] = topic_id
    asked = {"group_id": "group", "topics": wanted}
    response = await call(
        gateway, ApiKey.OFFSET_FETCH, version, **({"groups": [asked]} if version >= 8 else asked)
    )
    group = response.groups[0] if version >= 8 else response
    assert ErrorCode.NONE == group.error_code
    return [one for topic in group.topics for one in topic.partitions]


@pytest.mark.parametrize("version", range(11))
async def test_what_is_committed_is_fetched(gateway: InProcessGateway, version: int) -> None:
    """In every version of both, by name and by id: offset, metadata, epoch where there is one."""
    topic = await create_topic(gateway, partitions=20)
    topic_id = topic.topic_id
    assert [0, 0, 0] == await commit(
        gateway, {0: 5, 1: 6, 19: 7}, version=version, topic_id=topic_id
    )
    for asked in ([0, 1, 19, 2], None):
        if asked is None and version < 2:
            continue
        found = await fetch(gateway, asked, version=version, topic_id=topic_id)
        stored = [one for one in found if one.committed_offset >= 0]
        assert [(0, 5), (1, 6), (19, 7)] == [
            (one.partition_index, one.committed_offset) for one in stored
        ]
        assert {"note"} == {one.metadata for one in stored}
        epoch = 3 if version >= 6 else -1
        assert {epoch} == {one.committed_leader_epoch for one in stored}
        if asked is not None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version == 0 else ErrorCode.NONE
            assert (-1, code) == (found[-1].committed_offset, found[-1].error_code)


@pytest.mark.parametrize("version", range(1, 11))
async def test_unknown_group_has_no_offsets(gateway: InProcessGateway, version: int) -> None:
    """It is no error: -1."""
    topic = await create_topic(gateway)
    (found,) = await fetch(gateway, [0], version=version, topic_id=topic.topic_id)
    assert (-1, ErrorCode.NONE) == (found.committed_offset, found.error_code)
    if version >= 2:
        assert [] == await fetch(gateway, None, version=version)
    assert [] == list(gateway.groups.listed())


async def test_refusals_are_of_the_partition(gateway: InProcessGateway) -> None:
    """What can be stored is, whatever becomes of the rest."""
    await create_topic(gateway)
    assert [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == await commit(gateway, {0: 1, 9: 1})
    unknown = await commit(gateway, {0: 1}, name="missing")
    assert [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == unknown
    by_id = await commit(gateway, {0: 1}, version=10, topic_id=bytes(range(16)))
    assert [ErrorCode.UNKNOWN_TOPIC_ID] == by_id
    assert [0] == await commit(gateway, {0: 2})
    assert [ErrorCode.OFFSET_METADATA_TOO_LARGE] == await commit(
        gateway, {0: 3}, metadata="x" * 4097
    )
    assert [2] == [one.committed_offset for one in await fetch(gateway, [0])]


@pytest.mark.parametrize(
    ("character", "most"), [("x", 4096), ("é", 4096), ("語", 4096), ("🦜", 2048)]
)
async def test_metadata_is_limited_in_the_characters_of_java(
    gateway: InProcessGateway, character: str, most: int
) -> None:
    """Not in bytes: Kafka counts what Java's strings are made of."""
    await create_topic(gateway)
    assert [0] == await commit(gateway, {0: 2}, metadata=character * most)
    (found,) = await fetch(gateway, [0])
    assert character * most == found.metadata
    longer = await commit(gateway, {0: 3}, metadata=character * (most + 1))
    assert [ErrorCode.OFFSET_METADATA_TOO_LARGE] == longer


@pytest.mark.parametrize("offset", [-1, -2, -3, -(2**63)])
@pytest.mark.parametrize("count", [1, 20])
async def test_a_negative_offset_is_stored(backend: MemoryBackend, offset: int, count: int) -> None:
    """It is told as it was committed, also after a restart, and can be committed over."""
    async with InProcessGateway(backend=backend) as gateway:
        await create_topic(gateway, partitions=count)
        assert [0] * count == await commit(gateway, dict.fromkeys(range(count), 3))
        assert [0] * count == await commit(gateway, dict.fromkeys(range(count), offset))
    async with InProcessGateway(backend=backend) as gateway:
        found = await fetch(gateway, list(range(count)))
        assert [(offset, 0)] * count == [(one.committed_offset, one.error_code) for one in found]
        assert count == len(await fetch(gateway, None))
        assert [0] == await commit(gateway, {0: 7})
        assert 7 == (await fetch(gateway, [0]))[0].committed_offset
        assert {} == gateway.internal_errors


@pytest.mark.parametrize("version", [1, 8, 9])
async def test_member_of_an_unknown_group(gateway: InProcessGateway, version: int) -> None:
    """ILLEGAL_GENERATION, as old clients expect; GROUP_ID_NOT_FOUND from version 9 on."""
    await create_topic(gateway)
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert [code] == await commit(
        gateway, {0: 1}, version=version, member_id="somebody", generation=4
    )


async def test_topic_created_again_has_no_offsets(backend: MemoryBackend) -> None:
    """Offsets go with the topic's id, also over a restart."""
    async with InProcessGateway(backend=backend) as gateway:
        await create_topic(gateway)
        await commit(gateway, {0: 5})
        await call(gateway, ApiKey.DELETE_TOPICS, 3, topic_names=["orders"])
        await create_topic(gateway)
        assert [-1] == [one.committed_offset for one in await fetch(gateway, [0])]
    async with InProcessGateway(backend=backend) as gateway:
        assert [-1] == [one.committed_offset for one in await fetch(gateway, [0])]
        assert {} == await backend.state.load(GROUP_OFFSETS)


async def test_offsets_survive_a_restart(backend: MemoryBackend) -> None:
    """All of what is stored with an offset comes back."""
    async with InProcessGateway(backend=backend) as gateway:
        await create_topic(gateway, partitions=40)
        await commit(gateway, {index: index + 100 for index in range(40)})
        before = await fetch(gateway, None)
    async with InProcessGateway(backend=backend) as gateway:
        assert before == await fetch(gateway, None)
        assert 40 == len(before)


async def test_damaged_offsets_are_an_error(backend: MemoryBackend) -> None:
    """A group is told, not sent to wherever it would begin; a new commit heals the partition."""
    async with InProcessGateway(backend=backend) as gateway:
        topic = await create_topic(gateway, partitions=17)
        await commit(gateway, {0: 5, 16: 6})
        (place,) = places_of([0])
        key = row_key("group", topic.topic_id, place)
        await backend.state.apply([Change(GROUP_OFFSETS, key, b"rubbish")])
    async with InProcessGateway(backend=backend) as gateway:
        codes = [one.error_code for one in await fetch(gateway, [0, 1, 16])]
        assert [ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE, 0] == codes
        assert [0] == await commit(gateway, {0: 7})
    async with InProcessGateway(backend=backend) as gateway:
        found = await fetch(gateway, [0, 1, 16])
        assert [(7, 0), (-1, ErrorCode.CORRUPT_MESSAGE), (6, 0)] == [
            (one.committed_offset, one.error_code) for one in found
        ]


async def test_damaged_block_is_an_error_for_each_of_its_partitions(backend: MemoryBackend) -> None:
    """Each partition of a large commit is told that it is damaged, until it is committed again."""
    async with InProcessGateway(backend=backend) as gateway:
        await create_topic(gateway, partitions=40)
        await commit(gateway, dict.fromkeys(range(2, 40, 2), 5))
        await commit(gateway, {3: 6})
        (key,) = await backend.state.load(OFFSET_BLOCK)
        await backend.state.apply([Change(OFFSET_BLOCK, key, b"rubbish")])
    for _ in range(2):
        async with InProcessGateway(backend=backend) as gateway:
            found = await fetch(gateway, [0, 2, 3, 38])
            assert [0, ErrorCode.CORRUPT_MESSAGE, 0, ErrorCode.CORRUPT_MESSAGE] == [
                one.error_code for one in found
            ]
            assert not await backend.state.load(OFFSET_BLOCK)
    async with InProcessGateway(backend=backend) as gateway:
        assert {0} == set(await commit(gateway, dict.fromkeys(range(2, 40, 2), 7)))
        (two,) = await fetch(gateway, [2])
        assert (7, 0) == (two.committed_offset, two.error_code)


@pytest.mark.parametrize("version", [1, 2, 5, 6, 8, 9, 10])
async def test_many_partitions_at_once_are_answered_as_one_by_one(
    gateway: InProcessGateway, version: int
) -> None:
    """A commit that becomes a block is answered, stored and refused like single offsets."""
    topic = await create_topic(gateway, partitions=40)
    for offsets in (
        {index: index + 100 for index in range(40)},
        {index: index + 200 for index in range(39, 10, -1)},
        {index: 9 - index for index in range(20)},
        dict.fromkeys(range(30, 50), 7),
        dict.fromkeys(range(-5, 20), 8),
    ):
        codes = await commit(gateway, offsets, version=version, topic_id=topic.topic_id)
        found = {one.partition_index: one for one in await fetch(gateway, list(range(40)))}
        for (index, offset), code in zip(offsets.items(), codes, strict=True):
            alone = {index: offset}
            assert [code] == await commit(gateway, alone, version=version, topic_id=topic.topic_id)
            if code == ErrorCode.NONE:
                assert found[index].committed_offset == offset
                assert found[index].metadata == "note"
                assert found[index].committed_leader_epoch == (3 if version >= 6 else -1)


@pytest.mark.parametrize(
    ("count", "different", "again", "is_block"),
    [
        (15, None, False, False),
        (16, None, False, True),
        (1_101, None, False, True),
        (1_101, 0, False, False),
        (1_101, 1_100, False, False),
        (1_101, None, True, False),
    ],
)
@pytest.mark.parametrize("version", [4, 8])
async def test_each_offset_of_a_large_commit_is_stored_as_it_came(
    backend: MemoryBackend,
    *,
    count: int,
    different: int | None,
    again: bool,
    is_block: bool,
    version: int,
) -> None:
    """With its own leader epoch, metadata and retention; in a block if all have one metadata.

    Of a partition that the request names again, the last offset counts.
    """
    partitions: list[dict[str, Any]] = [
        {
            "partition_index": index,
            "committed_offset": 1000 * index,
            "committed_leader_epoch": 7 * index,
            "committed_metadata": "other" if index == different else "note",
        }
        for index in reversed(range(count))
    ]
    if again:
        partitions.insert(0, partitions[50] | {"committed_offset": 5})
    retention_ms = 60_000 if version < 5 else NO_EXPIRY_MS
    async with InProcessGateway(backend=backend) as gateway:
        topic = await create_topic(gateway, partitions=count)
        response = await call(
            gateway,
            ApiKey.OFFSET_COMMIT,
            version,
            group_id="group",
            retention_time_ms=retention_ms,
            topics=[{"name": "orders", "partitions": partitions}],
        )
        assert [(one["partition_index"], 0) for one in partitions] == [
            (one.partition_index, one.error_code) for one in response.topics[0].partitions
        ]
        clock = gateway.gateway.running_clock
        expected = {
            one["partition_index"]: CommittedOffset(
                one["committed_offset"],
                one["committed_leader_epoch"] if version >= 6 else -1,
                one["committed_metadata"],
                clock.running_ms(),
                retention_ms,
                clock.monotonic_s(),
            )
            for one in partitions
        }
    blocks, rows = [len(await backend.state.load(kind)) for kind in (OFFSET_BLOCK, GROUP_OFFSETS)]
    assert ((1, 0) if is_block else (0, 1 + count // 16)) == (blocks, rows)
    async with InProcessGateway(backend=backend, clock=gateway.clock) as gateway:
        table = gateway.groups.offsets("group")
        assert table is not None
        assert expected == table.topic(topic.topic_id).entries()


async def test_many_partitions_of_an_unknown_topic_or_member(gateway: InProcessGateway) -> None:
    """Every partition hears it, whether the topic or the group is the reason."""
    await create_topic(gateway, partitions=20)
    offsets = dict.fromkeys(range(20), 1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [unknown] * 20 == await commit(gateway, offsets, name="none")
    illegal = ErrorCode.ILLEGAL_GENERATION
    assert [illegal] * 20 == await commit(gateway, offsets, member_id="a", generation=3)
    assert 20 == gateway.metrics.answer_errors["OFFSET_COMMIT", illegal.name]
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    limit = gateway.config.offset_metadata_max_bytes
    assert [too_large] * 20 == await commit(gateway, offsets, metadata="x" * (limit + 1))


async def test_a_refused_group_has_no_topics(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others of the request are answered."""
    await create_topic(gateway)
    own = gateway.placement.ownerships[0]
    monkeypatch.setattr(OneProcess, "ownership", lambda _, key: None if key.key == "other" else own)
    topics = [{"name": "orders", "partition_indexes": [0]}]
    groups = [{"group_id": name, "topics": topics} for name in ("other", "group")]
    response = await call(gateway, ApiKey.OFFSET_FETCH, 8, groups=groups)
    assert [("other", ErrorCode.NOT_COORDINATOR, 0), ("group", ErrorCode.NONE, 1)] == [
        (one.group_id, one.error_code, len(one.topics)) for one in response.groups
    ]


async def delete(gateway: InProcessGateway, *indexes: int) -> Any:
    """Delete the offsets of some partitions of one topic."""
    topics = [{"name": "orders", "partitions": [{"partition_index": one} for one in indexes]}]
    return await call(gateway, ApiKey.OFFSET_DELETE, 0, group_id="group", topics=topics)


async def test_offset_delete(gateway: InProcessGateway) -> None:
    """Deleted ones are gone; unknown partitions and groups are errors of their own."""
    await create_topic(gateway, partitions=2)
    assert ErrorCode.GROUP_ID_NOT_FOUND == (await delete(gateway, 0)).error_code
    await commit(gateway, {0: 1, 1: 2})
    response = await delete(gateway, 0, 7)
    assert [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == [
        one.error_code for one in response.topics[0].partitions
    ]
    assert [-1, 2] == [one.committed_offset for one in await fetch(gateway, [0, 1])]
