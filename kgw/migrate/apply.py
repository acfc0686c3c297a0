"""What `kgw migrate offsets` does with a plan: apply it, verify it, take it back.

Beside a plan stands its state: what every group had committed before the first change, and which
groups are done. It is written before anything is committed, so that an interrupted run can be
repeated or taken back. A group is looked at before it is touched: what is neither as it was before
nor as the plan says has moved on, and is left alone.
"""

from __future__ import annotations

import asyncio
import hashlib
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.client import GroupClient, ServerRefusedError, WireReader
from kgw.errors import ErrorCode
from kgw.migrate.errors import MigrationError
from kgw.migrate.plan import (
    STATE_FORMAT,
    Fingerprint,
    digest_of,
    fingerprints,
    native_partition,
    plan_name,
    read_sealed,
    write_sealed,
)
from kgw.types import NO_OFFSET, format_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from kgw.client import AsyncClient
    from kgw.migrate.sources import Place

_STATE_VERSION = 1
_PROBLEMS_SHOWN = 5
# Records between two samples cost less than a look-up of their own.
_STRETCH_OFFSETS = 1000


class GroupMove(NamedTuple):
    """What a run does, or would do, with a group; `obstacle` says why it does nothing."""

    group: str
    before: dict[Place, int | None]
    after: dict[Place, int | None]
    obstacle: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "obstacle": self.obstacle,
            "offsets": [
                {
                    "topic": topic,
                    "partition": partition,
                    "before": self.before[topic, partition],
                    "after": after,
                }
                for (topic, partition), after in self.after.items()
            ],
        }


class State:
    """What groups had committed before, and which of them are done."""

    def __init__(self, path: Path, plan: dict[str, Any]) -> None:
        """Read the state of a plan, if it has one. Raises MigrationError as files do."""
        self.path = path.with_name(path.name + ".state")
        self._plan_name = plan_name(plan)
        self.exists = self.path.exists()
        self.before: dict[str, dict[Place, tuple[int | None, str]]] = {}
        self.applied: set[str] = set()
        if not self.exists:
            return
        document = read_sealed(self.path, STATE_FORMAT)
        if document["plan"] != self._plan_name:
            raise MigrationError(f"{self.path} belongs to another plan; take that one back first")
        self.applied.update(document["applied"])
        for group, topic, partition, offset, metadata in document["before"]:
            self.before.setdefault(group, {})[topic, partition] = (offset, metadata)

    def save(self) -> None:
        """Make it durable. Raises MigrationError."""
        write_sealed(
            self.path,
            {
                "format": STATE_FORMAT,
                "version": _STATE_VERSION,
                "plan": self._plan_name,
                "applied": sorted(self.applied),
                "before": [
                    [group, *place, *stood]
                    for group, places in self.before.items()
                    for place, stood in places.items()
                ],
            },
        )
        self.exists = True

    def remove(self) -> None:
        """Forget: everything is as it was."""
        self.path.unlink()


async def apply_plan(
    client: AsyncClient,
    plan: dict[str, Any],
    state: State,
    *,
    execute: bool,
    allow_new_records: bool,
    advance: Callable[[int], object],
) -> list[GroupMove]:
    """Commit what the plan says, group by group, and return what was done, or would be.

    Raises MigrationError where the gateway is not as it was when the plan was made, ClientError.
    """
    targets = _targets(plan)
    _refuse(
        await changed_topics(client, plan)
        or await _changed_ranges(client, plan, allow_new_records=allow_new_records)
    )
    moves = []
    for group, after in targets.items():
        stands = await _standing(client, group, after)
        now = {place: offset for place, (offset, _) in stands.items()}
        known = state.before.get(group, stands)
        obstacle = None
        if now != after:
            before = {place: offset for place, (offset, _) in known.items()}
            if group in state.applied:
                obstacle = "it was applied earlier and has moved on since"
            else:
                obstacle = await _members(client, group) or _moved(now, before, after)
        if not obstacle:
            state.before[group] = known
        moves.append(GroupMove(group, now, after, obstacle))
    if execute:
        # Before anything changes: what cannot be taken back is not begun.
        await asyncio.to_thread(state.save)
        try:
            for one in moves:
                if not one.obstacle:
                    await _commit(client, one, {})
                    state.applied.add(one.group)
                advance(1)
        finally:
            # Once: where a kill loses it, what is committed shows which groups are done.
            await asyncio.to_thread(state.save)
    return moves


