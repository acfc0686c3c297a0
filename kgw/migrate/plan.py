"""Plans: results of comparing the old ledger with the server's records, stored in a file."""

from __future__ import annotations

import hashlib
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict, cast

from kgw.client import GroupClient, WireReader
from kgw.migrate.errors import MigrationError
from kgw.migrate.mapping import Entries, PartitionMapping, Records
from kgw.migrate.native import Fingerprint, ends, read_fingerprints
from kgw.migrate.sealed_file import VERSION, read_sealed
from kgw.types import format_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from kgw.client import AsyncClient
    from kgw.migrate.sources import OldScheme, TopicPartition
    from kgw.types import TopicId

PLAN_FORMAT = "kgw-offset-migration"
_SAMPLES = 100
_MS = 1_000_000
"""Nanoseconds per millisecond: Kafka's protocol uses milliseconds, the ledger nanoseconds."""

Offsets: TypeAlias = "dict[TopicPartition, int | None]"
"""A group's committed or planned offsets by partition; None for no offset."""

Sample: TypeAlias = list[int]
"""A record's fingerprint as a list of its fields."""


class PlannedPartition(TypedDict):
    """A partition at the time of planning, and the results for its old offsets."""

    topic: str
    partition: int
    topic_id: str
    log_start_offset: int
    end_offset: int
    entries: int
    duplicates: int
    records: int
    sizes_count: bool
    classes: dict[str, int]
    """The number of entries, records and old offsets in each `MatchClass`."""
    digest: str
    samples: list[Sample]
    runs: list[list[Any]]
    """The fields of each `Run`, as lists."""


class AbsentPartition(TypedDict):
    """A partition that the server lacks, and the groups that had read it."""

    topic: str
    partition: int
    groups: list[str]


class PlannedGroup(TypedDict):
    """A group's new position in a partition; `next` is the record there, or None."""

    group: str
    topic: str
    partition: int
    old_offset: int
    offset: int
    certainty: str
    comes_again: int
    next: Sample | None


class MigrationPlan(TypedDict):
    """The content of a plan file."""

    format: str
    version: int
    created_ms: int
    cluster_id: str | None
    sources: dict[str, Any]
    damage: dict[str, Any]
    partitions: list[PlannedPartition]
    absent: list[AbsentPartition]
    groups: list[PlannedGroup]
    """Sorted by group, topic and partition."""


def read_plan(path: Path) -> MigrationPlan:
    """Read a plan from a file. Raises MigrationError."""
    return cast("MigrationPlan", read_sealed(path, PLAN_FORMAT))


def planned_offsets(plan: MigrationPlan) -> dict[str, Offsets]:
    """Return the planned offsets of each group."""
    return {
        group: {(one["topic"], one["partition"]): one["offset"] for one in partitions}
        for group, partitions in groupby(plan["groups"], key=lambda one: one["group"])
    }


class OffsetAndMetadata(NamedTuple):
    """A group's committed offset in a partition; None if there is none."""

    offset: int | None = None
    metadata: str = ""


