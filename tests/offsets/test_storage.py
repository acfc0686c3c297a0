from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.offsets.recovery import Checkpoint
from kgw.offsets.storage import (
    CHECKPOINT_KIND,
    LoadedCheckpoints,
    OffsetStorage,
    decode_checkpoint,
    encode_checkpoint,
)
from kgw.state.base import Change, DamagedRowsError, Row
from kgw.state.memory import MemoryStateStore
from kgw.types import PartitionKey, TopicId, parse_partition_key

FIRST = Checkpoint(TopicId(b"a" * 16), 0, 1, 2, 3, 0, 400, clean=True)
SECOND = Checkpoint(TopicId(b"\xff" * 16), 12, 0, 9, 0, 5, 0, clean=False)


def key_of(checkpoint: Checkpoint) -> PartitionKey:
    """Return the partition that a checkpoint belongs to."""
    return PartitionKey(checkpoint.topic_id, checkpoint.partition)


@pytest.fixture
def storage() -> OffsetStorage:
    """Return an empty storage."""
    return OffsetStorage(MemoryStateStore())


async def test_what_was_saved_is_loaded(storage: OffsetStorage) -> None:
    """Each partition's last checkpoint comes back."""
    await storage.save([FIRST, SECOND])
    await storage.save([FIRST._replace(next_offset=8)])

    assert (
        LoadedCheckpoints(
            {key_of(FIRST): FIRST._replace(next_offset=8), key_of(SECOND): SECOND}, frozenset()
        )
        == await storage.load()
    )


async def test_what_was_deleted_is_gone(storage: OffsetStorage) -> None:
    """Deleting what is not there is no error."""
    await storage.save([FIRST, SECOND])

    await storage.delete([key_of(FIRST), PartitionKey(TopicId(b"n" * 16), 1)])

    assert {key_of(SECOND): SECOND} == (await storage.load()).checkpoints


class DamagedStore(MemoryStateStore):
    """A store in which some rows fail their checksum."""

    async def load(self, kind: str) -> dict[str, Row]:
        """Raise as a store with a checksum does."""
        raise DamagedRowsError(kind, await super().load(kind), [str(key_of(FIRST)), "\x7f"])


async def test_damaged_rows_are_named_and_cost_nobody_else() -> None:
    """A checkpoint that fails its checksum is one partition's loss of time."""
    state = DamagedStore()
    storage = OffsetStorage(state)
    await storage.save([SECOND])

    loaded = await storage.load()

    assert {key_of(SECOND): SECOND} == loaded.checkpoints
    assert frozenset({key_of(FIRST)}) == loaded.damaged
    assert loaded.unreadable_keys == ("\x7f",)


async def test_rows_that_are_no_checkpoints_are_damaged() -> None:
    """Whatever stands in a row, loading does not fail."""
    state = MemoryStateStore()
    await state.apply(
        [Change(CHECKPOINT_KIND, str(key_of(FIRST)), b"{}"), Change(CHECKPOINT_KIND, "x", b"{}")]
    )

    loaded = await OffsetStorage(state).load()

    assert LoadedCheckpoints({}, frozenset({key_of(FIRST)}), ("x",)) == loaded


@given(
    topic_id=st.binary(min_size=16, max_size=16),
    numbers=st.lists(st.integers(0, 2**63 - 1), min_size=6, max_size=6),
    clean=st.booleans(),
)
def test_checkpoints_round_trip(topic_id: bytes, numbers: list[int], clean: bool) -> None:
    """JSON keeps 64 bits of every number, and ids of any bytes."""
    checkpoint = Checkpoint._make([TopicId(topic_id), *numbers, clean])

    assert checkpoint == decode_checkpoint(encode_checkpoint(checkpoint))
    assert key_of(checkpoint) == parse_partition_key(str(key_of(checkpoint)))


def test_fields_of_a_later_version_are_skipped() -> None:
    """A newer program may have added some."""
    fields = json.loads(encode_checkpoint(FIRST)) | {"later": 1}

    assert FIRST == decode_checkpoint(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"topic_id": "short"},
        {"topic_id": 5},
        {"partition": "0"},
        {"next_offset": 1.5},
        {"next_offset": None},
        {"leader_epoch": True},
        {"clean": 1},
    ],
)
def test_other_values_are_refused(change: dict[str, object]) -> None:
    """A checkpoint of the wrong types is none."""
    fields = json.loads(encode_checkpoint(FIRST)) | change

    with pytest.raises(ValueError, match=r"."):
        decode_checkpoint(json.dumps(fields).encode())


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b"\xff", b"null"])
def test_other_json_is_refused(value: bytes) -> None:
    """Anything but an object with the fields is no checkpoint."""
    with pytest.raises(ValueError, match=r"."):
        decode_checkpoint(value)


@pytest.mark.parametrize(
    "text", ["", "x", "YWFhYWFhYWFhYWFhYWFhYQ-x", "YWFhYWFhYWFhYWFhYWFhYQ-01", "YWFh-0"]
)
def test_other_keys_are_refused(text: str) -> None:
    """A key is an id and a number, written in one way."""
    with pytest.raises(ValueError, match=r"."):
        parse_partition_key(text)
