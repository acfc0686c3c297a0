"""One task of an archive job: reads a range and writes its files, or returns why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.shared import check_seen
from kgw.pipeline.archive.units import Lost, Unit, write_unit
from kgw.pipeline.errors import (
    DamagedRecordsError,
    DataLossError,
    PipelineError,
    TopicChangedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

    from kgw.pipeline.archive.entry import Piece
    from kgw.pipeline.archive.units import Sizes
    from kgw.pipeline.arrow.decode import Decoded
    from kgw.pipeline.cluster import Cluster
    from kgw.pipeline.ranges import OffsetRange
    from kgw.pipeline.wire import Reading, WireClient

MAX_GAPS: Final = 1000
"""Each accepted gap ends a file. A response with more gaps than this comes from a compacted
topic."""


class UnitSettings(NamedTuple):
    """The settings that all units of a job share."""

    cluster: Cluster
    generation: Path
    topic_id: UUID
    reading: Reading
    sizes: Sizes
    accept_loss: bool = False
    """Whether to declare removed records as lost; otherwise they raise UnreadableError."""
    allow_gaps: bool = False
    """Whether offsets without a record are normal, as after compaction."""
    run: str = ""
    """The name of the run, which becomes part of its file names."""


class Refused(NamedTuple):
    """A range cannot be archived from `offset` on, and a retry would fail, too."""

    why: str
    offset: int


class UnreadableError(ArchiveError):
    """A range cannot be archived from `offset` on."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset


class Archived(NamedTuple):
    """The result of archiving one range."""

    pieces: tuple[Piece, ...]
    """Files and holes that cover the offsets that were read, from the first one on."""
    read_bytes: int = 0
    """The size of the read records as Arrow arrays."""
    altered_keys: int = 0
    """The number of record header keys that are not UTF-8; their invalid bytes were replaced."""


def attempt_range(settings: UnitSettings, wanted: OffsetRange) -> Archived | Refused:
    """Archive a range, and return a `Refused` if its records cannot be read.

    Raises ClientError, and TopicChangedError, which concerns all partitions of the topic.
    """
    try:
        return archive_range(settings, wanted)
    except TopicChangedError:
        raise
    except UnreadableError as error:
        return Refused(str(error), error.offset)
    except PipelineError as error:
        return Refused(str(error), wanted.first)


def archive_range(settings: UnitSettings, wanted: OffsetRange) -> Archived:
    """Read a range and write its files; they belong to the archive once they are committed.

    A range that is much larger than estimated ends early, with the last returned file or hole.

    Raises ArchiveError, ClientError, PipelineError.
    """
    check_seen(settings.generation)
    unit = Unit(settings.topic_id, wanted.partition, wanted.first, wanted.end)
    with settings.cluster.client() as wire:
        reader = _Reader(wire, settings, wanted)
        pieces = write_unit(
            settings.generation,
            unit,
            reader.read(),
            sizes=settings.sizes,
            may_end_early=True,
            run=settings.run,
        )
    return Archived(pieces, reader.read_bytes, reader.altered_keys)


class _Reader:
    """Reads a range from the log."""

    def __init__(self, wire: WireClient, settings: UnitSettings, wanted: OffsetRange) -> None:
        self.read_bytes = 0
        self.altered_keys = 0
        self._wire = wire
        self._settings = settings
        self._wanted = wanted

    def read(self) -> Iterator[Decoded | Lost]:
        """Yield the range's records, and its lost offsets if loss is accepted.

        Raises UnreadableError if records cannot be read, TopicChangedError and PipelineError.
        """
        position, end = self._wanted.first, self._wanted.end
        while position < self._wanted.end:
            try:
                for part in self._parts(self._wanted._replace(first=position, end=end)):
                    yield part
                    position = part.next_offset
                if position < end:
                    return
                end = self._wanted.end
            except (DataLossError, DamagedRecordsError) as error:
                lost = self._find_lost(error)
                if lost.first > position:
                    # The failed fetch also had records before the lost ones: read these records
                    # first.
                    end = lost.first
                    continue
                yield lost
                position = lost.next_offset

    def _parts(self, wanted: OffsetRange) -> Iterator[Decoded | Lost]:
        """Yield a range's records.

        Without `allow_gaps`, yield gaps as lost, or raise UnreadableError.
        """
        position = wanted.first
        for part in self._wire.decoded(wanted, reading=self._settings.reading):
            self.read_bytes += part.batch.nbytes
            self.altered_keys += part.altered_keys
            if part.missing and not self._settings.allow_gaps:
                _check_gaps(wanted, part, accept_loss=self._settings.accept_loss)
                yield from split_at_gaps(part, position)
            else:
                yield part
            position = part.next_offset

    def _find_lost(self, error: DataLossError | DamagedRecordsError) -> Lost:
        """Return the lost offsets if loss is accepted, else raise UnreadableError."""
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
            if end is None:
                probed = self._wire.damage_end(self._wanted, error.first)
                end = probed if probed > error.first else None
            text = str(error)
        if end is None:
            # Without a known end nothing can be declared lost: records may still be written at the
            # end of the log, and records after damage may be intact.
            raise UnreadableError(text, error.first) from None
        if not self._settings.accept_loss:
            text = f"{text}; accept the loss to go on behind them"
            raise UnreadableError(text, error.first) from None
        return Lost(error.first, min(end, self._wanted.end))


def split_at_gaps(part: Decoded, first: int) -> Iterator[Decoded | Lost]:
    """Yield the records of a response from `first` on, and each gap as lost. Pure."""
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
