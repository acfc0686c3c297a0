"""Values that a client may send and a broker stores or refuses, by a field's name or its kind.

They are special offsets and times, limits of zero, sizes below zero, numbers at the ends of their
range, names that nothing has. What would take a broker long, as a wait or a million partitions, is
not among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.handlers.support import batch

if TYPE_CHECKING:
    from kgw.protocol.schema import Field

LARGEST_INT32 = 2**31 - 1
LARGEST_INT64 = 2**63 - 1
SMALLEST_INT64 = -(2**63)
FIRST_MS = 1_700_000_000_000
"""The time of the first of the records that are prepared; each later one is a second after."""


class Known(NamedTuple):
    """What each server has given by itself, as the id of a topic: asked for by kind and name."""

    kind: str
    name: str


def records() -> list[Any]:
    """Return what may stand where a batch belongs."""
    good = bytes(batch(b"one", timestamps_ms=[FIRST_MS + 9_000]))
    damaged = bytearray(good)
    damaged[-1] ^= 1
    return [
        None,
        b"",
        b"rubbish",
        good[:-1],
        good + good,
        bytes(damaged),
        good[:16] + b"\7" + good[17:],
        bytes(batch(b"a", b"b", timestamps_ms=[FIRST_MS, -1])),
        bytes(batch(b"one", timestamps_ms=[LARGEST_INT64])),
        bytes(batch(b"one", timestamps_ms=[0])),
        bytes(batch(b"p", producer_id=77, base_sequence=0)),
        bytes(batch(b"p", producer_id=78, base_sequence=5)),
        bytes(batch(b"p", producer_id=79, base_sequence=-1)),
        bytes(batch(b"p", producer_id=80, base_sequence=0, is_transactional=True)),
        bytes(batch(b"", is_control=True)),
    ]


_TEXTS = ("", "nothing", "nothing b/ü", "nothing" + "x" * 300)
BY_KIND: dict[str, tuple[Any, ...]] = {
    "bool": (False, True),
    "int8": (-1, 0, 1, 2, 3, 127),
    "int16": (-2, -1, 0, 1, 2, 32_767),
    "int32": (-2, -1, 0, 1, 2, LARGEST_INT32),
    "int64": (SMALLEST_INT64, -2, -1, 0, 1, LARGEST_INT64),
    "string": _TEXTS,
    "bytes": (b"", b"\0", b"some bytes"),
    "uuid": (bytes(16), bytes([0] * 15 + [1]), bytes(range(16))),
    "records": (),
}

_OFFSETS = (SMALLEST_INT64, -5, -2, -1, 0, 1, 3, 4, LARGEST_INT64)
_EPOCHS = (-2, -1, 0, 1, LARGEST_INT32)
_TIMES = (0, -1, 1_000)
_SIZES = (-1, 0, 1, 70, LARGEST_INT32)
_PARTITIONS = (-1, 0, 1, 2, LARGEST_INT32)
BY_NAME: dict[str, tuple[Any, ...]] = {
    "acks": (-2, -1, 0, 1, 2, 32_767),
    "committed_metadata": ("", "note", "ü" * 4096, "ü" * 4097, "🦜" * 2048, "🦜" * 2049),
    "committed_offset": _OFFSETS,
    "config_operation": (-1, 0, 1, 2, 3, 4, 127),
    "count": (-1, 0, 1, 2, 3, 5),
    "current_leader_epoch": _EPOCHS,
    "duration_filter": (SMALLEST_INT64, -1, 0, LARGEST_INT64),
    "endpoint_type": (-1, 0, 1, 2, 3),
    "fetch_offset": _OFFSETS,
    "isolation_level": (-1, 0, 1, 2),
    "key_type": (-1, 0, 1, 2, 3),
    "last_fetched_epoch": _EPOCHS,
    "leader_epoch": _EPOCHS,
    "max_bytes": _SIZES,
    "max_num_offsets": (-1, 0, 1, 10),
    "max_wait_ms": (0, -1, 1),
    "min_bytes": (-1, 0, 1),
    "num_partitions": (-2, -1, 0, 1, 2),
    "offset": _OFFSETS,
    "partition": _PARTITIONS,
    "partition_index": _PARTITIONS,
    "partition_max_bytes": _SIZES,
    "rebalance_timeout_ms": (-1, 0, 1_000, LARGEST_INT32),
    # Kafka counts those that it gives from 0.
    "producer_id": (SMALLEST_INT64, -2, -1, 1 << 40, LARGEST_INT64),
    "producer_id_filters": (SMALLEST_INT64, -1, 1 << 40, LARGEST_INT64),
    # Others are those of brokers: what they are answered rests on replicas.
    "replica_id": (-1, -2),
    "replication_factor": (-2, -1, 0, 1, 2),
    "resource_type": (-1, 0, 1, 2, 3, 4, 8, 16, 32, 99),
    "response_partition_limit": (-1, 0, 1, 2_000, LARGEST_INT32),
    "session_epoch": (-1, 0, 1, LARGEST_INT32),
    "session_id": (-1, 0, 1, LARGEST_INT32),
    "session_timeout_ms": (-1, 0, 5_999, 6_000, 1_800_000, 1_800_001),
    "timeout_ms": _TIMES,
    "timestamp": (
        *(-number for number in range(1, 9)),
        *(0, FIRST_MS, FIRST_MS + 500, FIRST_MS + 1_000, FIRST_MS + 9_999),
        *(SMALLEST_INT64, LARGEST_INT64),
    ),
    "transaction_timeout_ms": (-1, 0, 1, 60_000, 900_000, 900_001, LARGEST_INT32),
    "transactional_id_pattern": ("", ".*", "(", "nothing", ".*-t"),
    # Kafka 4.4 has three ways to enable them, each with requirements of its own.
    "enable2_pc": (False,),
    "keep_prepared_txn": (False,),
}


def of(name: str, field: Field) -> tuple[Any, ...]:
    """Return the values that a field is tried with."""
    if name == "records":
        return tuple(records())
    found = BY_NAME.get(name)
    return BY_KIND[field.kind] if found is None else found
