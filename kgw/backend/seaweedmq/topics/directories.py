"""Makes, finds and removes the directories of topics and partitions.

Each creation of a topic makes a new version directory, which has the topic's id in its attributes.
A later topic with the same name has another id and another directory. Another attribute has a copy
of the topic's row in the state, from which lost settings can be restored. Listings include the
attributes, so a start finds outdated copies without further calls.
"""

from __future__ import annotations

from asyncio import Lock
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kgw.backend.seaweedmq.filer import (
    ConditionFailedError,
    EntryExistsError,
    EntryMissingError,
    FilerEntry,
    FilerError,
)
from kgw.backend.seaweedmq.topics.topic_conf import (
    TOPIC_CONF,
    facts_of_row,
    parse_partition_name,
    partition_name,
    topic_conf,
    topics_directory,
    version_name,
    with_record_type,
)
from kgw.errors import CorruptionError, ErrorCode, StorageError
from kgw.types import PartitionKey, TopicId, TopicName, format_uuid, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kgw.backend.seaweedmq.filer import Filer

_TOPIC_ID: Final = "kgw-topic-id"
_CREATED: Final = "kgw-created-s"
_ROW: Final = "kgw-topic-row"
_ATTEMPTS: Final = 100
"""The most seconds to try for the name of a version directory. Earlier seconds may be used by other
creations of the topic."""


class ReservedTopicError(StorageError):
    """SeaweedFS or kgw reserves the topic's name."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicPlace(NamedTuple):
    """The version directory of a topic, which has the directories of its partitions."""

    topic: TopicName
    parent: str
    """The topic's directory."""
    name: str
    """The name of the version directory."""
    created_s: int
    row: bytes = b""
    """The copy of the topic's row in the directory; b"" if there is no copy."""

    @property
    def directory(self) -> str:
        """The version directory."""
        return f"{self.parent}/{self.name}"

    def partition(self, partition: int) -> str:
        """Return a partition's directory."""
        return f"{self.directory}/{partition_name(partition)}"


