"""The directories of topics and partitions: made, found by topic id, removed.

Each creation of a topic has a version directory of its own, made exclusively, with the topic's id
among its attributes. It is found by listing; a namesake has another id and so other directories.

Another attribute of it is the topic's row as the state has it, so that the files alone tell a
topic's settings. The listing brings it, so that a start sees without a call which ones are old.
"""

from __future__ import annotations

from asyncio import Lock
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.filer import (
    ConditionFailedError,
    Entry,
    EntryExistsError,
    EntryMissingError,
    FilerError,
)
from kgw.backend.seaweedmq.topic_conf import (
    TOPIC_CONF,
    parse_partition_name,
    partition_name,
    topic_conf,
    topics_directory,
    version_name,
)
from kgw.errors import ErrorCode, StorageError
from kgw.types import PartitionKey, TopicId, TopicName, format_uuid, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.backend.seaweedmq.filer import Filer

_TOPIC_ID: Final = "kgw-topic-id"
_CREATED: Final = "kgw-created-s"
_ROW: Final = "kgw-topic-row"
_ATTEMPTS: Final = 100
"""Seconds that a name is looked for in: other creations of the same topic have taken the others."""


class ReservedTopicError(StorageError):
    """A topic's name is one that SeaweedFS or kgw uses for something else."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicPlace(NamedTuple):
    """Where one creation of a topic has its partitions."""

    topic: TopicName
    parent: str
    """The topic's directory."""
    name: str
    """Of the version directory."""
    created_s: int
    row: bytes = b""
    """The topic's row, as it was last written here; b"" when it never was."""

    @property
    def directory(self) -> str:
        """The version directory."""
        return f"{self.parent}/{self.name}"

    def partition(self, partition: int) -> str:
        """Return a partition's directory."""
        return f"{self.directory}/{partition_name(partition)}"


