"""Writes copies of committed offsets for SMQ's tools and for people.

The mirror is written after the commits, never delays them, and is never read by kgw. If a gateway
is killed, the positions of the last second are missing until the next commit for the same
partition. The format is that of SMQ's own groups (`consumers/<group>.offset` in a partition's
directory, reference 4.5).
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.state.in_order import in_order
from kgw.errors import StorageError
from kgw.logs import EventLogger, QuietLog
from kgw.metrics import count
from kgw.offsets.block import decode_block
from kgw.offsets.rows import decode_row, parse_row_key
from kgw.state.kinds import GROUP_OFFSETS, OFFSET_BLOCK
from kgw.turns import StepBudget, take_turns
from kgw.types import PartitionKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from kgw.backend.seaweedmq.filer import Filer
    from kgw.clock import Clock, Timer
    from kgw.metrics import Metrics
    from kgw.offsets.committed import CommittedOffset
    from kgw.state.base import RowKey
    from kgw.state.table import RowTable, WrittenRows
    from kgw.turns import Turns

DIRECTORY: Final = "consumers"
PREFIX: Final = "kafka-cg-"
INTERVAL_S: Final = 1.0
"""A position is written at most once in this time."""
_SUFFIX: Final = ".offset"
_NAME_BYTES: Final = 255
"""The longest name that a filer accepts."""
MIRRORED: Final = frozenset({GROUP_OFFSETS, OFFSET_BLOCK})
"""The kinds of rows that have committed offsets."""
_ROWS_A_TURN: Final = 500
_PUTS_AT_ONCE: Final = 4
_CLOSING_S: Final = 5.0
"""How long closing waits for the last positions."""

_log = EventLogger(__name__)


class Position(NamedTuple):
    """The committed offset of a group in a partition."""

    offset: int
    metadata: str


class RowChange(NamedTuple):
    """The change of a row since the mirror was last written."""

    before: bytes | None
    after: bytes | None


Positions: TypeAlias = "dict[PartitionKey, Position | None]"
"""None if the group has no committed offset in the partition any more."""


class OffsetMirror:
    """Writes positions after the commits of a state store, whose `on_commit` is `note`."""

    def __init__(
        self,
        filer: Filer,
        clock: Clock,
        metrics: Metrics,
        directory_of: Callable[[PartitionKey], Awaitable[str | None]],
        *,
        max_rows: int = 10_000,
    ) -> None:
        """`directory_of` returns a partition's directory; None if the partition is gone.

        If more than `max_rows` rows change before the mirror is written, the last changes are not
        mirrored.
        """
        self._filer = filer
        self._clock = clock
        self._metrics = metrics
        self._directory_of = directory_of
        self._max_rows = max_rows
        self._waiting: dict[RowKey, RowChange] = {}
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._quiet = QuietLog(_log)

    def note(self, written: WrittenRows, table: RowTable) -> None:
        """Queue a commit's positions; `table` has the rows as they were before."""
        if self._is_stopped:
            return
        for row_key, row in written.items():
            if row_key[0] not in MIRRORED:
                continue
            noted = self._waiting.get(row_key)
            if noted is None:
                if len(self._waiting) >= self._max_rows:
                    count(self._metrics.mirrored_offsets, "skipped")
                    continue
                stored = table.get(row_key)
                before = None if stored is None else stored.value
            else:
                before = noted.before
            self._waiting[row_key] = RowChange(before, None if row is None else row.value)
        if self._waiting:
            self._metrics.mirror_waiting = len(self._waiting)
            self._plan()

    def stop(self) -> None:
        """Stop writing, because another gateway writes the positions now."""
        self._is_stopped = True
        self._waiting.clear()
        self._metrics.mirror_waiting = 0
        self._cancel_timer()

    async def aclose(self) -> None:
        """Write the queued positions, unless the filer takes too long, and stop."""
        if not self._is_stopped:
            writing = asyncio.ensure_future(self._write_rest())
            ends_s = self._clock.monotonic_s() + _CLOSING_S
            timer = self._clock.call_at(ends_s, writing.cancel)
            await asyncio.wait([writing])
            timer.cancel()
        self.stop()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _write_rest(self) -> None:
        if self._task is not None:
            await self._task
        self._cancel_timer()
        await self._run()

    def _plan(self) -> None:
        if self._timer is None and self._task is None:
            at_s = self._clock.monotonic_s() + INTERVAL_S
            self._timer = self._clock.call_at(at_s, self._begin)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._write_waiting()
        except Exception as error:  # noqa: BLE001 - nobody waits for the task
            _log.error("offsets not mirrored", error=error)
        finally:
            self._task = None
            if self._waiting and not self._is_stopped:
                self._plan()

    async def _write_waiting(self) -> None:
        """Write the queued changes. If the filer fails, queue the unwritten changes again."""
        waiting, self._waiting = self._waiting, {}
        groups = await take_turns(by_group(waiting))
        for (group_id, _), changes in groups.items():
            if self._is_stopped:
                return
            try:
                await self._write(group_id, changed_positions(changes))
            except StorageError as error:
                count(self._metrics.mirrored_offsets, "failed")
                self._quiet.warning(
                    "offsets not mirrored",
                    "filer",
                    self._clock.monotonic_s(),
                    {"group": group_id, "reason": str(error)},
                )
                break
            for row_key in changes:
                del waiting[row_key]
        self._wait_again(waiting)

    def _wait_again(self, waiting: Mapping[RowKey, RowChange]) -> None:
        for row_key, (before, after) in waiting.items():
            if row_key in self._waiting:
                newer = self._waiting[row_key].after
                self._waiting[row_key] = RowChange(before, newer)
            elif len(self._waiting) < self._max_rows:
                self._waiting[row_key] = RowChange(before, after)
            else:
                count(self._metrics.mirrored_offsets, "skipped")
        self._metrics.mirror_waiting = len(self._waiting)

    async def _write(self, group_id: str, positions: Positions) -> None:
        name = file_name(group_id)
        if name is None:
            count(self._metrics.mirrored_offsets, "skipped", len(positions))
            return
        calls = (self._put(name, key, position) for key, position in positions.items())
        async with aclosing(in_order(calls, _PUTS_AT_ONCE)) as puts:
            async for is_written in puts:
                if is_written:
                    count(self._metrics.mirrored_offsets, "written")

    async def _put(self, name: str, key: PartitionKey, position: Position | None) -> bool:
        """Write one position, if its partition is open and this gateway still writes the mirror."""
        partition_directory = await self._directory_of(key)
        if partition_directory is None or self._is_stopped:
            return False
        directory = f"{partition_directory}/{DIRECTORY}"
        if position is None:
            await self._filer.delete(directory, name)
        else:
            now_ms = self._clock.wall_ms()
            content = encode_position(position, now_ms)
            await self._filer.put(
                directory, FilerEntry(name, content=content, modified_s=now_ms // 1000)
            )
        return True


def file_name(group_id: str) -> str | None:
    """Return the name of a group's files; None if the name would be too long for a filer.

    Characters that a file's name cannot have are escaped as in a URL.
    """
    name = f"{PREFIX}{quote(group_id, safe='')}{_SUFFIX}"
    return name if len(name) <= _NAME_BYTES else None


def encode_position(position: Position, now_ms: int) -> bytes:
    """Return a file's content, with SMQ's own field names in their order."""
    return json.dumps(
        {
            "type": "offset",
            "value": position.offset,
            "offset_type": "EXACT_OFFSET",
            "committed_at": now_ms,
            "metadata": position.metadata,
        }
    ).encode()


def by_group(
    changes: Mapping[RowKey, RowChange],
) -> Turns[dict[tuple[str, bytes], dict[RowKey, RowChange]]]:
    """Return the changes by group and topic, because a partition may move between rows of these."""
    groups: dict[tuple[str, bytes], dict[RowKey, RowChange]] = {}
    budget = StepBudget(_ROWS_A_TURN)
    for row_key, change in changes.items():
        try:
            group_id, topic_id, _ = parse_row_key(*row_key)
        except ValueError:
            continue  # the damaged row is reported when the groups are loaded
        groups.setdefault((group_id, topic_id), {})[row_key] = change
        if budget.spend():
            yield
    return groups


def changed_positions(changes: Mapping[RowKey, RowChange]) -> Positions:
    """Return the changed positions of one group and topic, by partition."""
    before = _positions((row_key, change.before) for row_key, change in changes.items())
    after = _positions((row_key, change.after) for row_key, change in changes.items())
    gone: Positions = dict.fromkeys(before.keys() - after.keys())
    return gone | {key: one for key, one in after.items() if before.get(key) != one}


def _positions(rows: Iterable[tuple[RowKey, bytes | None]]) -> dict[PartitionKey, Position]:
    positions: dict[PartitionKey, Position] = {}
    for (kind, key), value in rows:
        if value is None:
            continue
        _, topic_id, _ = parse_row_key(kind, key)
        for partition, committed in _offsets_of(kind, value).items():
            if committed.offset < 0:
                continue
            positions[PartitionKey(topic_id, partition)] = Position(
                committed.offset, committed.metadata
            )
    return positions


def _offsets_of(kind: str, value: bytes) -> Mapping[int, CommittedOffset]:
    # The mirror needs only the offsets, not the times of the commits.
    try:
        if kind == OFFSET_BLOCK:
            return decode_block(value, 0, 0.0).entries()
        return decode_row(value, 0, 0.0)
    except ValueError:
        return {}
