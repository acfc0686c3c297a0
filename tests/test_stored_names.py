"""The stored forms that take their names, or the order of their values, from fields of classes.

Renaming or moving such a field changes the stored form: data of an older version could no
longer be read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import EpochStart, Recompressed
from kgw.backend.embedded.backup.manifest import (
    FileIdentity,
    Manifest,
    SegmentPart,
    StoredFile,
    StoredLog,
    StoredSegment,
    encode_manifest,
)
from kgw.backend.embedded.layout import LogState
from kgw.backend.embedded.state_place import StatePlace, write_place
from kgw.backend.seaweedmq.chain.leader import FileRow, Leader, leader_entry
from kgw.backend.seaweedmq.chain.marks import Marks
from kgw.backend.seaweedmq.log.detail import PartitionDetail
from kgw.backend.seaweedmq.state.placed_state import StateDatabase
from kgw.offsets.recovery import Checkpoint
from kgw.offsets.storage import encode_checkpoint
from kgw.pipeline.archive.entry import DataFile, Hole, encode_piece
from kgw.pipeline.archive.tables.registered import TableSettings, register
from kgw.types import PartitionKey, TopicId, TopicName
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.state.base import Change

TOPIC_ID = TopicId(bytes(range(16)))
EPOCHS = (EpochStart(0, 0), EpochStart(2, 90))
FILE = DataFile("a.parquet", 1, 2, 9, 7, 600, 5, None, "append", "crc32c:1", ((3, 3),), 1, 4)


def value_of(change: Change) -> bytes:
    """Return the content of a stored row."""
    assert change.value is not None
    return change.value


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (
            encode_checkpoint(Checkpoint(TOPIC_ID, 1, 2, 9, 3, 5, 600, clean=True)),
            (
                b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partition":1,"log_start_offset":2,'
                b'"next_offset":9,"leader_epoch":3,"segment_base_offset":5,"segment_position":600,'
                b'"clean":true}'
            ),
        ),
        (
            PartitionDetail(3, EPOCHS, 90, 17, 60, Recompressed(1, 2, 3, 4)).encode(),
            (
                b'{"version":1,"log_start_offset":3,"epochs":[[0,0],[2,90]],"clean_end":90,'
                b'"last_ts_ns":17,"compacted_end":60,"recompressed":[1,2,3,4]}'
            ),
        ),
        (
            value_of(StateDatabase("postgresql://db/kgw", "id", is_bound=True).change()),
            b'{"url": "postgresql://db/kgw", "identity": "id", "is_bound": true}',
        ),
        (
            json.dumps(encode_piece(FILE)).encode(),
            (
                b'{"type": "file", "path": "a.parquet", "partition": 1, "first": 2, "last": 9, '
                b'"rows": 7, "bytes": 600, "min_ts_ns": 5, "max_ts_ns": null, "kind": "append", '
                b'"checksum": "crc32c:1", "control_ranges": [[3, 3]], "holes": 1, "schema_id": 4}'
            ),
        ),
        (
            json.dumps(encode_piece(Hole(1, 10, 12, "removed"))).encode(),
            b'{"type": "hole", "partition": 1, "first": 10, "last": 12, "reason": "removed"}',
        ),
    ],
    ids=["checkpoint", "detail", "database", "file", "hole"],
)
def test_a_stored_form_has_the_names_of_its_fields(stored: bytes, expected: bytes) -> None:
    """Byte by byte."""
    assert expected == stored


def test_a_leader_entry_has_the_values_of_a_file_in_the_order_of_its_fields() -> None:
    """They have no names there."""
    row = FileRow("a", 0, 5, 17, 600, 16, 700)
    leader = Leader((row,), is_active_there=True, last_name="b", unwanted=("c",), detail=b"detail")
    entry = leader_entry(leader, Marks(b"i" * 16, 3, 4, b"writer"), 18)
    content = json.loads(entry.content)
    assert [["a", 0, 5, 17, 600, 16, 700]] == content["files"]
    found = row.as_file()
    assert ("a", 0, 5, 17) == (found.name, found.base_offset, found.end_offset, found.begun_ms)
    assert (600, 16, 700) == (found.size_bytes, found.largest_timestamp_ms, found.content_bytes)


def test_a_backup_has_the_names_of_its_fields() -> None:
    """Its small parts are lists without names."""
    stored = StoredFile(5, "sha-a", FileIdentity(1, 2))
    parts = (SegmentPart(0, 6, "sha-b"),)
    segment = StoredSegment(0, is_sealed=True, source=FileIdentity(3, 4), pieces=parts, side=stored)
    state = LogState(1, EPOCHS)
    log = StoredLog(PartitionKey(TOPIC_ID, 1), TopicName("a"), 9, state, (segment,), {8: stored})
    manifest = Manifest("full", 17, "1.0", "cluster", None, StoredFile(7, "sha-c"), (log,))
    content = json.loads(encode_manifest(manifest).rpartition(b"}")[0] + b"}")
    (stored_log,) = content.pop("logs")
    assert {
        "format": 1,
        "name": "full",
        "created_ms": 17,
        "kgw_version": "1.0",
        "cluster_id": "cluster",
        "parent": None,
        "state": [7, "sha-c", None],
    } == content
    (text, _) = stored_log.pop("state").split("\n", 1)
    assert {
        "format": 1,
        "log_start_offset": 1,
        "epochs": [[0, 0], [2, 90]],
        "damaged": [],
        "gaps": [],
        "compacted_end": 0,
        "recompressed": [0, 0, 0, 0],
    } == json.loads(text)
    assert {
        "key": "AAECAwQFBgcICQoLDA0ODw-1",
        "topic": "a",
        "end_offset": 9,
        "segments": [
            {
                "base_offset": 0,
                "is_sealed": True,
                "source": [3, 4],
                "pieces": [[0, 6, "sha-b"]],
                "side": [5, "sha-a", [1, 2]],
            }
        ],
        "snapshots": {"8": [5, "sha-a", [1, 2]]},
    } == stored_log


def test_the_place_of_the_state_has_the_names_of_its_fields() -> None:
    """In `state.json`."""
    fs = SimulatedFs()
    fs.mkdir("data")
    write_place(fs, "data", StatePlace("postgresql://db/kgw", "id"))
    stored = b'{"url":"postgresql://db/kgw","identity":"id"}\ncrc32c e0a9cf28\n'
    assert stored == fs.read_bytes("data/state.json")


def test_the_settings_of_a_table_have_the_names_of_their_fields(tmp_path: Path) -> None:
    """In `_tables`."""
    register(tmp_path, TableSettings("iceberg", "lake"))
    stored = (tmp_path / "_tables" / "iceberg.json").read_bytes()
    assert b'{"format": 1, "kind": "iceberg", "catalog": "lake"}' == stored
