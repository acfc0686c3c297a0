"""`kgw log` for namespaces of a SeaweedFS; imported only for such an address."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from kgw.backend.adopting import Adoption
from kgw.backend.embedded.offline.dump import DumpedBatch, DumpedDamage
from kgw.backend.embedded.offline.log_place import opened_source, opened_target
from kgw.backend.log_copy import copy_logs
from kgw.backend.seaweedmq.offline import adopt, check, losses
from kgw.backend.seaweedmq.offline.log_place import opened_logs
from kgw.backend.seaweedmq.offline.opening import held, reached
from kgw.backend.seaweedmq.offline.views import LogView
from kgw.backend.seaweedmq.topics.directories import TopicDirectories
from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.cli.shared.output import progress_bar
from kgw.errors import CorruptionError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kgw.backend.log_copy import CopiedLog, LogPlace
    from kgw.backend.seaweedmq.filer import Filer
    from kgw.backend.seaweedmq.offline.losses import Loss
    from kgw.backend.seaweedmq.offline.views import ReadChunk
    from kgw.backend.storage_problem import StorageProblem


class BatchPrinter(Protocol):
    """Prints the batches of files."""

    def begin(self, path: str) -> None:
        """Print the name of a file before its batches."""

    def show_batch(self, path: str, one: DumpedBatch) -> None:
        """Print one batch."""

    def show_damage(self, path: str, one: DumpedDamage) -> None:
        """Print and count bytes that are not a batch."""


def check_namespace(url: str, *, reads_records: bool) -> list[StorageProblem]:
    """Return the problems of a namespace. Raises KgwError."""

    async def run() -> list[StorageProblem]:
        async with held(url, writes=False) as namespace:
            found = check.check_namespace(namespace, reads_records=reads_records)
            return [problem async for problem in found]

    return asyncio.run(run())


def adopt_topics(url: str, *, is_dry_run: bool) -> Adoption:
    """Restore lost topics of a namespace, or only list them. Raises KgwError."""

    async def run() -> Adoption:
        async with held(url, writes=not is_dry_run) as namespace:
            if is_dry_run:
                return Adoption(await adopt.find_in(namespace), ())
            return await adopt.adopt(namespace)

    return asyncio.run(run())


def accept_losses(url: str, topics: tuple[str, ...], *, is_dry_run: bool) -> list[Loss]:
    """Make logs of a namespace continue after lost records, or only list these logs.

    Raises KgwError.
    """

    async def run() -> list[Loss]:
        async with held(url, writes=not is_dry_run) as namespace:
            found = await losses.find_losses(namespace, topics)
            if not is_dry_run:
                await losses.accept_losses(namespace, found)
            return found

    return asyncio.run(run())


def copy_records(source_place: str, target_place: str) -> list[CopiedLog]:
    """Copy all logs between a data directory and a namespace. Raises KgwError, OSError."""

    async def run() -> list[CopiedLog]:
        opened: tuple[AbstractAsyncContextManager[LogPlace], AbstractAsyncContextManager[LogPlace]]
        if source_place.startswith("seaweedmq:"):
            opened = opened_logs(source_place, writes=False), opened_target(target_place)
        else:
            opened = opened_source(source_place), opened_logs(target_place, writes=True)
        async with opened[0] as source, opened[1] as target:
            facts = await source.logs()
            with progress_bar(sum(one.size_bytes for one in facts), "Copied") as advance:
                return [one async for one in copy_logs(source, target, facts, advance)]

    return asyncio.run(run())


def dump_namespace(url: str, topics: tuple[str, ...], dump: BatchPrinter) -> None:
    """Print the batches of some or all topics in a namespace.

    A gateway may serve the namespace meanwhile.

    Raises KgwError.
    """

    async def run() -> None:
        async with reached(url) as namespace:
            directories = TopicDirectories(namespace.filer, namespace.name)
            found = await directories.list_all()
            places = [place for places in found.values() for place in places]
            missing = set(topics) - {place.topic for place in places}
            if missing:
                raise CommandError(
                    f"{url} has no topic {', '.join(sorted(missing))}", ExitCode.DATA_DIRECTORY
                )
            for place in sorted(places):
                if topics and place.topic not in topics:
                    continue
                for partition in await directories.partitions(place):
                    await _dump_partition(namespace.filer, place.partition(partition), dump)

    asyncio.run(run())


async def _dump_partition(filer: Filer, directory: str, dump: BatchPrinter) -> None:
    try:
        view = await LogView.open(filer, directory)
    except CorruptionError as error:
        dump.show_damage(directory, DumpedDamage(0, 0, str(error)))
        return
    if view is None:
        dump.show_damage(directory, DumpedDamage(0, 0, "nothing says which files there are"))
        return
    for number, row in enumerate(view.leader.rows):
        path = f"{directory}/{row.name}"
        dump.begin(path)
        try:
            file = await view.file(number)
        except CorruptionError as error:
            dump.show_damage(path, DumpedDamage(0, row.size_bytes, str(error)))
            continue
        if file is not None:
            async for chunk in view.chunks(file):
                _dump_chunk(chunk, dump)


def _dump_chunk(chunk: ReadChunk, dump: BatchPrinter) -> None:
    position = chunk.chunk.position
    if chunk.decoded is None:
        damage = DumpedDamage(position, chunk.chunk.size_bytes, chunk.problem or "it is gone")
        dump.show_damage(chunk.path, damage)
        return
    for batch in chunk.decoded.batches:
        # Batches with a wrong checksum are in `damages`, not here.
        dump.show_batch(chunk.path, DumpedBatch(position, batch, True, True))
    for one in chunk.decoded.damages:
        dump.show_damage(
            chunk.path,
            DumpedDamage(
                position + one.position,
                chunk.chunk.size_bytes - one.position,
                f"offsets {one.start_offset} to {one.end_offset - 1}: {one.reason}",
            ),
        )
