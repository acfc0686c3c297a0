"""Plans of `kgw migrate offsets`: made from the old scheme and the gateway, kept in a file."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.client import ServerRefusedError, WireReader
from kgw.errors import ErrorCode, KgwError
from kgw.migrate.errors import MigrationError
from kgw.migrate.mapping import Entries, PartitionMapping, Records
from kgw.migrate.sources import subscribe
from kgw.records.crc import crc32c
from kgw.types import format_uuid

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from kgw.client import AsyncClient, TopicDescription
    from kgw.migrate.sources import OldScheme, Place
    from kgw.offsets.reader import RecordReader
    from kgw.records.record import Record

PLAN_FORMAT = "kgw-offset-migration"
STATE_FORMAT = "kgw-offset-migration-state"
_VERSION = 1
_SAMPLES = 100
_MS = 1_000_000
"""Kafka's wire has milliseconds; the ledger has nanoseconds."""


class Fingerprint(NamedTuple):
    """What a record is recognised by."""

    offset: int
    timestamp_ms: int
    size_bytes: int
    crc: int


class NativePartition(NamedTuple):
    """The ends of a partition as the gateway has them now."""

    topic_id: str
    log_start_offset: int
    end_offset: int


# Records


def fingerprint(record: Record) -> Fingerprint:
    """Return what a record is recognised by."""
    return Fingerprint(
        record.offset,
        record.timestamp_ms,
        len(record.value or b""),
        crc32c(record.value or b"", crc32c(record.key or b"")),
    )


def digest_of(one: Fingerprint) -> bytes:
    """Return what a record adds to the digest of its partition."""
    return b"%d,%d,%d,%d;" % one


async def native_partition(reader: WireReader, partition: int) -> NativePartition:
    """Ask for the ends of a partition. Raises KgwError."""
    bounds = (await reader.bounds([partition]))[partition]
    if isinstance(bounds, KgwError):
        raise bounds
    return NativePartition(format_uuid(reader.topic_id), bounds.earliest, bounds.latest)


async def fingerprints(
    reader: RecordReader, partition: int, start: int, stop: int
) -> AsyncGenerator[Fingerprint]:
    """Yield what the records from one offset up to another are recognised by. Raises KgwError."""
    subscription = await subscribe(reader, {partition: (start, stop)})
    async for _, record, _ in subscription.records():
        yield fingerprint(record)


# Planning


async def make_plan(
    client: AsyncClient,
    scheme: OldScheme,
    sources: dict[str, Any],
    created_ms: int,
    advance: Callable[[int], object],
) -> dict[str, Any]:
    """Compare the old scheme with the gateway's partitions and return the plan.

    `advance` is called with the number of partitions done. Raises ClientError.
    """
    cluster = await client.cluster()
    positions: dict[Place, list[tuple[str, int]]] = {}
    for group_id, topic, partition, old_offset in scheme.positions:
        positions.setdefault((topic, partition), []).append((group_id, old_offset))
    partitions: list[dict[str, Any]] = []
    groups: list[dict[str, Any]] = []
    absent: list[dict[str, Any]] = []
    descriptions: dict[str, TopicDescription | None] = {}
    for topic, partition in sorted({*scheme.entries, *positions}):
        place = {"topic": topic, "partition": partition}
        if topic not in descriptions:
            descriptions[topic] = await _topic(client, topic)
        description = descriptions[topic]
        wanted = positions.get((topic, partition), [])
        if description is None or partition >= len(description.partitions):
            absent.append({**place, "groups": [group_id for group_id, _ in wanted]})
        else:
            reader = WireReader(client, description)
            entries = scheme.entries.pop((topic, partition), Entries())
            found, moved = await _plan_partition(reader, partition, entries, wanted)
            partitions.append(found)
            groups += moved
        advance(1)
    return {
        "format": PLAN_FORMAT,
        "version": _VERSION,
        "created_ms": created_ms,
        "cluster_id": cluster.cluster_id,
        "sources": sources,
        "damage": {
            "count": scheme.damage_count,
            "first": [one._asdict() for one in scheme.damage],
        },
        "partitions": partitions,
        "absent": absent,
        "groups": sorted(groups, key=lambda one: (one["group"], one["topic"], one["partition"])),
    }


async def _topic(client: AsyncClient, name: str) -> TopicDescription | None:
    try:
        return await client.topic(name)
    except ServerRefusedError as error:
        if error.code in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION}:
            return None
        raise


async def _plan_partition(
    reader: WireReader,
    partition: int,
    entries: Entries,
    positions: list[tuple[str, int]],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    place = {"topic": reader.topic, "partition": partition}
    native = await native_partition(reader, partition)
    records = Records()
    digest = hashlib.sha256()
    async for one in fingerprints(reader, partition, native.log_start_offset, native.end_offset):
        records.add(one.offset, one.timestamp_ms * _MS, one.size_bytes, one.crc)
        digest.update(digest_of(one))
    mapping = PartitionMapping(entries, records, native.end_offset, precision_ns=_MS)
    classes: dict[str, int] = {}
    runs = []
    for run in mapping.runs():
        name = run.match_class.value
        classes[name] = classes.get(name, 0) + run.length
        runs.append([name, *run[1:]])
    step = max(1, len(records) // _SAMPLES)
    found = {
        **place,
        **native._asdict(),
        "entries": len(entries),
        "duplicates": mapping.duplicates,
        "records": len(records),
        "sizes_count": mapping.sizes_count,
        "classes": classes,
        "digest": digest.hexdigest(),
        "samples": [_sample(records, at) for at in range(0, len(records), step)],
        "runs": runs,
    }
    groups = []
    for group_id, old_offset in positions:
        moved = mapping.position(old_offset)
        at = records.index_of(moved.offset)
        groups.append(
            {
                "group": group_id,
                **place,
                "old_offset": old_offset,
                "offset": moved.offset,
                "certainty": moved.certainty.value,
                "comes_again": moved.comes_again,
                "next": _sample(records, at) if at < len(records) else None,
            }
        )
    return found, groups


def _sample(records: Records, at: int) -> list[int]:
    return [
        records.offsets[at],
        records.times_ns[at] // _MS,
        records.sizes_bytes[at],
        records.fingerprints[at],
    ]


# Files


def write_sealed(path: Path, document: dict[str, Any]) -> None:
    """Write a document with its checksum, all or nothing, durable on return.

    Raises MigrationError.
    """
    content = json.dumps({**document, "checksum": _checksum(document)}, indent=1) + "\n"
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise MigrationError(f"{path}: {error.strerror}") from None


def read_sealed(path: Path, expected_format: str) -> dict[str, Any]:
    """Return a document. Raises MigrationError: unreadable, another format or version, changed."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise MigrationError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise MigrationError(f"{path}: not JSON") from None
    if not isinstance(document, dict) or document.get("format") != expected_format:
        raise MigrationError(f"{path}: not a file of format {expected_format}")
    if document.get("version") != _VERSION:
        raise MigrationError(
            f"{path}: version {document.get('version')}; this program knows {_VERSION}"
        )
    checksum = document.pop("checksum", None)
    if checksum != _checksum(document):
        raise MigrationError(f"{path}: its checksum does not match: it was changed or damaged")
    return document


def _checksum(document: dict[str, Any]) -> str:
    content = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(content.encode()).hexdigest()


def plan_name(plan: dict[str, Any]) -> str:
    """Return what a state file knows its plan by."""
    return _checksum(plan)
