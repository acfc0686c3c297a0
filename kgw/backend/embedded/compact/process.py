"""The process that rewrites segments: `python -m kgw.backend.embedded.compact.process`.

It has the lowest priority, so that it does not slow down the event loop. The first line on standard
input is the order. This process ends when standard input is closed, as it is when the parent
process ends. Each line on standard output is a JSON object with one member: `segment`, `compacted`,
`recompressed`, or the error that has ended the run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from threading import Thread
from typing import TYPE_CHECKING, Any

from kgw.backend.base import (
    CompactionJob,
    CompactionReport,
    LogSettings,
    RecompressionJob,
    RecompressionReport,
)
from kgw.backend.embedded.compact.compaction import SegmentCompaction
from kgw.backend.embedded.compact.recompression import SegmentRecompression
from kgw.backend.embedded.compact.rewriting import Order, RewriteThrottle, SourceSegment
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
"""Length of the pause after a sync, as a multiple of the sync's duration. The pause lets other
processes use the disk."""


class SideFileError(Exception):
    """The run has ended because the side file of the segment with this base offset is damaged."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(str(base_offset))
        self.base_offset = base_offset


def encode_order(order: Order[Any]) -> bytes:
    """Return the line that contains an order for the process."""
    kind = "compact" if isinstance(order.job, CompactionJob) else "recompress"
    fields = order._asdict() | {"job": order.job._asdict()}
    # JSON has no sets, so a set becomes a sorted list.
    return json.dumps({kind: fields}, default=sorted).encode() + b"\n"


def decode_order(line: bytes) -> Order[Any]:
    """Return the order that `encode_order` has encoded."""
    ((kind, fields),) = json.loads(line).items()
    job: dict[str, Any] = fields["job"]
    job["limits"] = DecompressionLimits(*job["limits"])
    if kind == "compact":
        job["kept_batches"] = frozenset(job["kept_batches"])
        job["aborted"] = tuple(map(tuple, job["aborted"]))
        fields["job"] = CompactionJob(**job)
    else:
        fields["job"] = RecompressionJob(**job)
    fields["sources"] = tuple(SourceSegment(*one) for one in fields["sources"])
    fields["settings"] = LogSettings(*fields["settings"])
    return Order(**fields)


def decode_line(line: bytes) -> CompactedSegment | CompactionReport | RecompressionReport:
    """Return the segment or report in a line of the process.

    If the line contains the error that has ended the run, this error is raised: CorruptionError,
    SideFileError, StorageError. Raises ValueError for any other line.
    """
    try:
        ((kind, value),) = json.loads(line).items()
        match kind:
            case "segment":
                base_offset, replaced, *numbers = value
                return CompactedSegment(base_offset, tuple(replaced), *numbers)
            case "compacted":
                return CompactionReport(*value)
            case "recompressed":
                report = RecompressionReport(*value)
                return report._replace(failures=tuple(report.failures))
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


def run(order: Order[Any], write: Callable[[str, object], None]) -> None:
    """Execute the order; write one line for each new segment, and one for the result."""
    kind = SegmentCompaction if isinstance(order.job, CompactionJob) else SegmentRecompression
    rewriting = kind(RealFs(), order, _ByteThrottle(order.job.bytes_per_s))
    try:
        for segment in rewriting.run():
            write("segment", segment)
        report = rewriting.report
        if isinstance(report, CompactionReport):
            write("compacted", report)
        else:
            write("recompressed", report._replace(processor_s=time.process_time()))
    except SideFileDamagedError as error:
        write("side_file", error.segment.base_offset)
    except CorruptionError as error:
        write("corruption", str(error))
    except OSError as error:
        write("full" if is_out_of_space(error) else "failed", str(error))
    except SyncFailedError as error:
        # No log uses the new files yet, so only this run has failed.
        write("failed", str(error))


class _ByteThrottle(RewriteThrottle):
    """Limits the bytes read and written per second, and pauses after syncs."""

    def __init__(self, bytes_per_s: int | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._due_s = self._last_s = time.monotonic()

    def moved(self, size_bytes: int) -> None:
        now_s = time.monotonic()
        if self._bytes_per_s:
            # An idle second does not allow more bytes later.
            self._due_s = max(self._due_s, now_s) + size_bytes / self._bytes_per_s
            time.sleep(max(0.0, self._due_s - now_s))
        self._last_s = time.monotonic()

    def synced(self) -> None:
        # Pause, so that appends get the disk.
        time.sleep((time.monotonic() - self._last_s) * _REST)


def main() -> None:
    """Read the order and execute it; end when the parent process ends."""
    os.nice(_LOWEST_PRIORITY)
    order = decode_order(sys.stdin.buffer.readline())
    Thread(target=_end_with_parent, daemon=True).start()

    def write(kind: str, value: object) -> None:
        sys.stdout.write(json.dumps({kind: value}) + "\n")
        sys.stdout.flush()

    run(order, write)


def _end_with_parent() -> None:
    # Do not use sys.stdin here. A thread that waits in sys.stdin holds its lock, which the
    # interpreter needs to exit. The interpreter would abort and hide the error for which it was
    # exiting.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
