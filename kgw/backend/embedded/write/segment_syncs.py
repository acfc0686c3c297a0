"""Syncs of segments: one, or many side by side.

A thousand files that got 6 KB each, on one disk: 235 ms and 90 ms of processor time one after the
other, 64 ms and 40 in eight threads, which hand each other the interpreter, and 40 ms and 5 when
the kernel is given 64 at a time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded.failures import SyncFailedError, is_out_of_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.embedded.files.pool import PooledFile
    from kgw.backend.embedded.log.segment import Segment

_TOGETHER: Final = 64
"""So many files are in use at a time, which may be more than the pool would keep open."""


def sync_segments(segments: Sequence[Segment]) -> list[SyncFailedError | None]:
    """Sync segments that were written since the start, in a thread that may wait.

    Returns what went wrong with each.
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
            # With unsynced bytes it would be open: another has synced it since it was written.
            return None
        return SyncFailedError(str(error))
    return None


def sync_all_files(segments: Sequence[Segment]) -> None:
    """Sync segments and their side files, but for removed ones.

    Raises OSError, SyncFailedError.
    """
    for start in range(0, len(segments), _TOGETHER):
        some = [one for one in segments[start : start + _TOGETHER] if not one.is_removed]
        sides = [one for one in some if one.side_is_dirty]
        synced = _sync_batches_together(some)
        synced_sides: dict[Segment, SyncFailedError | None] = {}
        for segment in sides:
            # First: what is written while this runs makes the file dirty again.
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
    """Sync one file of each segment; those are left out that somebody else is at, or that are gone.

    Side by side, as `FilePool.sync_together`.
    """
    used: dict[PooledFile, Segment] = {}
    try:
        for segment in segments:
            # Whoever tries it alone says what is wrong with it.
            with suppress(OSError):
                used[segment.pool.acquire(path_of(segment))] = segment
        if not used:
            return {}
        outcomes = segments[0].pool.sync_together(list(used))
        return {used[pooled]: failure for pooled, failure in outcomes.items()}
    finally:
        for pooled, segment in used.items():
            segment.release(pooled)