class TopicDirectories:
    """The directories of a namespace, with a cache, because only this gateway changes them."""

    def __init__(self, filer: Filer, namespace: str) -> None:
        self._filer = filer
        self.root = topics_directory(namespace)
        """The namespace's directory."""
        self._places: dict[TopicId, list[TopicPlace]] = {}
        """Version directories by topic id. There are several if somebody has copied a directory."""
        self._doubled: set[TopicId] = set()
        """Topic ids with several directories. Their topics are listed again each time."""
        self._ids: dict[TopicName, set[TopicId]] = {}
        """The ids under which each topic has, or had, version directories."""
        self._latest_s: dict[TopicName, int] = {}
        """The time of the last known creation of each topic. No directory name is used twice, so
        that a late removal cannot remove a newer topic's directory."""
        self._listed: set[TopicName] = set()
        self._locks: dict[TopicName, Lock] = {}

    async def find(self, topic: TopicName, topic_id: TopicId) -> TopicPlace | None:
        """Return the version directory of a topic, None if there is none.

        A topic is listed only once, for all partitions. Raises CorruptionError if several
        directories have the topic's id, FilerError.
        """
        if topic not in self._listed:
            async with self._lock(topic):
                await self._list(topic)
        return self._of_topic(topic, topic_id)

    async def find_by_id(self, topic_id: TopicId) -> TopicPlace | None:
        """Return the version directory of a topic whose name is unknown. Raises as `find`."""
        places = [] if topic_id in self._doubled else self._places.get(topic_id)
        return self._only(topic_id, places or (await self.list_all()).get(topic_id, []))

    async def list_all(self, *, again: bool = False) -> dict[TopicId, list[TopicPlace]]:
        """Return all version directories, after listing uncached topics, or all with `again`.

        The caller reports directories that have the same id: see `twins`. Raises FilerError.
        """
        gone = set(self._listed) if again else set()
        async for entry in self._filer.list_entries(self.root, chunks=False):
            if entry.is_directory:
                topic = TopicName(entry.name)
                gone.discard(topic)
                async with self._lock(topic):
                    if again:
                        self._listed.discard(topic)
                    await self._list(topic)
        for topic in gone:
            self._forget_topic(topic)
        found = {topic_id: list(places) for topic_id, places in self._places.items()}
        self._doubled = {topic_id for topic_id, places in found.items() if len(places) > 1}
        for topic_id in self._doubled:
            self._look_again(topic_id, found[topic_id])
        return found

    async def create(self, topic: TopicName, topic_id: TopicId, now_ms: int) -> TopicPlace:
        """Return a topic's version directory, which is made if there is none.

        Raises ReservedTopicError, FilerError.
        """
        if topic.startswith("."):
            raise ReservedTopicError(
                f"topic {topic!r}: directories that begin with a dot are SeaweedFS's and kgw's own"
            )
        async with self._lock(topic):
            await self._list(topic)
            place = self._of_topic(topic, topic_id)
            if place is None:
                try:
                    place = await self._create(topic, topic_id, now_ms // 1000)
                except StorageError:
                    # The directory may have been made, so the next call lists the topic.
                    self._listed.discard(topic)
                    raise
                self._note(topic_id, place)
        return place

    async def _create(self, topic: TopicName, topic_id: TopicId, now_s: int) -> TopicPlace:
        parent = f"{self.root}/{topic}"
        # The directory is named after a second. If the name is used, take a later second.
        first_s = max(now_s, self._latest_s.get(topic, 0) + 1)
        for created_s in range(first_s, first_s + _ATTEMPTS):
            place = TopicPlace(topic, parent, version_name(created_s), created_s)
            try:
                await self._filer.create(parent, _entry(topic_id, place))
            except EntryExistsError:
                continue
            return place
        raise StorageError(f"topic {topic!r}: no name is free for its directory in {parent}")

    async def write_row(self, topic_id: TopicId, row: bytes) -> None:
        """Store a copy of a topic's row in its directory, unless the copy is up to date.

        A changed record type is first written for SMQ's tools. Raises FilerError.
        """
        places = self._places.get(topic_id, [])
        # If several directories have the id, it is unknown which one is the topic's.
        if len(places) != 1:
            return
        # The lock makes sure that filer and cache have the row that was written last, even with two
        # writers, or with a listing that was answered before the write.
        async with self._lock(places[0].topic):
            places = self._places.get(topic_id, [])
            if len(places) != 1 or places[0].row == row:
                return
            before, facts = facts_of_row(places[0].row), facts_of_row(row)
            old_type = None if before is None else before.record_type
            if facts is not None and facts.record_type != old_type:
                await self.write_record_type(places[0], facts.record_type)
            place = places[0]._replace(row=row)
            with suppress(EntryMissingError, ConditionFailedError):
                entry = _entry(topic_id, place)
                expected = {_TOPIC_ID: entry.extended[_TOPIC_ID]}
                await self._filer.update(place.parent, entry, expected)
                self._places[topic_id] = [place]

    async def partitions(self, place: TopicPlace) -> list[int]:
        """Return the partitions that have directories. Raises FilerError."""
        return [
            partition
            async for entry in self._filer.list_entries(place.directory, chunks=False)
            if entry.is_directory and (partition := parse_partition_name(entry.name)) is not None
        ]

    async def write_conf(
        self, place: TopicPlace, partitions: Iterable[int], record_type: Any = None
    ) -> None:
        """Write the topic's partitions for SMQ's tools. Raises FilerError."""
        content = topic_conf(partitions, place.created_s, record_type)
        await self._filer.put(place.parent, FilerEntry(TOPIC_CONF, content=content))

    async def write_record_type(self, place: TopicPlace, record_type: Any) -> None:
        """Write a topic's record type for SMQ's tools, if it has changed. Raises FilerError.

        A missing or unreadable `topic.conf` is not changed; `foreign_writes` reports it.
        """
        found = await self._filer.look_up(place.parent, TOPIC_CONF)
        if found is None:
            return
        try:
            content = with_record_type(found.content, record_type)
        except ValueError:
            return
        if content is not None:
            await self._filer.put(place.parent, FilerEntry(TOPIC_CONF, content=content))

    async def remove(self, key: PartitionKey) -> None:
        """Remove a partition with its files; with the last partition, remove the topic's directory.

        A missing partition is no error. Raises CorruptionError and removes nothing if several
        directories have the topic's id; FilerError.
        """
        place = await self.find_by_id(key.topic_id)
        if place is None:
            return
        entry = await self._filer.look_up(place.parent, place.name)
        found = None if entry is None else _read_place(place.topic, place.parent, entry)
        if found is None or found[0] != key.topic_id:
            # The topic's directory was removed, and a directory with this name belongs to another
            # topic.
            self._forget(key.topic_id, place)
            return
        await self._filer.delete(place.directory, partition_name(key.partition), is_recursive=True)
        async with self._lock(place.topic):
            if await self.partitions(place):
                return
            await self._filer.delete(place.parent, place.name, is_recursive=True)
            self._forget(key.topic_id, place)
            async for entry in self._filer.list_entries(place.parent, chunks=False):
                if entry.is_directory:
                    # Keep the directory: SMQ's broker or another topic with this name uses it.
                    return
            self._listed.discard(place.topic)
            await self._filer.delete(place.parent, TOPIC_CONF)
            with suppress(FilerError):
                # If a file was made in the directory meanwhile, the directory stays.
                await self._filer.delete(self.root, place.topic)

    async def _list(self, topic: TopicName) -> None:
        if topic in self._listed:
            return
        parent = f"{self.root}/{topic}"
        found = [
            place
            async for entry in self._filer.list_entries(parent, chunks=False)
            if (place := _read_place(topic, parent, entry)) is not None
        ]
        # Replace the cached entries only when the listing is complete.
        self._forget_topic(topic)
        for place in found:
            self._note(*place)
        self._listed.add(topic)

    def _note(self, topic_id: TopicId, place: TopicPlace) -> None:
        self._ids.setdefault(place.topic, set()).add(topic_id)
        places = self._places.setdefault(topic_id, [])
        if place not in places:
            places.append(place)
        latest_s = self._latest_s.get(place.topic, 0)
        self._latest_s[place.topic] = max(place.created_s, latest_s)

    def _forget(self, topic_id: TopicId, place: TopicPlace) -> None:
        # Compare only the directory, because its row may have been written since the listing.
        places = [one for one in self._places.pop(topic_id, []) if one.directory != place.directory]
        if places:
            self._places[topic_id] = places

    def _forget_topic(self, topic: TopicName) -> None:
        for topic_id in self._ids.pop(topic, ()):
            for place in self._places.get(topic_id, []):
                if place.topic == topic:
                    self._forget(topic_id, place)
        self._listed.discard(topic)

    def _look_again(self, topic_id: TopicId, places: list[TopicPlace]) -> None:
        """Let the next call list these topics again, in case an operator moves a copy away."""
        for place in places:
            self._forget(topic_id, place)
            self._listed.discard(place.topic)

    def _of_topic(self, topic: TopicName, topic_id: TopicId) -> TopicPlace | None:
        places = self._places.get(topic_id, [])
        return self._only(topic_id, [place for place in places if place.topic == topic])

    def _only(self, topic_id: TopicId, places: list[TopicPlace]) -> TopicPlace | None:
        if len(places) > 1:
            self._look_again(topic_id, places)
            raise CorruptionError(_twins(topic_id, places))
        return places[0] if places else None

    def _lock(self, topic: TopicName) -> Lock:
        return self._locks.setdefault(topic, Lock())


def twins(places: Mapping[TopicId, Sequence[TopicPlace]]) -> list[str]:
    """Return the problems of directories that have the same topic id."""
    return [_twins(topic_id, found) for topic_id, found in places.items() if len(found) > 1]


def _twins(topic_id: TopicId, places: Iterable[TopicPlace]) -> str:
    names = " and ".join(sorted(place.directory for place in places))
    return (
        f"{names} have one topic id, {format_uuid(topic_id)}: one is a copy; move it out of "
        "the namespace (fs.mv in weed shell)"
    )


def is_ours(version: FilerEntry) -> bool:
    """Return whether a kgw leads the partitions in a version directory, not SMQ's broker."""
    return _TOPIC_ID in version.extended


def _entry(topic_id: TopicId, place: TopicPlace) -> FilerEntry:
    """Return the entry of a version directory."""
    attributes = {
        _TOPIC_ID: format_uuid(topic_id).encode(),
        _CREATED: b"%d" % place.created_s,
    }
    if place.row:
        attributes[_ROW] = place.row
    return FilerEntry(place.name, is_directory=True, extended=attributes)


def _read_place(
    topic: TopicName, parent: str, entry: FilerEntry
) -> tuple[TopicId, TopicPlace] | None:
    """Return the topic id and directory of an entry; None if kgw did not make it."""
    try:
        topic_id = TopicId(parse_uuid(entry.extended[_TOPIC_ID].decode()))
        created_s = int(entry.extended[_CREATED])
    except (KeyError, ValueError):
        return None
    row = entry.extended.get(_ROW, b"")
    return topic_id, TopicPlace(topic, parent, entry.name, created_s, row)
