"""Syncs one or many segments at the same time.

Measured with a thousand files on one disk, each with 6 KB of new bytes. Syncing one file after the
other took 235 ms and 90 ms of processor time. Eight threads, which compete for the interpreter,
took 64 ms and 40 ms. With 64 files per call to the kernel, it took 40 ms and 5 ms.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded.failures import SyncFailedError
from kgw.problems import is_out_of_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.embedded.files.pool import PooledFile
    from kgw.backend.embedded.log.segment import Segment

_TOGETHER: Final = 64
"""The most files to sync at a time, even if the pool's limit of open files is lower."""


def sync_segments(segments: Sequence[Segment]) -> list[SyncFailedError | None]:
    """Sync segments that were written since the start. Runs in a thread that may wait.

    Returns the error of each segment, or None.
    """
    outcomes: dict[Segment, SyncFailedError | None] = {}
    for start in range(0, len(segments), _TOGETHER):
        some = segments[start : start + _TOGETHER]
        if len(some) > 1:
            outcomes |= _sync_batches_together(some)
        for segment in some:
            if segment not in outcomes:
                outcomes[segment] = _sync_alone(segment)
    return [outcomes[segment] for segment in segments]


def _sync_alone(segment: Segment) -> SyncFailedError | None:
    try:
        segment.sync()
    except SyncFailedError as error:
        return error
    except OSError as error:
        if is_out_of_descriptors(error) and segment.pool.sync_failure is None:
            # A file with unsynced bytes is never closed. As this file is closed, another thread has
            # synced it.
            return None
        return SyncFailedError(str(error))
    return None


def sync_all_files(segments: Sequence[Segment]) -> None:
    """Sync segments and their side files, except removed ones.

    Raises OSError, SyncFailedError.
    """
    for start in range(0, len(segments), _TOGETHER):
        some = [one for one in segments[start : start + _TOGETHER] if not one.is_removed]
        sides = [one for one in some if one.side_is_dirty]
        synced = _sync_batches_together(some)
        synced_sides: dict[Segment, SyncFailedError | None] = {}
        for segment in sides:
            # Reset before the sync, because entries may be written during the sync.
            segment.side_is_dirty = False
        try:
            synced_sides = _sync_together(sides, lambda segment: segment.side_path)
        finally:
            for segment in sides:
                if segment not in synced_sides:
                    segment.side_is_dirty = True
        for failure in (*synced.values(), *synced_sides.values()):
            if failure is not None:
                raise failure
        for segment in some:
            if segment not in synced:
                segment.sync()
            segment.sync_side()


def _sync_batches_together(
    segments: Sequence[Segment],
) -> dict[Segment, SyncFailedError | None]:
    for segment in segments:
        segment.sent_bytes = segment.size_bytes
    return _sync_together(segments, lambda segment: segment.log_path)


def _sync_together(
    segments: Sequence[Segment], path_of: Callable[[Segment], str]
) -> dict[Segment, SyncFailedError | None]:
    """Sync one file of each segment at the same time, with `FilePool.sync_together`.

    The result lacks files that another thread is syncing, and files that cannot be opened.
    """
    used: dict[PooledFile, Segment] = {}
    try:
        for segment in segments:
            # The caller then syncs this file alone, and gets its error.
            with suppress(OSError):
                used[segment.pool.acquire(path_of(segment))] = segment
        if not used:
            return {}
        outcomes = segments[0].pool.sync_together(list(used))
        return {used[pooled]: failure for pooled, failure in outcomes.items()}
    finally:
        for pooled, segment in used.items():
            segment.release(pooled)
