"""Findings of `kgw doctor` about the state of a namespace, and the mirror of committed offsets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.offline.findings import CheckResult
from kgw.backend.seaweedmq.offline.opening import state_directory
from kgw.backend.seaweedmq.offline.views import StateView
from kgw.backend.seaweedmq.state.offset_mirror import (
    DIRECTORY,
    MIRRORED,
    PREFIX,
    Position,
    RowChange,
    by_group,
    changed_positions,
    file_name,
)
from kgw.backend.seaweedmq.state.placed_state import place_in
from kgw.errors import CorruptionError
from kgw.state.kinds import BINDING_KIND
from kgw.turns import take_turns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.backend.seaweedmq.filer import Filer
    from kgw.backend.seaweedmq.topics.directories import TopicPlace
    from kgw.state.base import RowKey
    from kgw.state.table import RowTable
    from kgw.types import PartitionKey, TopicId

_TRIES: Final = 3

Expected = dict["PartitionKey", dict[str, Position]]
"""For each partition, the committed positions by the name of their file."""


class FoundState(NamedTuple):
    """The finding about the state, and its rows if they are on the filer and readable."""

    finding: CheckResult
    table: RowTable | None = None


async def examine_state(filer: Filer, namespace: str) -> FoundState:
    """Read the state of a namespace, although a gateway may be writing to it. Raises FilerError."""
    directory = state_directory(namespace)
    kept = f"kept in the SeaweedFS, in {directory}"
    for _ in range(_TRIES):
        try:
            view = await StateView.open(filer, directory)
            if view is None:
                return FoundState(CheckResult.ok("state", f"{kept}: there is none yet"))
            contents, commits = await view.read()
        except CorruptionError as error:
            # Read again, because a gateway may have removed files that a newer snapshot replaces.
            problem = str(error)
            continue
        place = place_in(contents.table.load(BINDING_KIND))
        if place is not None and place.is_bound:
            detail = f"kept in {place.url}; not looked into"
            return FoundState(CheckResult.ok("state", detail))
        rows = sum(map(len, contents.table.rows.values()))
        detail = (
            f"{kept}: {rows} rows, {commits} commits, {commits - view.notes[-1].offset} of them "
            "since the last snapshot"
        )
        return FoundState(CheckResult.ok("state", detail), contents.table)
    detail = f"{kept}: {problem}; see Damage in docs/seaweedmq-state.md"
    return FoundState(CheckResult.problem("state", detail))


async def examine_mirror(
    filer: Filer, places: Mapping[TopicId, list[TopicPlace]], table: RowTable
) -> CheckResult:
    """Compare the mirror with the committed offsets in `table`. Raises FilerError."""
    expected = await expected_positions(table)
    count = behind = 0
    for key, files in sorted(expected.items()):
        found = places.get(key.topic_id, [])
        if len(found) != 1:
            continue
        directory = f"{found[0].partition(key.partition)}/{DIRECTORY}"
        mirrored = {
            entry.name: entry.content
            async for entry in filer.list_entries(directory, prefix=PREFIX)
        }
        count += len(files)
        behind += sum(
            read_position(mirrored.get(name, b"")) != position for name, position in files.items()
        )
    detail = f"{count} committed offsets, {behind} of them not what their file says"
    if behind:
        detail += (
            ": those that a gateway commits right now, and those of before a kill or of a time "
            "without the mirror, which go with the group's next commit in that partition"
        )
    return CheckResult.ok("mirror", detail)


async def expected_positions(table: RowTable) -> Expected:
    """Return the positions that an up-to-date mirror would have."""
    rows: dict[RowKey, RowChange] = {
        (kind, key): RowChange(None, row.value)
        for kind in MIRRORED
        for key, row in table.load(kind).items()
    }
    expected: Expected = {}
    for (group_id, _), changes in (await take_turns(by_group(rows))).items():
        name = file_name(group_id)
        if name is None:
            continue
        for key, position in changed_positions(changes).items():
            if position is not None:
                expected.setdefault(key, {})[name] = position
    return expected


def read_position(content: bytes) -> Position | None:
    """Return the position in a file of the mirror; None if the file has none."""
    try:
        said = json.loads(content)
        return Position(int(said["value"]), str(said["metadata"]))
    except (ValueError, TypeError, KeyError):
        return None
