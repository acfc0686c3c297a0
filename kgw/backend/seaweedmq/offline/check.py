"""Walk every file of a namespace that no gateway serves, and name what does not hold. Read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.offline.opening import state_directory
from kgw.backend.seaweedmq.offline.views import LogView
from kgw.backend.seaweedmq.snapshots import load_snapshot
from kgw.backend.seaweedmq.topics import TopicDirectories, twins
from kgw.errors import CorruptionError, KgwError
from kgw.records.errors import RecordError
from kgw.records.reader import read_records
from kgw.types import PartitionKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from kgw.backend.seaweedmq.filer import Filer
    from kgw.backend.seaweedmq.offline.opening import Namespace
    from kgw.backend.seaweedmq.offline.views import ReadChunk


class Problem(NamedTuple):
    """Something that does not hold."""

    path: str
    """Of the entry, on the filer."""
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}"


async def check_namespace(
    namespace: Namespace, *, reads_records: bool = False
) -> AsyncIterator[Problem]:
    """Yield what is wrong with the records and the state of a namespace. Raises FilerError.

    With `reads_records` each batch is unpacked too: one whose records are not what its header says
    stops its readers.
    """
    async for problem in _check_state(namespace):
        yield problem
    directories = TopicDirectories(namespace.filer, namespace.name)
    places = await directories.list_all()
    for detail in twins(places):
        yield Problem(directories.root, detail)
    for topic_id, found in sorted(places.items()):
        for place in found:
            for partition in await directories.partitions(place):
                key = PartitionKey(topic_id, partition)
                directory = place.partition(partition)
                async for problem in check_partition(
                    namespace.filer, directory, key, reads_records=reads_records
                ):
                    yield problem


async def check_partition(
    filer: Filer, directory: str, key: PartitionKey, *, reads_records: bool = False
) -> AsyncIterator[Problem]:
    """Yield what is wrong with a partition's files. Raises FilerError."""
    leader_path = f"{directory}/{LEADER}"
    try:
        view = await LogView.open(filer, directory)
    except CorruptionError as error:
        yield Problem(leader_path, str(error).removeprefix(f"{leader_path}: "))
        return
    if view is None:
        yield Problem(leader_path, "is missing: nothing says which files there are")
        return
    if view.marks.identity != str(key).encode():
        yield Problem(leader_path, f"is that of {view.marks.identity.decode(errors='replace')}")
    async for problem in _unnamed(filer, directory, view):
        yield problem
    expected: int | None = None
    for number, row in enumerate(view.leader.rows):
        path = f"{directory}/{row.name}"
        if expected is not None and row.base_offset != expected:
            yield Problem(path, f"begins at {row.base_offset}, where {expected} was expected")
        try:
            file = await view.file(number)
        except CorruptionError as error:
            yield Problem(path, str(error).removeprefix(f"{path}: "))
            expected = None
            continue
        if file is None:
            continue
        expected = file.end_offset
        async for chunk in view.chunks(file):
            for problem in _chunk_problems(chunk, reads_records=reads_records):
                yield problem
    if expected is not None and expected < view.detail.log_start_offset:
        yield Problem(
            leader_path,
            f"the log begins at {view.detail.log_start_offset}, behind its end {expected}",
        )
    reports: list[str] = []
    await load_snapshot(filer, directory, reports.append)
    for report in reports:
        path, _, detail = report.partition(": ")
        yield Problem(path, detail)


async def _check_state(namespace: Namespace) -> AsyncIterator[Problem]:
    directory = state_directory(namespace.name)
    if await namespace.filer.look_up(directory, LEADER) is None:
        yield Problem(directory, "there is no state: see `kgw log adopt`")
        return
    state = namespace.state()
    try:
        await state.open()
    except KgwError as error:
        yield Problem(directory, str(error))
        return
    await state.aclose()
    for problem in state.problems:
        yield Problem(directory, problem)


async def _unnamed(filer: Filer, directory: str, view: LogView) -> AsyncIterator[Problem]:
    """Yield files that no list names: another has written here, and readers of SMQ see them."""
    async for entry in filer.list_entries(directory, chunks=False):
        # Positions of groups and snapshots have an ending that is no log file's.
        if entry.is_directory or entry.name.endswith(".offset") or entry.name in view.names:
            continue
        yield Problem(
            f"{directory}/{entry.name}",
            "is named by no list, and not read: has SMQ's broker written to this topic?",
        )


def _chunk_problems(chunk: ReadChunk, *, reads_records: bool) -> Iterator[Problem]:
    offsets = f"offsets {chunk.base_offset} to {chunk.end_offset - 1}"
    if chunk.decoded is None:
        yield Problem(chunk.path, f"{offsets} cannot be read: {chunk.problem}")
        return
    for damage in chunk.decoded.damages:
        yield Problem(
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
            yield Problem(
                chunk.path,
                f"the batch at offset {batch.base_offset} is not what its header says: {error}",
            )
