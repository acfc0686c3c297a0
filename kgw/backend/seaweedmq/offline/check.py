"""Checks every file of a namespace that no gateway serves, and reports problems. Read-only."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.log.snapshots import load_snapshot
from kgw.backend.seaweedmq.offline.adopt import find_lost
from kgw.backend.seaweedmq.offline.opening import state_directory
from kgw.backend.seaweedmq.offline.views import LogView
from kgw.backend.seaweedmq.state.offset_mirror import (
    MIRRORED,
    RowChange,
    by_group,
    changed_positions,
)
from kgw.backend.seaweedmq.topics.directories import TopicDirectories, twins
from kgw.backend.seaweedmq.topics.known_ends import KnownEnds
from kgw.backend.storage_problem import StorageProblem
from kgw.errors import CorruptionError, KgwError
from kgw.records.errors import RecordError
from kgw.records.reader import read_records
from kgw.state.base import DamagedRowsError
from kgw.state.kinds import TOPIC
from kgw.turns import take_turns
from kgw.types import PartitionKey, TopicId, TopicName, format_uuid, parse_uuid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from kgw.backend.seaweedmq.filer import Filer
    from kgw.backend.seaweedmq.log.detail import PartitionDetail
    from kgw.backend.seaweedmq.offline.opening import Namespace
    from kgw.backend.seaweedmq.offline.views import ReadChunk
    from kgw.state.base import RowKey, StateStore


class KnownTopic(NamedTuple):
    """A topic that the state knows."""

    name: TopicName
    topic_id: TopicId
    partitions: int


class _Committed(NamedTuple):
    """The greatest committed offset of a partition, and its group."""

    offset: int
    group_id: str


class _State(NamedTuple):
    """The rows of the state that are compared with the files."""

    topics: list[KnownTopic]
    ends: KnownEnds | None = None
    committed: Mapping[PartitionKey, _Committed] = {}

    def of(self, key: PartitionKey) -> tuple[int, _Committed]:
        """Return the known end of a log, and its greatest committed offset."""
        end = 0 if self.ends is None else self.ends.of(key)
        return end, self.committed.get(key, _Committed(0, ""))


async def check_namespace(
    namespace: Namespace, *, reads_records: bool = False
) -> AsyncIterator[StorageProblem]:
    """Yield the problems of the records and the state of a namespace. Raises FilerError.

    With `reads_records`, each batch is also decompressed, because consumers stop at a batch whose
    records do not match its header.
    """
    problems, known = await _check_state(namespace)
    for problem in problems:
        yield problem
    directories = TopicDirectories(namespace.filer, namespace.name)
    places = await directories.list_all()
    for detail in twins(places):
        yield StorageProblem(directories.root, detail)
    visited: set[PartitionKey] = set()
    away: dict[str, str] = {}
    for topic_id, found in sorted(places.items()):
        for place in found:
            for partition in await directories.partitions(place):
                key = PartitionKey(topic_id, partition)
                visited.add(key)
                directory = place.partition(partition)
                known_end, committed = known.of(key)
                async for problem in check_partition(
                    namespace.filer,
                    directory,
                    key,
                    reads_records=reads_records,
                    known_end=known_end,
                    committed=committed,
                    away=away,
                ):
                    yield problem
    for topic in known.topics:
        keys = (PartitionKey(topic.topic_id, number) for number in range(topic.partitions))
        # A new partition's directory is made before the state has the partition.
        missing = [key for key in keys if key not in visited]
        lost = {str(key.partition): end for key in missing if (end := known.of(key)[0])}
        empty = [name for key in missing if (name := str(key.partition)) not in lost]
        path = f"{directories.root}/{topic.name}"
        if lost:
            ends = ", ".join(f"{name} up to offset {end}" for name, end in lost.items())
            yield StorageProblem(
                path, f"partitions are gone that held records, and are not opened: {ends}"
            )
        if empty:
            yield StorageProblem(
                path,
                f"partitions {', '.join(empty)} are gone, and the state knows them: the next "
                "start makes them anew, empty",
            )


async def check_partition(
    filer: Filer,
    directory: str,
    key: PartitionKey,
    *,
    reads_records: bool = False,
    known_end: int = 0,
    committed: tuple[int, str] = (0, ""),
    away: dict[str, str] | None = None,
) -> AsyncIterator[StorageProblem]:
    """Yield the problems of a partition's files. Raises FilerError.

    According to the state, the log ends at or above `known_end`, and `committed` is a group's
    offset. `away` are volumes that could not be read, as in `LogView.chunks`.
    """
    away = {} if away is None else away
    leader_path = f"{directory}/{LEADER}"
    try:
        view = await LogView.open(filer, directory)
    except CorruptionError as error:
        yield StorageProblem(leader_path, str(error).removeprefix(f"{leader_path}: "))
        return
    if view is None:
        held = f"; it held records up to offset {known_end}" if known_end else ""
        yield StorageProblem(leader_path, f"is missing: nothing says which files there are{held}")
        return
    if view.marks.identity != str(key).encode():
        yield StorageProblem(
            leader_path, f"is that of {view.marks.identity.decode(errors='replace')}"
        )
    async for problem in _unnamed(filer, directory, view):
        yield problem
    expected: int | None = None
    for number, row in enumerate(view.leader.rows):
        path = f"{directory}/{row.name}"
        if expected is not None and row.base_offset != expected:
            yield StorageProblem(
                path, f"begins at {row.base_offset}, where {expected} was expected"
            )
        try:
            file = await view.file(number)
        except CorruptionError as error:
            yield StorageProblem(path, str(error).removeprefix(f"{path}: "))
            expected = None
            continue
        if file is None:
            continue
        expected = file.end_offset
        async for chunk in view.chunks(file, away):
            for problem in _chunk_problems(chunk, reads_records=reads_records):
                yield problem
    if expected is not None or not view.leader.rows:
        for detail in _end_problems(view.detail, expected or 0, known_end, *committed):
            yield StorageProblem(leader_path, detail)
    reports: list[str] = []
    await load_snapshot(filer, directory, reports.append)
    for report in reports:
        path, _, detail = report.partition(": ")
        yield StorageProblem(path, detail)


def _end_problems(
    detail: PartitionDetail, end_offset: int, known_end: int, committed_offset: int, group_id: str
) -> Iterator[str]:
    """Yield the problems of a log's end."""
    if end_offset < detail.log_start_offset:
        yield f"the log begins at {detail.log_start_offset}, behind its end {end_offset}"
    if lost := detail.lost_end(end_offset, known_end):
        yield lost
    if committed_offset > max(end_offset, known_end, detail.clean_end):
        yield (
            f"group {group_id} has committed offset {committed_offset}, behind the log's end "
            f"{end_offset}: either somebody has set it so, or the log has lost its end"
        )