async def read_committed(
    client: AsyncClient, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return a group's committed offsets in some partitions; a damaged offset counts as none."""
    found = await GroupClient(client).offsets(group)
    intact = {
        partition: OffsetAndMetadata(one.offset, one.metadata)
        for partition, one in found.items()
        if not one.is_damaged
    }
    return {partition: intact.get(partition, OffsetAndMetadata()) for partition in partitions}


async def open_topics(
    client: AsyncClient, plan: MigrationPlan
) -> tuple[dict[str, WireReader], list[str]]:
    """Return readers for a plan's topics, and problems, e.g. a deleted topic."""
    cluster = await client.cluster()
    if cluster.cluster_id != plan["cluster_id"]:
        return {}, [f"the plan is for cluster {plan['cluster_id']}, not {cluster.cluster_id}"]
    readers = {}
    problems = []
    for name, topic_id in sorted({(one["topic"], one["topic_id"]) for one in plan["partitions"]}):
        description = await client.find_topic(name)
        if description is None:
            problems.append(f"topic {name} is gone")
        elif format_uuid(description.topic_id) != topic_id:
            problems.append(f"topic {name} was created anew")
        else:
            readers[name] = WireReader(client, description)
    return readers, problems


class TargetPartition(NamedTuple):
    """A partition on the server when planning began."""

    topic: str
    partition: int
    topic_id: TopicId
    log_start_offset: int
    end_offset: int


class TargetPartitions(NamedTuple):
    """The partitions of the old scheme: the existing ones, and the ones that the server lacks."""

    cluster_id: str | None
    found: dict[TopicPartition, TargetPartition]
    """Sorted by topic and partition."""
    absent: list[AbsentPartition]
    readers: dict[str, WireReader]
    """Readers by topic."""


class FoundPartition(NamedTuple):
    """The results for one partition and the groups that had read it."""

    partition: PlannedPartition
    groups: list[PlannedGroup]


async def make_plan(
    client: AsyncClient,
    scheme: OldScheme,
    sources: dict[str, Any],
    created_ms: int,
    advance: Callable[[int], object],
) -> MigrationPlan:
    """Compare the old scheme with the server's partitions, and return the plan.

    `advance` is called with the number of finished partitions. Raises the errors of
    `find_target_partitions`.
    """
    places = await find_target_partitions(client, scheme)
    advance(len(places.absent))
    found = []
    for key, place in places.found.items():
        records = Records()
        async for one in read_fingerprints(
            places.readers[place.topic],
            place.partition,
            place.log_start_offset,
            place.end_offset,
        ):
            records.add(one.offset, one.timestamp_ms, one.size_bytes, one.crc)
        # Remove the entries of a finished partition, to free their memory.
        entries = scheme.entries.pop(key, Entries())
        found.append(plan_partition(place, entries, records, scheme.positions.get(key, {})))
        advance(1)
    return complete_plan(scheme, places, found, sources, created_ms)


async def find_target_partitions(client: AsyncClient, scheme: OldScheme) -> TargetPartitions:
    """Return the server's partitions that have the names of old ones.

    Raises ClientError, and MigrationError if the positions come from this same server.
    """
    cluster = await client.cluster()
    if scheme.cluster_id is not None and scheme.cluster_id == cluster.cluster_id:
        # The server's own offsets would be taken for old ones, and every group would move.
        raise MigrationError("--positions-bootstrap is the gateway itself, not the old one")
    places = TargetPartitions(cluster.cluster_id, {}, [], {})
    for topic, keys in groupby(scheme.partitions, key=lambda one: one[0]):
        description = await client.find_topic(topic)
        if description is not None:
            places.readers[topic] = WireReader(client, description)
        reader = places.readers.get(topic)
        for key in keys:
            partition = key[1]
            if reader is None or partition not in reader.partitions:
                groups = sorted(scheme.positions.get(key, {}))
                places.absent.append({"topic": topic, "partition": partition, "groups": groups})
            else:
                places.found[key] = TargetPartition(
                    *key, reader.topic_id, *await ends(reader, partition)
                )
    return places


def plan_partition(
    place: TargetPartition, entries: Entries, records: Records, positions: Mapping[str, int]
) -> FoundPartition:
    """Compute the results of one partition; record times must be in milliseconds."""
    mapping = PartitionMapping(entries, records, place.end_offset, precision_ns=_MS)
    classes: dict[str, int] = {}
    runs = []
    for run in mapping.runs():
        name = run.match_class.value
        classes[name] = classes.get(name, 0) + run.length
        runs.append([name, *run[1:]])
    step = max(1, len(records) // _SAMPLES)
    partition: PlannedPartition = {
        "topic": place.topic,
        "partition": place.partition,
        "topic_id": format_uuid(place.topic_id),
        "log_start_offset": place.log_start_offset,
        "end_offset": place.end_offset,
        "entries": len(entries),
        "duplicates": mapping.duplicates,
        "records": len(records),
        "sizes_count": mapping.sizes_count,
        "classes": classes,
        "digest": _digest_of(records),
        "samples": [list(_fingerprint(records, at)) for at in range(0, len(records), step)],
        "runs": runs,
    }
    groups: list[PlannedGroup] = []
    for group_id, old_offset in positions.items():
        position = mapping.position(old_offset)
        at = records.index_of(position.offset)
        groups.append(
            {
                "group": group_id,
                "topic": place.topic,
                "partition": place.partition,
                "old_offset": old_offset,
                "offset": position.offset,
                "certainty": position.certainty.value,
                "comes_again": position.comes_again,
                "next": list(_fingerprint(records, at)) if at < len(records) else None,
            }
        )
    return FoundPartition(partition, groups)


def complete_plan(
    scheme: OldScheme,
    places: TargetPartitions,
    found: Iterable[FoundPartition],
    sources: dict[str, Any],
    created_ms: int,
) -> MigrationPlan:
    """Return the plan for all partitions; `found` must be sorted by partition."""
    partitions: list[PlannedPartition] = []
    groups: list[PlannedGroup] = []
    for partition, moved in found:
        partitions.append(partition)
        groups += moved
    return {
        "format": PLAN_FORMAT,
        "version": VERSION,
        "created_ms": created_ms,
        "cluster_id": places.cluster_id,
        "sources": sources,
        "damage": {
            "count": scheme.damage_count,
            "first": [one._asdict() for one in scheme.damage],
        },
        "partitions": partitions,
        "absent": places.absent,
        "groups": sorted(groups, key=lambda one: (one["group"], one["topic"], one["partition"])),
    }


def _digest_of(records: Records) -> str:
    digest = hashlib.sha256()
    for at in range(len(records)):
        digest.update(_fingerprint(records, at).in_digest())
    return digest.hexdigest()


def _fingerprint(records: Records, at: int) -> Fingerprint:
    return Fingerprint(
        records.offsets[at],
        records.times[at],
        records.sizes_bytes[at],
        records.fingerprints[at],
    )
