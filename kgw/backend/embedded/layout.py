"""Names in a data directory, and its small JSON files.

A small file is one line of JSON, which people can read, and a line with its CRC-32C, which reveals
flipped bits. A small file is replaced as a whole (temporary file, sync, rename, sync of the
directory). A broken small file is reported and rebuilt. No data is deleted because of it.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kgw.backend.base import EpochStart, Recompressed
from kgw.errors import DataDirectoryError
from kgw.records.crc import crc32c
from kgw.types import PartitionKey, TopicId, TopicName, format_uuid, parse_partition_key, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT_VERSION: Final = 1
"""Version of the data directory's format; newer versions are refused."""

LOCK_NAME: Final = "kgw.lock"
STATE_NAME: Final = "meta.sqlite"
STATE_PLACE_NAME: Final = "state.json"
"""Contains the address of the state's database, if the state is not in this directory."""
FORMAT_NAME: Final = "format.json"
CLEAN_NAME: Final = "clean.json"
COPIED_NAME: Final = "copied.json"
"""Exists if a command has copied all records into the directory and no server was started since."""
STAGES_DIRECTORY: Final = "backup"
"""Holds hard links to files while a backup is made."""
RESTORING_NAME: Final = "restoring.json"
"""Exists while a backup is restored into the directory, and after an interrupted restore."""
JOURNAL_DIRECTORY: Final = "journal"
PARTITIONS_DIRECTORY: Final = "partitions"
QUARANTINE_DIRECTORY: Final = "quarantine"
DELETED_SUFFIX: Final = ".deleted"
"""Suffix of a directory or file that is waiting to be removed."""

COMPACTION_DIRECTORY: Final = "compaction"
"""Directory in a partition's directory with the new segments of a running compaction or
recompression."""
SWAP_SUFFIX: Final = ".swap"

PARTITION_NAME: Final = "partition.json"
LOG_STATE_NAME: Final = "log-state.json"
LOG_STATE_COPY_NAME: Final = "log-state.copy.json"
RESERVATION_NAME: Final = "reserved.json"
EPOCHS_NAME: Final = "leader-epoch-checkpoint"

LOG_SUFFIX: Final = ".log"
SIDE_SUFFIX: Final = ".checksums"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
SNAPSHOT_SUFFIX: Final = ".state"
NEW_SIDE_SUFFIX: Final = ".checksums.new"
"""A new side file that will replace the old one."""

SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, SIDE_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
"""The files of a segment. The file of batches is first: the others are useless without it."""

MAX_POSITION: Final = (1 << 31) - 1
"""Limit of Kafka's positions and relative offsets, which are signed 32-bit integers."""

_OFFSET_DIGITS: Final = 20


class SmallFileError(ValueError):
    """The checksum or content of a small file is wrong."""


class DamagedRange(NamedTuple):
    """Offsets whose bytes are lost. Reads of them get an error, instead of later records."""

    start_offset: int
    end_offset: int

    def __str__(self) -> str:
        if self.start_offset >= self.end_offset:
            return f"the bytes before offset {self.end_offset} are no batch"
        return f"offsets {self.start_offset} to {self.end_offset - 1} are damaged"


class Gap(NamedTuple):
    """Offsets that a relaxed log skipped at a start after an unclean stop.

    Records at these offsets may have been lost, so consumers inside the gap get an error.
    """

    start_offset: int
    end_offset: int


def is_covered(start_offset: int, end_offset: int, ranges: Iterable[tuple[int, int]]) -> bool:
    """Return whether one of the ranges contains all offsets from the first to below the second.

    A range is a `DamagedRange` or a `Gap`.
    """
    return any(start <= start_offset and end_offset <= end for start, end in ranges)


class PartitionIdentity(NamedTuple):
    """The content of `partition.json`: enough to restore a partition without the database."""

    topic: TopicName
    key: PartitionKey


class LeftState(NamedTuple):
    """Size and checksum of the state database after an orderly stop, stored in `clean.json`."""

    size_bytes: int
    crc: int
    """CRC-32C of the whole file."""


class LogState(NamedTuple):
    """The content of `log-state.json`: facts about a log that its segments do not contain."""

    log_start_offset: int = 0
    epochs: tuple[EpochStart, ...] = (EpochStart(0, 0),)
    damaged: tuple[DamagedRange, ...] = ()
    gaps: tuple[Gap, ...] = ()
    compacted_end: int = 0
    """Below this offset each key has only one record. If this value is lost, the next compaction
    run takes longer."""
    recompressed: Recompressed = Recompressed()
    """If this value is lost, the next recompression run reads the segments again and changes
    nothing."""


def segment_stem(base_offset: int) -> str:
    """Return Kafka's file name of a segment, without suffix: twenty digits."""
    return f"{base_offset:0{_OFFSET_DIGITS}d}"


def parse_stem(name: str, suffix: str) -> int | None:
    """Return the offset in a file name with this suffix; None for any other name."""
    stem = name.removesuffix(suffix)
    if len(stem) + len(suffix) != len(name) or len(stem) != _OFFSET_DIGITS:
        return None
    return int(stem) if stem.isascii() and stem.isdigit() else None


def segment_bases(names: Iterable[str]) -> list[int]:
    """Return the base offsets of the segments among the files of a partition, sorted."""
    found = (parse_stem(name, LOG_SUFFIX) for name in names)
    return sorted(base_offset for base_offset in found if base_offset is not None)


def swap_name(first_base_offset: int, last_base_offset: int) -> str:
    """Return the name of the file that marks a running replacement of a range of segments."""
    return f"{segment_stem(first_base_offset)}-{segment_stem(last_base_offset)}{SWAP_SUFFIX}"


