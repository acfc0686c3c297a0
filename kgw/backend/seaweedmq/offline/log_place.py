"""The logs of a namespace that no gateway serves, as `kgw log copy` reads and writes them."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from kgw.backend.log_copy import LogFacts, LogPlace
from kgw.backend.seaweedmq.chain import Chain, Settler
from kgw.backend.seaweedmq.entries.layouts import Layout, encode
from kgw.backend.seaweedmq.filer import EntryExistsError
from kgw.backend.seaweedmq.log.detail import PartitionDetail, decode_detail
from kgw.backend.seaweedmq.log.log_files import payload_of
from kgw.backend.seaweedmq.log.snapshots import load_snapshot, save_snapshot
from kgw.backend.seaweedmq.offline.opening import held
from kgw.backend.seaweedmq.offline.views import LogView
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.backend.seaweedmq.topics.directories import TopicDirectories, twins
from kgw.errors import CorruptionError
from kgw.logs import EventLogger
from kgw.state.kinds import TOPIC
from kgw.types import PartitionKey, format_uuid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kgw.backend.seaweedmq.offline.opening import Namespace
    from kgw.records.batch import RecordBatch

_log = EventLogger(__name__)


@asynccontextmanager
async def opened_logs(url: str, *, writes: bool) -> AsyncIterator[NamespaceLogs]:
    """Hold a namespace that no gateway serves. Raises as `held`."""
    async with held(url, writes=writes) as namespace:
        logs = NamespaceLogs(namespace)
        async with aclosing(logs):
            yield logs


class NamespaceLogs(LogPlace):
    """The logs of one namespace, which the caller holds."""

    def __init__(self, namespace: Namespace, options: SeaweedMqOptions | None = None) -> None:
        self._namespace = namespace
        self._filer = namespace.filer
        self._options = options or SeaweedMqOptions()
        self._directories = TopicDirectories(namespace.filer, namespace.name)
        self._chains: dict[PartitionKey, Chain] = {}
        self._last_ts_ns = 0

    async def aclose(self) -> None:
        """Close unfinished logs."""
        for chain in self._chains.values():
            await chain.aclose()
        self._chains.clear()

    # --- reading ---------------------------------------------------------------------------------

    async def logs(self) -> list[LogFacts]:
        state = self._namespace.state()
        await state.open()
        async with aclosing(state):
            known = await state.load(TOPIC)
        found: list[LogFacts] = []
        for topic_id, places in sorted((await self._directories.list_all()).items()):
            if format_uuid(topic_id) not in known:
                continue
            if len(places) > 1:
                raise CorruptionError("; ".join(twins({topic_id: places})))
            (place,) = places
            for partition in await self._directories.partitions(place):
                key = PartitionKey(topic_id, partition)
                view = await self._view(key)
                detail = view.detail
                end_offset = max(await view.end_offset(), detail.log_start_offset)
                snapshot = await load_snapshot(self._filer, view.directory, _report)
                if snapshot is not None and snapshot.offset > end_offset:
                    snapshot = None
                found.append(
                    LogFacts(
                        place.topic,
                        key,
                        detail.log_start_offset,
                        end_offset,
                        sum(row.content_bytes for row in view.leader.rows),
                        detail.epochs,
                        detail.compacted_end,
                        detail.recompressed,
                        snapshot,
                    )
                )
        return found

    async def batches(self, key: PartitionKey, from_offset: int) -> AsyncIterator[RecordBatch]:
        view = await self._view(key)
        rows = view.leader.rows
        for number in range(len(rows)):
            if number + 1 < len(rows) and rows[number + 1].base_offset <= from_offset:
                continue
            file = await view.file(number)
            if file is None:
                continue
            async for chunk in view.chunks(file):
                if chunk.end_offset <= from_offset:
                    continue
                if chunk.decoded is None:
                    raise CorruptionError(f"{chunk.path}: {chunk.problem}", chunk.end_offset)
                for damage in chunk.decoded.damages:
                    raise CorruptionError(
                        f"{chunk.path}: offsets {damage.start_offset} to {damage.end_offset - 1} "
                        f"are damaged: {damage.reason}",
                        damage.end_offset,
                    )
                for batch in chunk.decoded.batches:
                    if batch.next_offset > from_offset:
                        yield batch

    async def _view(self, key: PartitionKey) -> LogView:
        place = await self._directories.find_by_id(key.topic_id)
        view = None
        if place is not None:
            view = await LogView.open(self._filer, place.partition(key.partition))
        if view is None:
            raise CorruptionError(f"partition {key}: nothing says which files there are")
        if view.marks.identity != str(key).encode():
            raise CorruptionError(f"{view.directory}: its files are not those of partition {key}")
        return view

    # --- writing ---------------------------------------------------------------------------------

    async def begin(self, facts: LogFacts) -> int | None:
        key, clock = facts.key, self._namespace.clock
        place = await self._directories.create(facts.topic, key.topic_id, clock.wall_ms())
        settler = Settler(self._filer, clock, place.partition(key.partition))
        identity, options = str(key).encode(), self._options.chain
        try:
            chain = await Chain.create(settler, identity, PartitionDetail().encode(), options)
        except EntryExistsError:
            chain = await Chain.take_over(settler, identity, options)
        self._chains[key] = chain
        return chain.end_offset or None

    async def promise(self, facts: LogFacts) -> None:
        """Record the final end of a begun log, so that no gateway opens it unfinished."""
        chain = self._chains[facts.key]
        # Times must rise with the offsets.
        found = decode_detail(chain.detail)
        self._last_ts_ns = max(self._last_ts_ns, found.last_ts_ns)
        await chain.save_detail(self._detail(facts, facts.end_offset))

    async def append(self, key: PartitionKey, batches: Sequence[RecordBatch]) -> None:
        chain = self._chains[key]
        ts_ns = max(self._namespace.clock.wall_ms() * 1_000_000, self._last_ts_ns + 1)
        encoded = encode(batches, Layout.BATCHES, ts_ns)
        self._last_ts_ns = encoded.last_ts_ns
        active_bytes = chain.files[-1].content_bytes if chain.files else 0
        if active_bytes and active_bytes + encoded.batch_bytes > self._options.file_bytes:
            await chain.roll(batches[0].base_offset)
        await chain.append(payload_of(encoded))

    async def finish(self, facts: LogFacts) -> None:
        chain = self._chains.pop(facts.key)
        async with aclosing(chain):
            if chain.end_offset != facts.end_offset:
                raise CorruptionError(
                    f"{chain.directory} ends at {chain.end_offset}, not at {facts.end_offset}"
                )
            await chain.save_detail(self._detail(facts, chain.end_offset))
            if facts.snapshot is not None:
                await save_snapshot(self._filer, chain.directory, facts.snapshot)
        place = await self._directories.find_by_id(facts.key.topic_id)
        if place is not None:
            await self._directories.write_conf(place, await self._directories.partitions(place))

    def _detail(self, facts: LogFacts, clean_end: int) -> bytes:
        return PartitionDetail(
            facts.log_start_offset,
            facts.epochs,
            clean_end,
            self._last_ts_ns,
            facts.compacted_end,
            facts.recompressed,
        ).encode()


def _report(problem: str) -> None:
    _log.warning("storage problem", problem=problem)