class TopicDirectories:
    """The directories below a namespace. What was found is remembered: nobody else moves them."""

    def __init__(self, filer: Filer, namespace: str) -> None:
        self._filer = filer
        self._root = topics_directory(namespace)
        self._places: dict[TopicId, TopicPlace] = {}
        self._listed: set[TopicName] = set()
        self._locks: dict[TopicName, Lock] = {}

    async def find(self, topic: TopicName, topic_id: TopicId) -> TopicPlace | None:
        """Return where a topic's partitions are, or None. Raises FilerError.

        A topic that has not been listed yet is: once for all of its partitions.
        """
        if topic_id not in self._places and topic not in self._listed:
            async with self._lock(topic):
                await self._list(topic)
        return self._places.get(topic_id)

    async def find_by_id(self, topic_id: TopicId) -> TopicPlace | None:
        """Return where the partitions of a topic are whose name nobody knows. Raises FilerError."""
        if topic_id not in self._places:
            await self.list_all()
        return self._places.get(topic_id)

    async def list_all(self) -> dict[TopicId, TopicPlace]:
        """Return every place, after listing the topics that have not been listed yet."""
        async for entry in self._filer.list_entries(self._root, chunks=False):
            if entry.is_directory:
                await self._list(TopicName(entry.name))
        return dict(self._places)

    async def create(self, topic: TopicName, topic_id: TopicId, now_ms: int) -> TopicPlace:
        """Return a topic's place, which is made where there is none.

        Raises ReservedTopicError, FilerError.
        """
        if topic.startswith("."):
            raise ReservedTopicError(
                f"topic {topic!r}: directories that begin with a dot are SeaweedFS's and kgw's own"
            )
        async with self._lock(topic):
            await self._list(topic)
            place = self._places.get(topic_id)
            if place is None:
                try:
                    place = await self._create(topic, topic_id, now_ms // 1000)
                except StorageError:
                    # It may be there all the same: whoever asks next looks.
                    self._listed.discard(topic)
                    raise
                self._places[topic_id] = place
        return place

    async def _create(self, topic: TopicName, topic_id: TopicId, now_s: int) -> TopicPlace:
        parent = f"{self._root}/{topic}"
        # SMQ names the directory by the second: a later one when that is taken.
        for created_s in range(now_s, now_s + _ATTEMPTS):
            place = TopicPlace(topic, parent, version_name(created_s), created_s)
            try:
                await self._filer.create(parent, _entry(topic_id, place))
            except EntryExistsError:
                continue
            return place
        raise StorageError(f"topic {topic!r}: no name is free for its directory in {parent}")

    async def write_row(self, topic_id: TopicId, row: bytes) -> None:
        """Keep a topic's row with its directory, unless it is there or the topic is gone.

        Raises FilerError.
        """
        place = self._places.get(topic_id)
        if place is None or place.row == row:
            return
        place = place._replace(row=row)
        with suppress(EntryMissingError, ConditionFailedError):
            entry = _entry(topic_id, place)
            expected = {_TOPIC_ID: entry.extended[_TOPIC_ID]}
            await self._filer.update(place.parent, entry, expected)
            if topic_id in self._places:
                self._places[topic_id] = place

    async def partitions(self, place: TopicPlace) -> list[int]:
        """Return the partitions that have directories. Raises FilerError."""
        return [
            partition
            async for entry in self._filer.list_entries(place.directory, chunks=False)
            if entry.is_directory and (partition := parse_partition_name(entry.name)) is not None
        ]

    async def write_conf(self, place: TopicPlace, partitions: Iterable[int]) -> None:
        """Tell SMQ's tools which partitions there are. Raises FilerError."""
        content = topic_conf(partitions, place.created_s)
        await self._filer.put(place.parent, Entry(TOPIC_CONF, content=content))

    async def remove(self, key: PartitionKey) -> None:
        """Remove a partition with its files, and its topic's directory with the last one.

        What is not there is no error. Raises FilerError.
        """
        place = await self.find_by_id(key.topic_id)
        if place is None:
            return
        await self._filer.delete(place.directory, partition_name(key.partition), is_recursive=True)
        async with self._lock(place.topic):
            if await self.partitions(place):
                return
            self._places.pop(key.topic_id, None)
            await self._filer.delete(place.parent, place.name, is_recursive=True)
            async for entry in self._filer.list_entries(place.parent, chunks=False):
                if entry.is_directory:
                    # A namesake's, or one of SMQ's broker: what is left is theirs.
                    return
            self._listed.discard(place.topic)
            await self._filer.delete(place.parent, TOPIC_CONF)
            with suppress(FilerError):
                # Somebody has made something in it since: it stays.
                await self._filer.delete(self._root, place.topic)

    async def _list(self, topic: TopicName) -> None:
        if topic in self._listed:
            return
        parent = f"{self._root}/{topic}"
        async for entry in self._filer.list_entries(parent, chunks=False):
            found = _read_place(topic, parent, entry)
            if found is not None:
                topic_id, place = found
                self._places[topic_id] = place
        self._listed.add(topic)

    def _lock(self, topic: TopicName) -> Lock:
        return self._locks.setdefault(topic, Lock())


def is_ours(version: Entry) -> bool:
    """Whether some kgw leads what is in a version directory, rather than SMQ's broker."""
    return _TOPIC_ID in version.extended


def _entry(topic_id: TopicId, place: TopicPlace) -> Entry:
    """Return what is to be there of a version directory."""
    attributes = {
        _TOPIC_ID: format_uuid(topic_id).encode(),
        _CREATED: b"%d" % place.created_s,
    }
    if place.row:
        attributes[_ROW] = place.row
    return Entry(place.name, is_directory=True, extended=attributes)


def _read_place(topic: TopicName, parent: str, entry: Entry) -> tuple[TopicId, TopicPlace] | None:
    """Return what a version directory of ours says; None of all others."""
    try:
        topic_id = TopicId(parse_uuid(entry.extended[_TOPIC_ID].decode()))
        created_s = int(entry.extended[_CREATED])
    except (KeyError, ValueError):
        return None
    row = entry.extended.get(_ROW, b"")
    return topic_id, TopicPlace(topic, parent, entry.name, created_s, row)