def parse_swap_name(name: str) -> tuple[int, int] | None:
    """Return the first and last base offset in the name of a swap file; None for any other name."""
    first_name, separator, last_name = name.partition("-")
    first = parse_stem(first_name, "")
    last = parse_stem(last_name, SWAP_SUFFIX)
    return (first, last) if separator and first is not None and last is not None else None


def parse_directory_name(name: str) -> PartitionKey | None:
    """Return the partition of a directory with this name; None if the name is not a partition's."""
    try:
        return parse_partition_key(name)
    except ValueError:
        return None


def partition_keys(names: Iterable[str]) -> list[PartitionKey]:
    """Return the partitions whose directories are among these names, in the order of the names."""
    found = map(parse_directory_name, names)
    return [key for key in found if key is not None]


def encode_small(fields: dict[str, Any]) -> bytes:
    """Return the content of a small file."""
    body = json.dumps(fields, separators=(",", ":"), ensure_ascii=True).encode("ascii") + b"\n"
    return body + b"crc32c %08x\n" % crc32c(body)


def decode_small(data: bytes) -> dict[str, Any]:
    """Return the fields of a small file. Raises SmallFileError."""
    body, newline, check = data.partition(b"\n")
    body += newline
    if check != b"crc32c %08x\n" % crc32c(body):
        raise SmallFileError("the checksum does not match")
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise SmallFileError(str(error)) from error
    if not isinstance(fields, dict):
        raise SmallFileError("not an object")
    return fields


@contextmanager
def _read_fields(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the fields of a small file. Raises SmallFileError, also for wrong fields."""
    fields = decode_small(data)
    try:
        yield fields
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise SmallFileError(f"lacks or mistypes {error}") from error


def encode_clean(left: LeftState | None) -> bytes:
    """Return the content of `clean.json`; `left` is None if the state is in another database."""
    fields: dict[str, Any] = {"clean": True}
    if left is not None:
        fields["state"] = left
    return encode_small(fields)


def decode_clean(data: bytes) -> LeftState | None:
    """Return the state database's size and checksum in `clean.json`. Raises SmallFileError."""
    with _read_fields(data) as fields:
        left = fields.get("state")
        return None if left is None else LeftState(int(left[0]), int(left[1]))


def encode_partition(identity: PartitionIdentity) -> bytes:
    """Return the content of `partition.json`."""
    return encode_small(
        {
            "format": FORMAT_VERSION,
            "topic": identity.topic,
            "topic_id": format_uuid(identity.key.topic_id),
            "partition": identity.key.partition,
        }
    )


def decode_partition(data: bytes) -> PartitionIdentity:
    """Return the identity stored in `partition.json`. Raises SmallFileError."""
    with _read_fields(data) as fields:
        topic = fields["topic"]
        key = PartitionKey(TopicId(parse_uuid(fields["topic_id"])), int(fields["partition"]))
    if not isinstance(topic, str):
        raise SmallFileError("the topic is not a name")
    return PartitionIdentity(TopicName(topic), key)


def encode_log_state(state: LogState) -> bytes:
    """Return the content of `log-state.json`."""
    return encode_small(
        {
            "format": FORMAT_VERSION,
            "log_start_offset": state.log_start_offset,
            "epochs": state.epochs,
            "damaged": state.damaged,
            "gaps": state.gaps,
            "compacted_end": state.compacted_end,
            "recompressed": state.recompressed,
        }
    )


def decode_log_state(data: bytes) -> LogState:
    """Return the state stored in `log-state.json`. Raises SmallFileError."""
    with _read_fields(data) as fields:
        epochs = tuple(EpochStart(int(one[0]), int(one[1])) for one in fields["epochs"])
        damaged = tuple(DamagedRange(int(one[0]), int(one[1])) for one in fields["damaged"])
        gaps = tuple(Gap(int(one[0]), int(one[1])) for one in fields.get("gaps", ()))
        log_start_offset = int(fields["log_start_offset"])
        compacted_end = int(fields.get("compacted_end", 0))
        recompressed = Recompressed(*map(int, fields.get("recompressed", ())))
    if not epochs or list(epochs) != sorted(epochs):
        raise SmallFileError("the epochs are not in order")
    return LogState(log_start_offset, epochs, damaged, gaps, compacted_end, recompressed)


def encode_reservation(reserved_end: int) -> bytes:
    """Return the content of `reserved.json`."""
    return encode_small({"format": FORMAT_VERSION, "reserved_end": reserved_end})


def decode_reservation(data: bytes) -> int:
    """Return the end of the reservation in `reserved.json`. Raises SmallFileError."""
    reserved_end = decode_small(data).get("reserved_end")
    if type(reserved_end) is not int or reserved_end < 0:
        raise SmallFileError(f"reserved_end is {reserved_end!r}")
    return reserved_end


def encode_epochs(epochs: Iterable[EpochStart]) -> bytes:
    """Return the history of epochs in the text form of Kafka's `leader-epoch-checkpoint`."""
    lines = [f"{epoch.leader_epoch} {epoch.start_offset}\n" for epoch in epochs]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode("ascii")


def check_format(data: bytes) -> None:
    """Raise DataDirectoryError if the content of the format file is damaged or a newer version."""
    try:
        version = decode_small(data).get("format")
    except SmallFileError as error:
        raise DataDirectoryError(f"{FORMAT_NAME} is damaged: {error}") from error
    if version != FORMAT_VERSION:
        raise DataDirectoryError(
            f"the data directory has format {version}; this program knows {FORMAT_VERSION}"
        )
