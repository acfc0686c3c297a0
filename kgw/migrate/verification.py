"""Compares a server with a plan: groups' positions, and records."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from kgw.migrate.native import Fingerprint, ends, read_fingerprints
from kgw.migrate.plan import open_topics, planned_offsets, read_committed

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.client import AsyncClient, WireReader
    from kgw.migrate.plan import MigrationPlan, PlannedPartition

# Up to this many records between two samples are read, too, as a further fetch would cost more.
_STRETCH_OFFSETS = 1000


class Verification(NamedTuple):
    """The result of comparing a server with a plan.

    Records that retention has removed are not differences.
    """

    compared_records: int
    gone_records: int
    differences: list[str]


async def verify(
    client: AsyncClient, plan: MigrationPlan, *, is_all: bool, advance: Callable[[int], object]
) -> Verification:
    """Compare the server with a plan. Raises ClientError.

    Compares groups' positions, the record at each position, and up to two hundred records of each
    partition; with `is_all`, all records. `advance` is called with the number of finished
    partitions.
    """
    readers, differences = await open_topics(client, plan)
    if differences:
        return Verification(0, 0, differences)
    for group, planned in planned_offsets(plan).items():
        committed = await read_committed(client, group, planned)
        for (topic, partition), offset in planned.items():
            now = committed[topic, partition].offset
            if now != offset:
                differences.append(
                    f"group {group}, {topic} partition {partition}: "
                    f"committed {'nothing' if now is None else now}, planned {offset}"
                )
    compared = gone = 0
    for planned_one in plan["partitions"]:
        number, reader = planned_one["partition"], readers[planned_one["topic"]]
        start, end = await ends(reader, number)
        if end < planned_one["end_offset"]:
            # Report this too: the samples may all be before the missing records.
            differences.append(
                f"{planned_one['topic']} partition {number}: ends at {end} now, at "
                f"{planned_one['end_offset']} then"
            )
        if is_all:
            compared += planned_one["records"]
            differences += await _compare_all(reader, planned_one)
        else:
            samples = _samples(plan, planned_one)
            kept = [sample for sample in samples if sample.offset >= start]
            compared += len(kept)
            gone += len(samples) - len(kept)
            for stretch in _stretches(kept):
                differences += await _compare(reader, number, stretch)
        advance(1)
    return Verification(compared, gone, differences)


def _samples(plan: MigrationPlan, one: PlannedPartition) -> list[Fingerprint]:
    """Return the records of a partition that are in the plan, sorted."""
    place = (one["topic"], one["partition"])
    return sorted(
        {Fingerprint(*sample) for sample in one["samples"]}
        | {
            Fingerprint(*group["next"])
            for group in plan["groups"]
            if (group["topic"], group["partition"]) == place and group["next"]
        }
    )


def _stretches(samples: list[Fingerprint]) -> list[list[Fingerprint]]:
    """Divide samples into groups that are read in one fetch each."""
    found: list[list[Fingerprint]] = []
    for one in samples:
        if found and one.offset - found[-1][-1].offset <= _STRETCH_OFFSETS:
            found[-1].append(one)
        else:
            found.append([one])
    return found


async def _compare(reader: WireReader, partition: int, samples: list[Fingerprint]) -> list[str]:
    wanted = {one.offset: one for one in samples}
    start, stop = samples[0].offset, samples[-1].offset + 1
    async for one in read_fingerprints(reader, partition, start, stop):
        if one == wanted.get(one.offset):
            del wanted[one.offset]
    return [
        f"{reader.topic} partition {partition}: the record at {offset} differs" for offset in wanted
    ]


async def _compare_all(reader: WireReader, one: PlannedPartition) -> list[str]:
    digest = hashlib.sha256()
    count = 0
    async for record in read_fingerprints(
        reader, one["partition"], one["log_start_offset"], one["end_offset"]
    ):
        digest.update(record.in_digest())
        count += 1
    if (count, digest.hexdigest()) == (one["records"], one["digest"]):
        return []
    what = f"{one['topic']} partition {one['partition']}"
    return [f"{what}: not the records of the plan ({count} now, {one['records']} then)"]
