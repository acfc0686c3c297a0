"""The rules for which neighbouring files of a partition become one. Pure.

A run of files is joined when it weighs at least `FACTOR` times as much as the heaviest of them. So
each byte that is written again moves to a file that is at least `FACTOR` times as heavy as its file
before: from a file of 20 KB to one of 64 MB it is written four times. The remaining files are few:
fewer than `FACTOR` of equal weight, and fewer than `FACTOR` of those next to heavier ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from kgw.backend.seaweedmq.chain.files import ChainFile

FACTOR: Final = 8
MOST_FILES: Final = 64
"""The most files in one run: the lists of chunks of all of them are read for it."""
_ENTRY_BYTES: Final = 4 << 10
"""Added to the weight of each file: files are joined for the sake of their number."""
_SPAN_MS: Final = 3_600_000
_AGE_BY_SPAN: Final = 8


class JoinLimits(NamedTuple):
    """The limits of a joined file."""

    file_bytes: int
    start_offset: int = 0
    """Files that begin below it stay as they are: a run of another kind is about to rewrite them.
    """
    borders: tuple[int, ...] = ()
    """Offsets at which a file must still end if it does now: compaction, for example, has treated
    whole files below such an offset."""
    left_alone: Container[str] = ()
    """Names of files that cannot be read."""


def find_run(files: Sequence[ChainFile], bounds: JoinLimits, now_ms: int) -> Sequence[ChainFile]:
    """Return the first run of neighbours that are worth joining; empty if there is none.

    `files` are a chain's; the active one, which is the last, is never joined. A joined file covers
    no more time than an hour or an eighth of its age: retention removes whole files, and so comes
    late by an eighth at most.
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
