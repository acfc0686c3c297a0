"""The facts about a partition in its chain's leader entry. Pure."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from kgw.backend.base import EpochStart, Recompressed
from kgw.errors import CorruptionError

_VERSION: Final = 1


class PartitionDetail(NamedTuple):
    """The facts about a partition that the files alone do not show."""

    # The field names are stored: renaming a field changes the stored form.
    log_start_offset: int = 0
    epochs: tuple[EpochStart, ...] = (EpochStart(0, 0),)
    """Kafka's leader epochs. A new one begins when the last stop was not orderly."""
    clean_end: int = -1
    """The end of the log at an orderly stop. If the end is the same at a start, nothing was written
    since then."""
    last_ts_ns: int = 0
    """SMQ's time of the last entry at the stop. Times rise with the offsets."""
    compacted_end: int = 0
    recompressed: Recompressed = Recompressed()

    def opened(self, end_offset: int) -> PartitionDetail:
        """Return the detail for an opened log, with a new leader epoch if one must begin.

        An epoch without records continues, because readers cannot have seen records of it that are
        missing now. But the epoch does not continue if the log has lost its end, or if the epoch
        began after the present end.
        """
        last = self.epochs[-1]
        is_shorter = end_offset < self.clean_end
        if end_offset == self.clean_end or (end_offset == last.start_offset and not is_shorter):
            return self
        begun = EpochStart(last.leader_epoch + 1, end_offset)
        kept = [epoch for epoch in self.epochs if epoch.start_offset < end_offset]
        # The log has lost its end, so the end at the orderly stop must not count if the log reaches
        # it again.
        clean_end = -1 if is_shorter else self.clean_end
        return self._replace(epochs=(*kept, begun), clean_end=clean_end)

    def lost_end(self, end_offset: int, known_end: int = 0) -> str | None:
        """Return the error text for a log that ends too early; None for any other log.

        `known_end` is the log's end according to the state, which may be too low.
        """
        lost_end, when = max(
            (self.clean_end, "where it ended at an orderly stop"),
            (known_end, "where the state has it end"),
        )
        if end_offset >= lost_end:
            return None
        return (
            f"the log ends at {end_offset}, before {lost_end}, {when}: what is between them is gone"
        )

    def raised(self, log_start_offset: int) -> PartitionDetail:
        """Return the detail with a later log start, without the epochs that end before it."""
        kept = [
            epoch
            for epoch, following in zip(self.epochs, self.epochs[1:], strict=False)
            if following.start_offset > log_start_offset
        ]
        return self._replace(log_start_offset=log_start_offset, epochs=(*kept, self.epochs[-1]))

    def encode(self) -> bytes:
        """Return the detail as JSON, which people can read in `weed shell`."""
        return json.dumps({"version": _VERSION, **self._asdict()}, separators=(",", ":")).encode()


def decode_detail(data: bytes) -> PartitionDetail:
    """Read the bytes that `encode` has made. Raises CorruptionError."""
    try:
        fields = json.loads(data)
        version = fields.pop("version")
        if version != _VERSION:
            raise CorruptionError(
                f"a partition's detail is of version {version}, this kgw knows {_VERSION}"
            )
        epochs = tuple(EpochStart(int(epoch), int(start)) for epoch, start in fields["epochs"])
        recompressed = Recompressed(*map(int, fields["recompressed"]))
        numbers = {
            name: int(value)
            for name, value in fields.items()
            if name not in ("epochs", "recompressed")
        }
        if not epochs:
            raise CorruptionError("a partition's detail has no leader epoch")
        return PartitionDetail(epochs=epochs, recompressed=recompressed, **numbers)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptionError(f"a partition's detail cannot be understood: {error}") from error