async def roll_back(
    client: AsyncClient,
    plan: dict[str, Any],
    state: State,
    *,
    execute: bool,
    force: bool,
    advance: Callable[[int], object],
) -> list[GroupMove]:
    """Give the groups back what they had before the plan, and return what was done, or would be.

    A group that is neither as planned nor as before is left alone unless forced; one with members
    always. The state is kept as long as anything is left to do. Raises MigrationError, ClientError.
    """
    if not state.exists:
        raise MigrationError(f"there is nothing to take back: {state.path} does not exist")
    _refuse(await changed_topics(client, plan))
    moves = []
    for group, planned in _targets(plan).items():
        if group not in state.before:
            continue
        stands = await _standing(client, group, planned)
        now = {place: offset for place, (offset, _) in stands.items()}
        after = {place: offset for place, (offset, _) in state.before[group].items()}
        obstacle = None
        if now != after:
            obstacle = await _members(client, group)
            if obstacle is None and not force:
                obstacle = _moved(now, planned, after)
        moves.append(GroupMove(group, now, after, obstacle))
    if execute:
        for one in moves:
            if not one.obstacle:
                stood = state.before[one.group]
                metadata = {place: text for place, (_, text) in stood.items()}
                await _commit(client, one, metadata)
            advance(1)
        if not any(one.obstacle for one in moves):
            await asyncio.to_thread(state.remove)
    return moves


class Verification(NamedTuple):
    """What a comparison found; what retention has taken since the plan is no difference."""

    compared_records: int
    gone_records: int
    differences: list[str]


async def verify(
    client: AsyncClient, plan: dict[str, Any], *, is_all: bool, advance: Callable[[int], object]
) -> Verification:
    """Compare the gateway with a plan.

    Compared are positions of groups, the record at each position and up to two hundred of each
    partition, or all of them. `advance` is called with the number of partitions done.
    """
    differences = await changed_topics(client, plan)
    if differences:
        return Verification(0, 0, differences)
    for group, planned in _targets(plan).items():
        stands = await _standing(client, group, planned)
        for (topic, partition), offset in planned.items():
            found, _ = stands[topic, partition]
            if found != offset:
                differences.append(
                    f"group {group}, {topic} partition {partition}: "
                    f"committed {'nothing' if found is None else found}, planned {offset}"
                )
    compared = gone = 0
    for one in plan["partitions"]:
        reader = WireReader(client, await client.topic(one["topic"]))
        if is_all:
            compared += one["records"]
            differences += await _compare_all(reader, one)
        else:
            samples = _samples(plan, one)
            start = (await native_partition(reader, one["partition"])).log_start_offset
            kept = [sample for sample in samples if sample.offset >= start]
            compared += len(kept)
            gone += len(samples) - len(kept)
            for stretch in _stretches(kept):
                differences += await _compare(reader, one["partition"], stretch)
        advance(1)
    return Verification(compared, gone, differences)


async def changed_topics(client: AsyncClient, plan: dict[str, Any]) -> list[str]:
    """Return what is not the cluster, or not a topic, that a plan was made for."""
    cluster = await client.cluster()
    if cluster.cluster_id != plan["cluster_id"]:
        return [f"the plan is for cluster {plan['cluster_id']}, not {cluster.cluster_id}"]
    problems = []
    for name, topic_id in sorted({(one["topic"], one["topic_id"]) for one in plan["partitions"]}):
        try:
            description = await client.topic(name)
        except ServerRefusedError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            problems.append(f"topic {name} is gone")
        else:
            if format_uuid(description.topic_id) != topic_id:
                problems.append(f"topic {name} was created anew")
    return problems


