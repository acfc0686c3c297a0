"""Decides which neighbouring files of a partition are joined. Pure.

A run of files is joined if it weighs at least `FACTOR` times as much as its heaviest file. So each
rewritten byte moves to a file that is at least `FACTOR` times as heavy as its old file. From a file
of 20 KB to a file of 64 MB, a byte is written four times. Few files remain: fewer than `FACTOR` of
about equal weight next to each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from kgw.backend.seaweedmq.chain.files import ChainFile

FACTOR: Final = 8
MOST_FILES: Final = 64
"""The most files in one run, because the lists of chunks of all these files are read."""
_ENTRY_BYTES: Final = 4 << 10
"""Added to the weight of each file, because every file has a cost."""
_SPAN_MS: Final = 3_600_000
_AGE_BY_SPAN: Final = 8


class JoinLimits(NamedTuple):
    """The limits of a joined file."""

    file_bytes: int
    start_offset: int = 0
    """Files that begin below this offset are not joined, because a compaction or recompression run
    holds them."""
    borders: tuple[int, ...] = ()
    """Offsets at which a file must end if one ends there now. For example, all files below such an
    offset are compacted."""
    left_alone: Container[str] = ()
    """Names of files that cannot be read."""


def find_run(files: Sequence[ChainFile], bounds: JoinLimits, now_ms: int) -> Sequence[ChainFile]:
    """Return the first run of neighbouring files to join; empty if there is none.

    `files` are all files of a chain; the last one is active and never joined. A joined file covers
    at most an hour, or an eighth of its age if that is more. Retention removes whole files, so it
    is late by at most an eighth.
    """
    sealed = len(files) - 1
    for first in range(sealed):
        if files[first].base_offset < bounds.start_offset:
            continue
        size_bytes = weight = heaviest = found = 0
        for number in range(first, min(first + MOST_FILES, sealed)):
            file = files[number]
            size_bytes += file.size_bytes
            if (
                size_bytes > bounds.file_bytes
                or file.name in bounds.left_alone
                or (number > first and _is_between(bounds.borders, files[number - 1], file))
                or not _may_span(files[first].begun_ms, files[number + 1].begun_ms, now_ms)
            ):
                break
            own = file.size_bytes + _ENTRY_BYTES
            weight += own
            heaviest = max(heaviest, own)
            if size_bytes and weight >= FACTOR * heaviest:
                found = number + 1
        if found:
            return files[first:found]
    return ()


def _is_between(borders: Sequence[int], before: ChainFile, file: ChainFile) -> bool:
    return any(before.end_offset <= border <= file.base_offset for border in borders)


def _may_span(begun_ms: int, ended_ms: int, now_ms: int) -> bool:
    return ended_ms - begun_ms <= max(_SPAN_MS, (now_ms - ended_ms) // _AGE_BY_SPAN)
