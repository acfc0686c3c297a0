"""Commits the planned offsets of groups, and rolls them back.

A plan has a state file next to it: the offsets that all groups had before the first change, and
which groups are done for which topics, as a run may apply a part of the plan. It is written before
any commit, so that an interrupted run can be repeated or rolled back. Before each change the group
is checked: if its offsets are neither the old nor the planned ones, it has continued by itself and
is not changed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kgw.client import GroupClient
from kgw.migrate.errors import MigrationError
from kgw.migrate.native import ends
from kgw.migrate.plan import OffsetAndMetadata, open_topics, planned_offsets, read_committed
from kgw.migrate.sealed_file import VERSION, checksum_of, read_sealed, write_sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from kgw.client import AsyncClient, WireReader
    from kgw.migrate.plan import MigrationPlan, Offsets
    from kgw.migrate.sources import TopicPartition

STATE_FORMAT = "kgw-offset-migration-state"
_PROBLEMS_SHOWN = 5


class GroupMove(NamedTuple):
    """The change of one group in a run; if `obstacle` is set, it is the reason for no change."""

    group: str
    before: Offsets
    after: Offsets
    obstacle: str | None


class MoveState:
    """The offsets that groups had before a plan, and which groups are done."""

    def __init__(self, plan_path: Path, plan: MigrationPlan) -> None:
        """Read the state file of a plan, if it exists.

        Raises MigrationError for an unreadable file.
        """
        self.path = plan_path.with_name(plan_path.name + ".state")
        self.exists = self.path.exists()
        self.before: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self.applied: set[tuple[str, str]] = set()
        """The groups that are done, as pairs of group and topic."""
        self._plan_checksum = checksum_of(plan)
        if not self.exists:
            return
        document = read_sealed(self.path, STATE_FORMAT)
        if document["plan"] != self._plan_checksum:
            raise MigrationError(f"{self.path} belongs to another plan; take that one back first")
        for one in document["applied"]:
            # An earlier version stored only the group, as it applied all topics of a group.
            if isinstance(one, str):
                places = planned_offsets(plan).get(one, {})
                self.applied.update((one, topic) for topic, _ in places)
            else:
                self.applied.add((one[0], one[1]))
        for group, topic, partition, *committed in document["before"]:
            self.before.setdefault(group, {})[topic, partition] = OffsetAndMetadata(*committed)

    def save(self) -> None:
        """Write the state durably. Raises MigrationError."""
        write_sealed(
            self.path,
            {
                "format": STATE_FORMAT,
                "version": VERSION,
                "plan": self._plan_checksum,
                "applied": [list(one) for one in sorted(self.applied)],
                "before": [
                    [group, *partition, *committed]
                    for group, partitions in self.before.items()
                    for partition, committed in partitions.items()
                ],
            },
        )

    def forget(self, group: str, places: Iterable[TopicPartition]) -> None:
        """Forget partitions whose offsets were rolled back."""
        for topic, partition in places:
            self.before[group].pop((topic, partition), None)
            self.applied.discard((group, topic))
        if not self.before[group]:
            del self.before[group]

    def remove(self) -> None:
        """Remove the state file, after everything was rolled back."""
        self.path.unlink()


async def apply_plan(
    client: AsyncClient,
    plan: MigrationPlan,
    state: MoveState,
    *,
    execute: bool,
    allow_new_records: bool,
    advance: Callable[[int], object],
) -> list[GroupMove]:
    """Commit the planned offsets, group by group; return the changes, made or planned.

    `plan` may be a part of the plan to which the state belongs. `advance` is called with the number
    of finished groups. Raises MigrationError if the gateway has changed since the plan was made,
    ClientError.
    """
    readers, problems = await open_topics(client, plan)
    _refuse(problems)
    _refuse(await _changed_ranges(readers, plan, allow_new_records=allow_new_records))
    moves = []
    for group, after in planned_offsets(plan).items():
        committed = await read_committed(client, group, after)
        now = _offsets(committed)
        before = committed | {
            place: was for place, was in state.before.get(group, {}).items() if place in after
        }
        obstacle = None
        if now != after:
            moved = {place[0] for place, at in after.items() if now[place] != at}
            if any((group, topic) in state.applied for topic in moved):
                obstacle = "it was applied earlier and has moved on since"
            else:
                obstacle = await _obstacle(client, group, now, _offsets(before), after)
        if not obstacle:
            state.before.setdefault(group, {}).update(before)
        moves.append(GroupMove(group, now, after, obstacle))
    if execute:
        # Save the state first: a change without a saved state could not be rolled back.
        await asyncio.to_thread(state.save)
        try:
            for one in moves:
                if not one.obstacle:
                    await _commit(client, one, {})
                    state.applied.update((one.group, topic) for topic, _ in one.after)
                advance(1)
        finally:
            # Save once at the end: after a kill, the committed offsets show which groups are done.
            await asyncio.to_thread(state.save)
    return moves


async def roll_back(
    client: AsyncClient,
    plan: MigrationPlan,
    state: MoveState,
    *,
    execute: bool,
    force: bool,
    advance: Callable[[int], object],
) -> list[GroupMove]:
    """Commit the offsets from before the plan; return the changes, made or planned.

    `plan` may be a part of the plan to which the state belongs. A group that has continued by
    itself is not changed, except with `force`; a group with members never is. The state file stays
    until all groups are rolled back. Raises MigrationError, ClientError.
    """
    if not state.exists:
        raise MigrationError(f"there is nothing to take back: {state.path} does not exist")
    _, problems = await open_topics(client, plan)
    _refuse(problems)
    moves = []
    for group, planned in planned_offsets(plan).items():
        had = {place: was for place, was in state.before.get(group, {}).items() if place in planned}
        if not had:
            continue
        now = _offsets(await read_committed(client, group, had))
        after = _offsets(had)
        obstacle = None
        if now != after:
            obstacle = await _obstacle(client, group, now, now if force else planned, after)
        moves.append(GroupMove(group, now, after, obstacle))
    if execute:
        for one in moves:
            if not one.obstacle:
                before = state.before[one.group]
                await _commit(client, one, {place: before[place].metadata for place in one.after})
            advance(1)
        for one in moves:
            if not one.obstacle:
                state.forget(one.group, one.after)
        # Save once at the end: after a kill, the next run rolls back everything again.
        await asyncio.to_thread(state.save if state.before else state.remove)
    return moves


async def _changed_ranges(
    readers: Mapping[str, WireReader], plan: MigrationPlan, *, allow_new_records: bool
) -> list[str]:
    """Return the partitions whose offsets have changed so that the plan cannot be applied."""
    problems = []
    for one in plan["partitions"]:
        what = f"{one['topic']} partition {one['partition']}"
        start, end = await ends(readers[one["topic"]], one["partition"])
        if end < one["end_offset"]:
            problems.append(f"{what} ends at {end}, before {one['end_offset']}")
        elif end > one["end_offset"] and not allow_new_records:
            new = end - one["end_offset"]
            problems.append(f"{what} has {new} new records (see --allow-new-records)")
        passed = [
            group["group"]
            for group in plan["groups"]
            if (group["topic"], group["partition"]) == (one["topic"], one["partition"])
            and group["offset"] < start
        ]
        if passed:
            problems.append(
                f"{what} begins at {start} now, behind where {', '.join(passed)} would go on"
            )
    return problems


def _refuse(problems: list[str]) -> None:
    if problems:
        more = len(problems) - _PROBLEMS_SHOWN
        listed = "; ".join(problems[:_PROBLEMS_SHOWN]) + (f"; {more} more" if more > 0 else "")
        raise MigrationError(f"nothing was changed: {listed}")


def _offsets(committed: dict[TopicPartition, OffsetAndMetadata]) -> Offsets:
    return {partition: one.offset for partition, one in committed.items()}


async def _obstacle(
    client: AsyncClient,
    group: str,
    now: Offsets,
    start: Offsets,
    target: Offsets,
) -> str | None:
    """Return why a group must not be moved; None if it may be.

    Each partition must be at its offset in `start` or in `target`.
    """
    if await GroupClient(client).has_members(group):
        return "it has members; stop them first"
    for (topic, number), offset in now.items():
        if offset not in {start[topic, number], target[topic, number]}:
            return f"it has moved on: {topic} partition {number} is at {offset}"
    return None


async def _commit(client: AsyncClient, one: GroupMove, metadata: dict[TopicPartition, str]) -> None:
    changed = {partition: at for partition, at in one.after.items() if at != one.before[partition]}
    await GroupClient(client).set_offsets(one.group, changed, metadata)
