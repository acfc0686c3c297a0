"""What can be wrong with a copy of logs, each by itself: it is named, in both directions."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.backend import log_copy
from kgw.backend.embedded import layout
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.offline.log_place import opened_source, opened_target
from kgw.backend.log_copy import LogPlace, copy_logs
from kgw.errors import CorruptionError
from kgw.testing.backend_harness import KEY, TOPIC
from kgw.testing.batches import make_batch
from tests.backend.seaweedmq.damages import CHUNKS, FILES, RECORDS, Damaged
from tests.backend.seaweedmq.namespaces import Filers, fill, namespace_logs
from tests.findings import findings_of, pattern_of, unplanted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from kgw.backend.log_copy import LogFacts
    from kgw.records.batch import RecordBatch
    from kgw.types import PartitionKey

DIRECTIONS = ("to a namespace", "to a directory")
COUNT = 10
"""Batches of the source, of three records each."""


def as_they_are(batches: list[RecordBatch]) -> list[RecordBatch]:
    """Return what there is."""
    return batches


def renewed(base_offset: int, values: Sequence[bytes | None] = (b"x", None, b"y")) -> RecordBatch:
    """Return a sound batch that the source does not have."""
    batch = make_batch(values)
    batch.assign(base_offset, 0)
    return batch


class Faulty(LogPlace):
    """A place that reads or stores something else than there is."""

    def __init__(self, place: LogPlace, read: Any = as_they_are, store: Any = as_they_are) -> None:
        self._place = place
        self._read = read
        self._store = store

    async def logs(self) -> list[LogFacts]:
        return await self._place.logs()

    async def batches(self, key: PartitionKey, from_offset: int) -> AsyncIterator[RecordBatch]:
        for batch in self._read([one async for one in self._place.batches(key, from_offset)]):
            yield batch

    async def begin(self, facts: LogFacts) -> int | None:
        return await self._place.begin(facts)

    async def append(self, key: PartitionKey, batches: Sequence[RecordBatch]) -> None:
        await self._place.append(key, self._store(list(batches)))

    async def finish(self, facts: LogFacts) -> None:
        await self._place.finish(facts)


class Places(NamedTuple):
    """Where a copy comes from and goes to."""

    source: LogPlace
    target: LogPlace

    async def copied(self) -> str | None:
        """Copy the log; return why it is not there as a whole."""
        facts = await self.source.logs()
        (one,) = [one async for one in copy_logs(self.source, self.target, facts, lambda _: None)]
        return one.failure

    async def store(self, batches: list[RecordBatch]) -> None:
        """Have the target begin with some batches, as an earlier copy would."""
        (facts,) = await self.source.logs()
        assert await self.target.begin(facts) is None
        await self.target.append(KEY, batches)


@pytest.fixture(params=DIRECTIONS)
async def places(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Places]:
    """A source with a log, and an empty target, in each direction."""
    filers = Filers()
    async with AsyncExitStack() as stack:
        if request.param == "to a namespace":
            await fill(EmbeddedBackend(str(tmp_path / "data")), COUNT)
            source: LogPlace = await stack.enter_async_context(
                opened_source(str(tmp_path / "data"))
            )
            target: LogPlace = await namespace_logs(filers, stack)
        else:
            await fill(filers.backend(), COUNT)
            source = await namespace_logs(filers, stack)
            target = await stack.enter_async_context(opened_target(str(tmp_path / "copy")))
        yield Places(source, target)


class Wrong(NamedTuple):
    """Something that can be wrong with a copy."""

    says: str
    plant: Callable[[Places], Any]
    """Returns the places with it, or has the target store what it must not have."""


def reading(change: Any) -> Callable[[Places], Places]:
    """Have the source give something else."""
    return lambda places: places._replace(source=Faulty(places.source, read=change))


def storing(change: Any) -> Callable[[Places], Places]:
    """Have the target store something else."""
    return lambda places: places._replace(target=Faulty(places.target, store=change))


def reading_back(change: Any) -> Callable[[Places], Places]:
    """Have the target give something else."""
    return lambda places: places._replace(target=Faulty(places.target, read=change))


def begun_with(*batches: Callable[[], RecordBatch]) -> Callable[[Places], Any]:
    """Have an earlier copy of something else in the target."""
    return lambda places: places.store([batch() for batch in batches])


def without(number: int) -> Any:
    """Leave a batch out."""
    return lambda batches: [*batches[:number], *batches[number + 1 :]]


def with_another(number: int) -> Any:
    """Put a sound batch of the same offsets in the place of one."""
    return lambda batches: [*batches[:number], renewed(3 * number), *batches[number + 1 :]]


def with_more(batches: list[RecordBatch]) -> list[RecordBatch]:
    """Add a batch behind the last one."""
    return [*batches, renewed(3 * COUNT)]


WRONG = {
    "the target is of a longer log": Wrong(
        "the target ends at offset 33, behind the source's end 30: it is no copy of it",
        begun_with(*(partial(renewed, 3 * number) for number in range(COUNT + 1))),
    ),
    "the target ends within a batch": Wrong(
        "the source has changed since the copy was begun: a batch has offsets 0 to 2, and the "
        "target ends at 2",
        begun_with(partial(renewed, 0, [b"a", b"b"])),
    ),
    "a batch is missing in the source": Wrong("offsets 12 to 14 are missing", reading(without(4))),
    "the source's first batch is missing": Wrong("offsets 0 to 2 are missing", reading(without(0))),
    "the source's last batch is missing": Wrong(
        "offsets 27 to 29 are missing", reading(without(9))
    ),
    "an earlier copy was of something else": Wrong(
        "the copy differs from its source at offset 0",
        begun_with(*(partial(renewed, 3 * number) for number in range(COUNT))),
    ),
    "an earlier copy had one batch of something else": Wrong(
        "the copy differs from its source at offset 0", begun_with(partial(renewed, 0))
    ),
    "a batch is stored as another": Wrong(
        "the copy differs from its source at offset 12", storing(with_another(4))
    ),
    "the last batch is stored as another": Wrong(
        "the copy differs from its source at offset 27", storing(with_another(9))
    ),
    "a batch cannot be read back": Wrong("offsets 12 to 14 are missing", reading_back(without(4))),
    "more is read back": Wrong(
        "the copy has more than its source, from offset 30 on", reading_back(with_more)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_each_thing_that_can_be_wrong_with_a_copy_is_named(
    places: Places, wrong: Wrong
) -> None:
    """It is the reason for which the log is not there as a whole."""
    planted = wrong.plant(places)
    if not isinstance(planted, Places):
        await planted
        planted = places
    failure = await planted.copied()
    assert wrong.says == failure


@pytest.mark.slow
@pytest.mark.parametrize("store", [without(4), without(9), with_more])
async def test_a_target_that_stores_less_or_more_is_no_copy(places: Places, store: Any) -> None:
    """Whoever finds it first: the target, which ends elsewhere or has a hole, or the comparison."""
    assert await storing(store)(places).copied() is not None


@pytest.mark.slow
async def test_a_copy_with_nothing_wrong_is_whole(places: Places) -> None:
    """At once, and once more where all is there already."""
    assert [None, None] == [await places.copied(), await places.copied()]


def test_each_message_of_a_comparison_is_tried() -> None:
    """A message that nothing plants would be one that nobody has seen."""
    makers = ["CorruptionError"]
    assert 5 == len(findings_of(log_copy, makers=makers))
    assert [] == unplanted([log_copy], [one.says for one in WRONG.values()], makers=makers)


# --- a log that is copied in part ----------------------------------------------------------------


@pytest.mark.slow
async def test_a_log_that_ends_elsewhere_is_not_finished() -> None:
    """It is let go of, and the copy goes on where it ended."""
    filers = Filers()
    await fill(filers.backend(), COUNT)
    other = Filers()
    async with AsyncExitStack() as stack:
        source = await namespace_logs(filers, stack)
        target = await namespace_logs(other, stack)
        (facts,) = await source.logs()
        half = [one async for one in source.batches(KEY, 0)][: COUNT // 2]
        assert await target.begin(facts) is None
        await target.append(KEY, half)
        with pytest.raises(CorruptionError, match="ends at 15, not at 30"):
            await target.finish(facts)
        assert 15 == await target.begin(facts)


# --- a source that is damaged ---------------------------------------------------------------------

HARMLESS = (
    # What is looked at by a check alone, or is not copied.
    "a batch that lies",
    "a file that no list names",
    "a snapshot is cut off",
    "a snapshot fails its checksum",
    "a snapshot of another format",
    "a snapshot's bytes are gone",
    # Nothing of what is left is wrong, whatever the state says of what is not.
    "the log ends before its end",
    "the log begins behind its end",
    "the log ends before the state says it did",
    "a group is behind the log's end",
)
OTHERWISE = {
    "the leader entry is another's": "its files are not those of partition",
    "bytes of a chunk are gone": "is gone",
    "all is gone": "nothing says which files there are",
    "all is gone of what the state knows nothing of": "nothing says which files there are",
    "a file is not listed": "are missing",
}
"""What a copy says instead of what a check says."""
OF_RECORDS = {**FILES, **CHUNKS, **RECORDS}


@pytest.mark.slow
@pytest.mark.damages_storage("an interrupted copy is left")
@pytest.mark.parametrize("name", [name for name in OF_RECORDS if name not in HARMLESS])
async def test_a_damaged_log_is_not_copied_as_a_whole(name: str, tmp_path: Path) -> None:
    """Whatever a check names of its records: the copy says so in the same words."""
    kind = OF_RECORDS[name]
    damaged = Damaged()
    await damaged.plant(kind)
    async with AsyncExitStack() as stack:
        source = await namespace_logs(damaged, stack)
        target = await stack.enter_async_context(opened_target(str(tmp_path / "copy")))
        try:
            failure = await Places(source, target).copied()
        except CorruptionError as error:
            failure = str(error)
    assert failure is not None
    says = OTHERWISE.get(name, re.sub(r", at position \d+", "", kind.says))
    assert pattern_of(says).search(failure), failure


@pytest.mark.damages_storage("the offset of the last batch is another one")
async def test_a_rotted_batch_does_not_say_where_a_log_ends(tmp_path: Path) -> None:
    """Its offset is in no checksum of its own: the log ends where what is intact does."""
    await fill(EmbeddedBackend(str(tmp_path / "data")), COUNT)
    (path,) = (tmp_path / "data" / layout.PARTITIONS_DIRECTORY / str(KEY)).glob("*.log")
    data = bytearray(path.read_bytes())
    data[-(len(data) // COUNT)] ^= 0x40
    path.write_bytes(data)
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(opened_source(str(tmp_path / "data")))
        target = await stack.enter_async_context(opened_target(str(tmp_path / "copy")))
        (facts,) = await source.logs()
        assert 3 * (COUNT - 1) == facts.end_offset
        failure = await Places(source, target).copied()
    assert failure is not None
    assert "is damaged" in failure


# --- a directory that has another partition's files -----------------------------------------------


def identity_path(data_dir: Path) -> Path:
    """Return the file that says whose files the directory of the partition has."""
    return data_dir / layout.PARTITIONS_DIRECTORY / str(KEY) / layout.PARTITION_NAME


def identity_of(partition: int) -> bytes:
    """Return what it says of a partition of the topic."""
    key = KEY._replace(partition=partition)
    return layout.encode_partition(layout.PartitionIdentity(TOPIC, key))


@pytest.mark.damages_storage("a directory says that its files are another partition's")
@pytest.mark.parametrize(
    ("planted", "says"),
    [
        (identity_of(1), f"its files are not those of partition {KEY}, but of partition"),
        (b"{}", f"{layout.PARTITION_NAME}: the checksum does not match"),
        (None, f"{layout.PARTITION_NAME}: is missing"),
    ],
    ids=["another's", "damaged", "missing"],
)
async def test_a_directory_that_is_not_its_partitions_is_not_copied(
    tmp_path: Path, planted: bytes | None, says: str
) -> None:
    """Records of one partition under the name of another would be a copy that nobody notices."""
    await fill(EmbeddedBackend(str(tmp_path / "data")), COUNT)
    path = identity_path(tmp_path / "data")
    assert identity_of(0) == path.read_bytes()
    async with opened_source(str(tmp_path / "data")) as source:
        assert [KEY] == [facts.key for facts in await source.logs()]
        if planted is None:
            path.unlink()
        else:
            path.write_bytes(planted)
        with pytest.raises(CorruptionError) as refused:
            await source.logs()
    assert says in str(refused.value)


@pytest.mark.damages_storage("an interrupted copy is left, and says that it is another partition's")
async def test_nothing_is_copied_over_another_partitions_files(tmp_path: Path) -> None:
    """They, and what says whose they are, stay as they were."""
    await fill(EmbeddedBackend(str(tmp_path / "data")), COUNT)
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(opened_source(str(tmp_path / "data")))
        target = await stack.enter_async_context(opened_target(str(tmp_path / "copy")))
        places = Places(source, target)
        await places.store([renewed(0)])
        identity_path(tmp_path / "copy").write_bytes(identity_of(1))
        files = contents_below(tmp_path / "copy")
        failure = await places.copied()
        assert failure is not None
        assert f"not those of partition {KEY}" in failure
        assert files == contents_below(tmp_path / "copy")


def contents_below(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }
