"""What a task of archive does: reads a range and writes its files, or says why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.units import Lost, Unit, write_unit
from kgw.pipeline.errors import (
    DamagedRecordsError,
    DataLossError,
    PipelineError,
    TopicChangedError,
)
from kgw.pipeline.wire import WireClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

    from kgw.pipeline.archive.entry import Piece
    from kgw.pipeline.archive.units import Sizes
    from kgw.pipeline.arrow.decode import Decoded
    from kgw.pipeline.ranges import OffsetRange
    from kgw.pipeline.wire import Reading

MAX_GAPS: Final = 1000
"""Each accepted gap ends a file. With more than these in an answer, the topic was compacted."""


class UnitSettings(NamedTuple):
    """What a task is told, beside its range."""

    bootstrap: str
    generation: Path
    topic_id: UUID
    reading: Reading
    sizes: Sizes
    accept_loss: bool = False
    """Whether what is gone is declared lost, or refused."""
    allow_gaps: bool = False
    """Whether offsets may have no record, as in a log that was compacted."""


class Refused(NamedTuple):
    """Why a range cannot be archived from an offset on; another attempt would find the same."""

    why: str
    offset: int


class UnreadableError(ArchiveError):
    """A range that cannot be archived from an offset on."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset


def attempt_range(settings: UnitSettings, wanted: OffsetRange) -> tuple[Piece, ...] | Refused:
    """Do `archive_range`, and return what is wrong with the range.

    Raises ClientError, and TopicChangedError: no partition can be read then.
    """
    try:
        return archive_range(settings, wanted)
    except TopicChangedError:
        raise
    except UnreadableError as error:
        return Refused(str(error), error.offset)
    except PipelineError as error:
        return Refused(str(error), wanted.first)


def archive_range(settings: UnitSettings, wanted: OffsetRange) -> tuple[Piece, ...]:
    """Read a range and write its files; they count when they are committed.

    A range that turns out to be much larger than it seemed ends early: the last piece says where.

    Raises ArchiveError, ClientError, PipelineError.
    """
    unit = Unit(settings.topic_id, wanted.partition, wanted.first, wanted.end)
    with WireClient(settings.bootstrap) as wire:
        parts = _read(wire, settings, wanted)
        return write_unit(
            settings.generation, unit, parts, sizes=settings.sizes, may_end_early=True
        )


def _read(
    wire: WireClient, settings: UnitSettings, wanted: OffsetRange
) -> Iterator[Decoded | Lost]:
    """Yield what a range holds, and what is lost of it where that is accepted.

    Raises UnreadableError for what cannot be read, and TopicChangedError, PipelineError.
    """
    position, end = wanted.first, wanted.end
    while position < wanted.end:
        try:
            for part in _parts(wire, settings, wanted._replace(first=position, end=end)):
                yield part
                position = part.next_offset
            if position < end:
                return
            end = wanted.end
        except (DataLossError, DamagedRecordsError) as error:
            lost = _find_lost(wire, settings, wanted, error)
            if lost.first > position:
                # What can be read before it was fetched together with it: once more, without it.
                end = lost.first
                continue
            yield lost
            position = lost.next_offset


def _find_lost(
    wire: WireClient,
    settings: UnitSettings,
    wanted: OffsetRange,
    error: DataLossError | DamagedRecordsError,
) -> Lost:
    """Return what cannot be read, where that is accepted. Raises UnreadableError otherwise."""
    if isinstance(error, DataLossError):
        end = error.end if error.is_removed else None
        where = f"topic {error.topic} partition {error.partition}"
        happened = "were removed from the log while they were archived"
        text = (
            f"{where}: offsets {error.first} to {error.end - 1} "
            f"{happened if error.is_removed else 'cannot be read'}: {error.why}"
        )
    else:
        end = error.end
        if end is None and (probed := wire.damage_end(wanted, error.first)) > error.first:
            end = probed
        text = str(error)
    if end is None:
        # Behind the end of a log others may write, and what follows damage may be whole.
        raise UnreadableError(text, error.first) from None
    if not settings.accept_loss:
        raise UnreadableError(
            f"{text}; accept the loss to go on behind them", error.first
        ) from None
    return Lost(error.first, min(end, wanted.end))


def _parts(
    wire: WireClient, settings: UnitSettings, wanted: OffsetRange
) -> Iterator[Decoded | Lost]:
    """Yield a range's records, without gaps that cannot be."""
    position = wanted.first
    for part in wire.decoded(wanted, reading=settings.reading):
        if part.missing and not settings.allow_gaps:
            _check_gaps(wanted, part, accept_loss=settings.accept_loss)
            yield from split_at_gaps(part, position)
        else:
            yield part
        position = part.next_offset


def split_at_gaps(part: Decoded, first: int) -> Iterator[Decoded | Lost]:
    """Yield an answer from `first` on with its missing offsets as lost ones. Pure."""
    offsets = part.batch.column("offset").to_numpy()

    def between(low: int, high: int) -> Decoded:
        row, end = offsets.searchsorted([low, high])
        ranges = [one for one in part.control_ranges if low <= one[0] < high]
        return part._replace(
            batch=part.batch.slice(row, end - row),
            next_offset=high,
            control_ranges=ranges,
            missing=(),
        )

    for gap in part.missing:
        if gap[0] > first:
            yield between(first, gap[0])
        yield Lost(*gap)
        first = gap[1]
    if first < part.next_offset:
        yield between(first, part.next_offset)


def _check_gaps(wanted: OffsetRange, part: Decoded, *, accept_loss: bool) -> None:
    first, end = part.missing[0]
    where = f"topic {wanted.topic} partition {wanted.partition}"
    if not accept_loss:
        raise UnreadableError(
            f"{where}: offsets {first} to {end - 1} have no record, though the topic is not "
            "compacted: the log has lost them, unless compaction or a restore has left them so; "
            "accept the loss to go on behind them, or allow gaps",
            first,
        )
    if len(part.missing) > MAX_GAPS:
        raise UnreadableError(
            f"{where}: from offset {first} to {part.missing[-1][1] - 1} there are "
            f"{len(part.missing)} gaps, as compaction leaves them, though the topic is not "
            "compacted; allow gaps to go on",
            first,
        )
