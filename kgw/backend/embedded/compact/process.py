"""The process that compacts segments: `python -m kgw.backend.embedded.compact.process`.

A process of its own, at the lowest priority, so that neither the event loop nor its interpreter
waits for it. The first line on standard input is the order; then the input stays open for as long
as the parent lives: at its end this process ends, too. Each line on standard output is an object
with one member: `compacted`, `report`, or what has ended the run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from threading import Thread
from typing import TYPE_CHECKING, Any

from kgw.backend.base import CompactionJob, CompactionReport, LogSettings
from kgw.backend.embedded.compact.compaction import Compaction, CompactionOrder, Pace, SourceSegment
from kgw.backend.embedded.failures import SyncFailedError, is_out_of_space
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.log.segment import SideFileDamagedError
from kgw.backend.embedded.log.swap import CompactedSegment
from kgw.errors import CorruptionError, DiskFullError, StorageError
from kgw.records.limits import DecompressionLimits

if TYPE_CHECKING:
    from collections.abc import Callable

_LOWEST_PRIORITY = 19
_REST = 2.0
"""How long the disk is left to others after a sync, in times of what the sync took."""


class SideFileError(Exception):
    """What ended the run is a damaged side file: that of the segment with this base offset."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(str(base_offset))
        self.base_offset = base_offset


def encode_order(order: CompactionOrder) -> bytes:
    """Return the line that tells the process what to do."""
    job = order.job._asdict() | {"kept_batches": sorted(order.job.kept_batches)}
    return json.dumps(order._asdict() | {"job": job}).encode() + b"\n"


def decode_order(line: bytes) -> CompactionOrder:
    """Return what `encode_order` was given."""
    fields: dict[str, Any] = json.loads(line)
    job = fields["job"]
    job["kept_batches"] = frozenset(job["kept_batches"])
    job["aborted"] = tuple(map(tuple, job["aborted"]))
    job["limits"] = DecompressionLimits(*job["limits"])
    return CompactionOrder(
        fields["path"],
        tuple(SourceSegment(*one) for one in fields["sources"]),
        fields["start_offset"],
        CompactionJob(**job),
        LogSettings(*fields["settings"]),
        fields["min_free_bytes"],
    )


def decode_line(line: bytes) -> CompactedSegment | CompactionReport:
    """Return what a line of the process says.

    Raises what has ended the run there: CorruptionError, SideFileError, StorageError; ValueError
    for anything else.
    """
    try:
        ((kind, value),) = json.loads(line).items()
        match kind:
            case "compacted":
                base_offset, replaced, *numbers = value
                return CompactedSegment(base_offset, tuple(replaced), *numbers)
            case "report":
                return CompactionReport(*value)
    except (AttributeError, TypeError) as error:
        raise ValueError(str(error)) from error
    match kind:
        case "side_file":
            raise SideFileError(value)
        case "corruption":
            raise CorruptionError(value)
        case "full":
            raise DiskFullError(value)
        case "failed":
            raise StorageError(value)
    raise ValueError(f"{kind} is nothing that ends a run")


def run(order: CompactionOrder, write: Callable[[str, object], None]) -> None:
    """Compact, and say what happens."""
    compaction = Compaction(RealFs(), order, _Pace(order.job.bytes_per_s))
    try:
        for compacted in compaction.run():
            write("compacted", compacted)
        write("report", compaction.report)
    except SideFileDamagedError as error:
        write("side_file", error.segment.base_offset)
    except CorruptionError as error:
        write("corruption", str(error))
    except OSError as error:
        write("full" if is_out_of_space(error) else "failed", str(error))
    except SyncFailedError as error:
        # Of files that nobody relies on yet: only this run has failed.
        write("failed", str(error))


class _Pace(Pace):
    """Waits so that no more bytes are moved in a second than allowed, and the disk has rests."""

    def __init__(self, bytes_per_s: int | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._due_s = self._last_s = time.monotonic()

    def moved(self, size_bytes: int) -> None:
        now_s = time.monotonic()
        if self._bytes_per_s:
            # Time that was not used is not made up for.
            self._due_s = max(self._due_s, now_s) + size_bytes / self._bytes_per_s
            time.sleep(max(0.0, self._due_s - now_s))
        self._last_s = time.monotonic()

    def synced(self) -> None:
        # Whoever appends meanwhile waits for the same disk.
        time.sleep((time.monotonic() - self._last_s) * _REST)


def main() -> None:
    """Take the order, and end with the parent."""
    os.nice(_LOWEST_PRIORITY)
    order = decode_order(sys.stdin.buffer.readline())
    Thread(target=_end_with_parent, daemon=True).start()

    def write(kind: str, value: object) -> None:
        sys.stdout.write(json.dumps({kind: value}) + "\n")
        sys.stdout.flush()

    run(order, write)


def _end_with_parent() -> None:
    # Not through sys.stdin: a thread that waits in there holds its lock, without which the
    # interpreter cannot end. It would abort, and the abort hide what it was ending for.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