async def _check_state(namespace: Namespace) -> tuple[list[StorageProblem], _State]:
    """Return the problems of the state, and its rows about topics and their logs."""
    directory = state_directory(namespace.name)
    if await namespace.filer.look_up(directory, LEADER) is None:
        return [StorageProblem(directory, "there is no state: see `kgw log adopt`")], _State([])
    state = namespace.state()
    try:
        await state.open()
    except KgwError as error:
        return [StorageProblem(directory, str(error))], _State([])
    async with aclosing(state):
        problems = [StorageProblem(directory, problem) for problem in state.problems]
        known, unreadable = await known_topics(state)
        problems += (StorageProblem(directory, problem) for problem in unreadable)
        # With an unreadable topic row, it is unknown which topics are lost.
        for lost in await find_lost(namespace, state) if not unreadable else ():
            problems.append(
                StorageProblem(
                    directory,
                    f"topic {lost.topic} ({format_uuid(lost.topic_id)}) has files, and the state "
                    "does not know it; see `kgw log adopt`",
                )
            )
        ends = KnownEnds(state)
        await ends.open()
        if ends.damage is not None:
            problems.append(StorageProblem(directory, ends.damage))
        committed = await _committed(state)
    return problems, _State(known, ends, committed)


async def _committed(state: StateStore) -> dict[PartitionKey, _Committed]:
    """Return the greatest committed offset of each partition, from the readable rows."""
    rows: dict[RowKey, RowChange] = {}
    for kind in MIRRORED:
        try:
            found = await state.load(kind)
        except DamagedRowsError as error:
            found = error.intact
        rows |= {(kind, key): RowChange(None, row.value) for key, row in found.items()}
    committed: dict[PartitionKey, _Committed] = {}
    for (group_id, _), changes in (await take_turns(by_group(rows))).items():
        for key, position in changed_positions(changes).items():
            if position is not None:
                one = _Committed(position.offset, group_id)
                committed[key] = max(one, committed.get(key, one))
    return committed


async def known_topics(state: StateStore) -> tuple[list[KnownTopic], list[str]]:
    """Return the topics of an open state, and problems of rows that cannot be read."""
    problems: list[str] = []
    try:
        rows = await state.load(TOPIC)
    except DamagedRowsError as error:
        rows = error.intact
        problems.append(str(error))
    known: list[KnownTopic] = []
    for key, row in rows.items():
        try:
            fields = json.loads(row.value)
            known.append(
                KnownTopic(
                    TopicName(fields["name"]), TopicId(parse_uuid(key)), int(fields["partitions"])
                )
            )
        except (ValueError, KeyError, TypeError) as error:
            problems.append(f"the row of topic {key} cannot be read: {error!r}")
    return known, problems


async def _unnamed(filer: Filer, directory: str, view: LogView) -> AsyncIterator[StorageProblem]:
    """Yield files that are not in the leader entry, which another program has written."""
    async for entry in filer.list_entries(directory, chunks=False):
        # Files of positions and snapshots end in `.offset`, unlike log files.
        if entry.is_directory or entry.name.endswith(".offset") or entry.name in view.names:
            continue
        yield StorageProblem(
            f"{directory}/{entry.name}",
            "is named by no list, and not read: has SMQ's broker written to this topic?",
        )


def _chunk_problems(chunk: ReadChunk, *, reads_records: bool) -> Iterator[StorageProblem]:
    offsets = f"offsets {chunk.base_offset} to {chunk.end_offset - 1}"
    if chunk.decoded is None:
        yield StorageProblem(chunk.path, f"{offsets} cannot be read: {chunk.problem}")
        return
    for damage in chunk.decoded.damages:
        yield StorageProblem(
            chunk.path,
            f"offsets {damage.start_offset} to {damage.end_offset - 1} are damaged, at position "
            f"{chunk.chunk.position + damage.position}: {damage.reason}",
        )
    if not reads_records:
        return
    for batch in chunk.decoded.batches:
        try:
            for _ in read_records(batch):
                pass
        except RecordError as error:
            yield StorageProblem(
                chunk.path,
                f"the batch at offset {batch.base_offset} is not what its header says: {error}",
            )