async def _changed_ranges(
    client: AsyncClient, plan: dict[str, Any], *, allow_new_records: bool
) -> list[str]:
    """Return where partitions end, or begin, otherwise than the plan can stand."""
    problems = []
    for one in plan["partitions"]:
        what = f"{one['topic']} partition {one['partition']}"
        reader = WireReader(client, await client.topic(one["topic"]))
        now = await native_partition(reader, one["partition"])
        if now.end_offset < one["end_offset"]:
            problems.append(f"{what} ends at {now.end_offset}, before {one['end_offset']}")
        elif now.end_offset > one["end_offset"] and not allow_new_records:
            new = now.end_offset - one["end_offset"]
            problems.append(f"{what} has {new} new records (see --allow-new-records)")
        passed = [
            group["group"]
            for group in plan["groups"]
            if (group["topic"], group["partition"]) == (one["topic"], one["partition"])
            and group["offset"] < now.log_start_offset
        ]
        if passed:
            problems.append(
                f"{what} begins at {now.log_start_offset} now, behind where "
                f"{', '.join(passed)} would go on"
            )
    return problems


def _refuse(problems: list[str]) -> None:
    if problems:
        more = len(problems) - _PROBLEMS_SHOWN
        listed = "; ".join(problems[:_PROBLEMS_SHOWN]) + (f"; {more} more" if more > 0 else "")
        raise MigrationError(f"nothing was changed: {listed}")


def _targets(plan: dict[str, Any]) -> dict[str, dict[Place, int | None]]:
    return {
        group: {(one["topic"], one["partition"]): one["offset"] for one in places}
        for group, places in groupby(plan["groups"], key=lambda one: str(one["group"]))
    }


async def _standing(
    client: AsyncClient, group: str, places: Iterable[Place]
) -> dict[Place, tuple[int | None, str]]:
    """Return what a group has committed for some partitions; None where it has nothing."""
    committed = await GroupClient(client).offsets(group)
    found: dict[Place, tuple[int | None, str]] = {}
    for place in places:
        one = committed.get(place)
        if one is None or one.offset == NO_OFFSET:
            found[place] = (None, "")
        else:
            found[place] = (one.offset, one.metadata)
    return found


async def _members(client: AsyncClient, group: str) -> str | None:
    try:
        details = await GroupClient(client).describe(group)
    except ServerRefusedError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    return "it has members; stop them first" if details.members else None


def _moved(
    now: dict[Place, int | None], left: dict[Place, int | None], right: dict[Place, int | None]
) -> str | None:
    """Say where a group stands elsewhere than in either of two places."""
    for (topic, partition), offset in now.items():
        if offset not in {left[topic, partition], right[topic, partition]}:
            return f"it has moved on: {topic} partition {partition} is at {offset}"
    return None


async def _commit(client: AsyncClient, one: GroupMove, metadata: dict[Place, str]) -> None:
    groups = GroupClient(client)
    changed = [place for place, offset in one.after.items() if offset != one.before[place]]
    offsets = {place: one.after[place] for place in changed}
    await groups.commit(
        one.group,
        {place: offset for place, offset in offsets.items() if offset is not None},
        metadata,
    )
    await groups.delete_offsets(
        one.group,
        [place for place, offset in offsets.items() if offset is None],
    )


def _samples(plan: dict[str, Any], one: dict[str, Any]) -> list[Fingerprint]:
    """Return those of a partition's records that the plan tells, in order."""
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
    """Part samples into those that are near enough to be read in one go."""
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
    async for one in fingerprints(reader, partition, start, stop):
        if one == wanted.get(one.offset):
            del wanted[one.offset]
    return [
        f"{reader.topic} partition {partition}: the record at {offset} differs" for offset in wanted
    ]


async def _compare_all(reader: WireReader, one: dict[str, Any]) -> list[str]:
    digest = hashlib.sha256()
    count = 0
    async for record in fingerprints(
        reader, one["partition"], one["log_start_offset"], one["end_offset"]
    ):
        digest.update(digest_of(record))
        count += 1
    if (count, digest.hexdigest()) == (one["records"], one["digest"]):
        return []
    what = f"{one['topic']} partition {one['partition']}"
    return [f"{what}: not the records of the plan ({count} now, {one['records']} then)"]
