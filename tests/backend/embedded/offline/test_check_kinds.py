"""Each kind of damage that the offline check names, planted alone; the kinds are the code's own."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import LogSettings, Snapshot
from kgw.backend.embedded import layout
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.log import journal, log_state, side, snapshots
from kgw.backend.embedded.log.indexes import OFFSET_ENTRY, TIME_ENTRY
from kgw.backend.embedded.offline import check, derived_check
from kgw.backend.embedded.offline.check import check_data_dir, check_directory
from kgw.backend.embedded.store import look_at_state
from kgw.partitions.topics.topic import TopicRow
from kgw.records.batch import PREFIX_BYTES, read_batch
from kgw.records.crc import crc32c
from kgw.state.base import Change
from kgw.state.kinds import TOPIC as TOPIC_KIND
from kgw.testing.batches import make_batch
from kgw.types import format_uuid
from tests.backend.embedded.driver import (
    DIRECT,
    JOURNALED,
    KEY,
    OTHER_KEY,
    ROOT,
    TOPIC,
    Driver,
    drop_before,
)
from tests.backend.embedded.driver import SMALL_SEGMENTS as SEGMENTS
from tests.findings import findings_of, pattern_of, unplanted

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

COUNT = 12
BATCH_BYTES = len(make_batch([b"record 000"]).buffer)
FIRST, MIDDLE, LAST = (layout.segment_stem(offset) for offset in (0, 5, 10))


def stopped(*, is_clean: bool = True, is_journaled: bool = False) -> Driver:
    """Return a directory of twelve batches in three segments, which no store uses."""
    driver = Driver(JOURNALED if is_journaled else DIRECT, SEGMENTS)
    for number in range(COUNT):
        driver.append(b"record %03d" % number, timestamp_ms=1000 + number)
    driver.store.directory.fs.replace_durably(
        driver.path(layout.RESERVATION_NAME), layout.encode_reservation(0)
    )
    snapshots.write_snapshot(driver.fs, driver.path("")[:-1], Snapshot(10, b"producers"))
    if is_clean:
        driver.stop_only()
    else:
        if not is_journaled:
            driver.checkpoint()
        driver.store.abandon()
    return driver


@dataclass
class Kind:
    """One kind: how it is planted in a stopped directory, and what the check says of it."""

    name: str
    plant: Callable[[Driver], object]
    path: str
    """Which file it is said of; one of the partition's where it does not begin with a slash."""
    details: tuple[str, ...]
    """All that is found, word for word but for "…"."""
    is_clean: bool = True
    is_journaled: bool = False
    reads_records: bool = False
    make: Callable[[], Driver] | None = None


def flip(name: str, position: int) -> Callable[[Driver], object]:
    """Flip a bit of one of the partition's files."""
    return lambda driver: driver.flip(driver.path(name), position)


def cut(name: str, size_bytes: int) -> Callable[[Driver], object]:
    """Take bytes from a file's end."""

    def plant(driver: Driver) -> None:
        del driver.fs.content(driver.path(name))[-size_bytes:]

    return plant


def add(name: str, data: bytes) -> Callable[[Driver], object]:
    """Put bytes behind a file's end."""
    return lambda driver: driver.fs.content(driver.path(name)).extend(data)


def remove(*names: str) -> Callable[[Driver], object]:
    """Remove files of the partition."""

    def plant(driver: Driver) -> None:
        for name in names:
            driver.fs.unlink(driver.path(name))

    return plant


def write(name: str, data: bytes) -> Callable[[Driver], object]:
    """Replace a file, or make one."""
    return lambda driver: driver.fs.replace_durably(driver.path(name), data)


def all_of(*plants: Callable[[Driver], object]) -> Callable[[Driver], object]:
    """Do several things."""

    def plant(driver: Driver) -> None:
        for one in plants:
            one(driver)

    return plant


def files_of(stem: str) -> list[str]:
    """Return the names of a segment's files."""
    return [stem + suffix for suffix in (".log", ".checksums", ".index", ".timeindex")]


def place_aside(driver: Driver) -> None:
    """Put a directory beside the partitions' that is none."""
    driver.fs.make_directory_durably(f"{ROOT}/{layout.PARTITIONS_DIRECTORY}/lost+found")


def note_of_an_exchange(driver: Driver) -> None:
    """Begin an exchange of segments as it was begun once, with a note that is damaged."""
    directory = driver.path(layout.COMPACTION_DIRECTORY)
    driver.fs.make_directory_durably(directory)
    driver.fs.replace_durably(f"{directory}/{FIRST}{layout.SWAP_SUFFIX}", b"rubbish")


def no_checkpoint(driver: Driver) -> None:
    """Lose the rows of the state."""
    driver.checkpoints.clear()


def many() -> Driver:
    """Return a directory with 105 batches in one segment."""
    driver = Driver(DIRECT)
    for number in range(105):
        driver.append(b"record %03d" % number)
    driver.stop_only()
    return driver


def with_copy() -> Driver:
    """Return a directory whose log's state has changed, so that there are two files of it."""
    driver = Driver(DIRECT, SEGMENTS)
    for number in range(COUNT):
        driver.append(b"record %03d" % number)
    drop_before(driver.store, driver.log(), 5)
    driver.stop_only()
    return driver


def flip_many(driver: Driver) -> None:
    """Flip a bit in each of the first 103 entries of the side file."""
    for number in range(103):
        driver.flip(driver.path(f"{FIRST}.checksums"), number * side.ENTRY_BYTES)


def checkpoint_at(offset: int) -> Callable[[Driver], object]:
    """Have the checkpoint name another end."""

    def plant(driver: Driver) -> None:
        driver.checkpoints[KEY] = driver.checkpoints[KEY]._replace(next_offset=offset)

    return plant


def entry_of(**fields: int) -> Callable[[Driver], object]:
    """Have an intact entry of the side file say something else of the batch at offset 1."""

    def plant(driver: Driver) -> None:
        content = driver.fs.content(driver.path(f"{FIRST}.checksums"))
        entry = side.decode_entry(content, side.ENTRY_BYTES)
        assert entry is not None
        content[side.ENTRY_BYTES : 2 * side.ENTRY_BYTES] = side.encode_entry(
            *entry._replace(**fields)
        )

    return plant


def index_of(suffix: str, *entries: tuple[int, int]) -> Callable[[Driver], object]:
    """Replace one of Kafka's indexes of the first segment."""
    row = TIME_ENTRY if suffix == "timeindex" else OFFSET_ENTRY
    return write(f"{FIRST}.{suffix}", b"".join(row.pack(*one) for one in entries))


def frames(*positions: int) -> Callable[[Driver], object]:
    """Flip bits of a journal file."""

    def plant(driver: Driver) -> None:
        for position in positions:
            driver.flip(f"{ROOT}/{layout.JOURNAL_DIRECTORY}/{journal.FILE_NAMES[0]}", position)

    return plant


def lie(driver: Driver) -> None:
    """Have a batch whose checksums are right say that it has two records."""
    content = driver.fs.content(driver.path(f"{LAST}.log"))
    batch = bytearray(content[:BATCH_BYTES])
    batch[57:61] = (2).to_bytes(4, "big")
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    content[:BATCH_BYTES] = batch
    assert read_batch(batch).crc_matches()
    entries = driver.fs.content(driver.path(f"{LAST}.checksums"))
    entry = side.decode_entry(entries)
    assert entry is not None
    entries[: side.ENTRY_BYTES] = side.encode_entry(
        *entry._replace(header_crc=crc32c(batch[: 49 + PREFIX_BYTES]))
    )


MISMATCH = "the checksum does not match"
ENTRY = (
    "SideEntry(base_offset=1, largest_timestamp_ms=1001, durable_end=2, position=78, size_bytes="
)


def small(**fields: object) -> bytes:
    """Return a small file whose checksum is right."""
    return layout.encode_small(fields)


IN_THE_DIRECTORY = [
    Kind(
        "the format is missing",
        lambda driver: driver.fs.unlink(f"{ROOT}/format.json"),
        f"{ROOT}/format.json",
        ("is missing",),
    ),
    Kind(
        "the format is damaged",
        lambda driver: driver.flip(f"{ROOT}/format.json", 5),
        f"{ROOT}/format.json",
        (f"format.json is damaged: {MISMATCH}",),
    ),
    Kind(
        "the format is newer",
        lambda driver: driver.fs.replace_durably(f"{ROOT}/format.json", small(format=99)),
        f"{ROOT}/format.json",
        ("the data directory has format 99; this program knows …",),
    ),
    Kind(
        "the marker of an orderly stop is damaged",
        lambda driver: driver.flip(f"{ROOT}/clean.json", 5),
        f"{ROOT}/clean.json",
        (MISMATCH,),
    ),
    Kind(
        "the journal's first page is damaged",
        frames(0),
        f"{ROOT}/journal",
        ("journal/0.journal: the first page is damaged",),
        is_clean=False,
        is_journaled=True,
    ),
    Kind(
        "frames of the journal are damaged",
        frames(2 * journal.PAGE_BYTES, 3 * journal.PAGE_BYTES),
        f"{ROOT}/journal",
        ("journal/0.journal: frames 1 to 2 are damaged",),
        is_clean=False,
        is_journaled=True,
    ),
    Kind(
        "a directory is no partition's",
        place_aside,
        f"{ROOT}/partitions/lost+found",
        ("is not a partition's directory",),
    ),
]

IN_SMALL_FILES = [
    Kind("the identity is missing", remove("partition.json"), "partition.json", ("is missing",)),
    Kind("the identity is damaged", flip("partition.json", 5), "partition.json", (MISMATCH,)),
    Kind(
        "the identity has no name",
        write("partition.json", small(topic=1, topic_id=format_uuid(KEY.topic_id), partition=0)),
        "partition.json",
        ("the topic is not a name",),
    ),
    Kind(
        "the identity is no object",
        write("partition.json", b"[]\ncrc32c %08x\n" % crc32c(b"[]\n")),
        "partition.json",
        ("not an object",),
    ),
    Kind(
        "the identity is another's",
        write(
            "partition.json", layout.encode_partition(layout.PartitionIdentity(TOPIC, OTHER_KEY))
        ),
        "partition.json",
        (f"is that of {OTHER_KEY}",),
    ),
    Kind("the log's state is missing", remove("log-state.json"), "log-state.json", ("is missing",)),
    Kind("the log's state is damaged", flip("log-state.json", 5), "log-state.json", (MISMATCH,)),
    Kind(
        "the log's state lacks something",
        write("log-state.json", small(log_start_offset=0)),
        "log-state.json",
        ("lacks or mistypes 'epochs'",),
    ),
    Kind(
        "the log's epochs are not in order",
        write("log-state.json", small(log_start_offset=0, epochs=[[1, 0], [0, 0]], damaged=[])),
        "log-state.json",
        ("the epochs are not in order",),
    ),
    Kind(
        "the copy of the log's state is damaged",
        flip("log-state.copy.json", 5),
        "log-state.copy.json",
        (MISMATCH,),
        make=with_copy,
    ),
    Kind("the reservation is damaged", flip("reserved.json", 5), "reserved.json", (MISMATCH,)),
    Kind(
        "the reservation is no offset",
        write("reserved.json", small(reserved_end=-1)),
        "reserved.json",
        ("reserved_end is -1",),
    ),
    Kind(
        "a snapshot is damaged", flip(f"{LAST}.state", 30), f"{LAST}.state", ("fails its checksum",)
    ),
    Kind(
        "the note of an exchange is damaged",
        note_of_an_exchange,
        f"compaction/{FIRST}.swap",
        (f"the note of an exchange is damaged: {MISMATCH}; move its directory out of…",),
    ),
]

IN_SEGMENTS = [
    Kind(
        "a segment is gone",
        remove(*files_of(MIDDLE)),
        f"{LAST}.log",
        ("begins where 5 was expected",),
    ),
    Kind("the first is gone", remove(*files_of(FIRST)), "", ("begins at 5, after its start 0",)),
    Kind(
        "the last is gone",
        remove(*files_of(LAST)),
        "",
        ("ends at 10, below its checkpoint at 12",),
    ),
    Kind(
        "the log is one record short",
        checkpoint_at(COUNT + 1),
        "",
        ("ends at 12, below its checkpoint at 13",),
    ),
    Kind(
        "the log has a record more than at its orderly stop",
        checkpoint_at(COUNT - 1),
        "",
        ("ends at 12, above its clean checkpoint at 11",),
    ),
    Kind(
        "records have rotted",
        flip(f"{FIRST}.log", BATCH_BYTES + 65),
        f"{FIRST}.log",
        ("offsets 1 to 1 are damaged",),
    ),
    Kind(
        "an offset has rotted",
        flip(f"{FIRST}.log", BATCH_BYTES + 3),
        f"{FIRST}.log",
        ("offsets 1 to 1 are damaged",),
    ),
    Kind(
        "a length has rotted",
        flip(f"{FIRST}.log", BATCH_BYTES + 9),
        f"{FIRST}.log",
        ("offsets 1 to 1 are damaged",),
    ),
    Kind(
        "neighbours have rotted",
        all_of(*(flip(f"{FIRST}.log", number * BATCH_BYTES + 65) for number in (1, 2))),
        f"{FIRST}.log",
        ("offsets 1 to 2 are damaged",),
    ),
    Kind(
        "the end of a segment that others follow has rotted",
        flip(f"{FIRST}.log", 5 * BATCH_BYTES - 1),
        f"{FIRST}.log",
        ("offsets 4 to 4 are damaged",),
    ),
    Kind(
        "there is something between two segments",
        add(f"{FIRST}.log", b"rubbish"),
        f"{FIRST}.log",
        ("the bytes before offset 5 are no batch",),
    ),
    Kind(
        "the last batch has rotted",
        flip(f"{LAST}.log", 2 * BATCH_BYTES - 1),
        f"{LAST}.log",
        ("offsets 11 to 11 are damaged",),
    ),
    Kind(
        "the last batch's length has rotted",
        flip(f"{LAST}.log", BATCH_BYTES + 9),
        f"{LAST}.log",
        ("offsets 11 to 11 are damaged",),
    ),
    Kind(
        "all of the last segment has rotted",
        all_of(*(flip(f"{LAST}.log", number * BATCH_BYTES + 65) for number in (0, 1))),
        f"{LAST}.log",
        ("offsets 10 to 11 are damaged",),
    ),
    Kind(
        "the last batch has rotted, and the checkpoint is lost",
        all_of(no_checkpoint, flip(f"{LAST}.log", 2 * BATCH_BYTES - 1)),
        f"{LAST}.log",
        ("offsets 11 to 11 are damaged",),
    ),
    Kind(
        "there is something behind the last batch",
        add(f"{LAST}.log", b"rubbish"),
        f"{LAST}.log",
        ("its last 7 bytes, from position 156 on, are no batch at offset 12",),
    ),
    Kind(
        "what was durable before a kill has rotted",
        flip(f"{LAST}.log", 2 * BATCH_BYTES - 1),
        f"{LAST}.log",
        ("offsets 11 to 11 are damaged",),
        is_clean=False,
    ),
    Kind(
        "what the side file calls durable before a kill has rotted",
        all_of(no_checkpoint, flip(f"{LAST}.log", 2 * BATCH_BYTES - 1)),
        f"{LAST}.log",
        ("offsets 11 to 11 are damaged",),
        is_clean=False,
    ),
    Kind(
        "what was durable before a kill is gone",
        cut(f"{LAST}.log", BATCH_BYTES),
        "",
        ("ends at 11, below its checkpoint at 12",),
        is_clean=False,
    ),
    Kind(
        "what the side file calls durable before a kill is gone",
        all_of(no_checkpoint, cut(f"{LAST}.log", BATCH_BYTES)),
        f"{LAST}.log",
        ("ends at offset 11, and was durable up to 12 by its side file",),
        is_clean=False,
    ),
    Kind(
        "a batch lies",
        lie,
        f"{LAST}.log",
        ("partition 0: the batch at offset 10 is not what its header says: record 1: a number…",),
        reads_records=True,
    ),
]

BESIDE_SEGMENTS = [
    Kind(
        "a side file is missing",
        remove(f"{FIRST}.checksums"),
        f"{FIRST}.checksums",
        ("is missing",),
    ),
    Kind(
        "an entry of a side file has rotted",
        flip(f"{FIRST}.checksums", side.ENTRY_BYTES + 5),
        f"{FIRST}.checksums",
        ("entry 1 fails its checksum",),
    ),
    Kind(
        "an entry of a side file is another's",
        entry_of(size_bytes=3),
        f"{FIRST}.checksums",
        (f"entry 1 is {ENTRY}3, header_crc=…), not {ENTRY}78, header_crc=…)",),
    ),
    Kind(
        "a side file is too long",
        add(f"{FIRST}.checksums", bytes(side.ENTRY_BYTES)),
        f"{FIRST}.checksums",
        ("has 240 bytes where 200 are right",),
    ),
    Kind(
        "a side file is too short",
        cut(f"{FIRST}.checksums", side.ENTRY_BYTES),
        f"{FIRST}.checksums",
        ("has 160 bytes where 200 are right",),
    ),
    Kind(
        "a hundred entries have rotted",
        flip_many,
        f"{FIRST}.checksums",
        (
            *(f"entry {number} fails its checksum" for number in range(100)),
            "has 3 more wrong entries",
        ),
        make=many,
    ),
    Kind(
        "the offset index is cut",
        cut(f"{FIRST}.index", 1),
        f"{FIRST}.index",
        ("has 15 bytes, which is no number of entries",),
    ),
    Kind(
        "the time index is cut",
        cut(f"{FIRST}.timeindex", 1),
        f"{FIRST}.timeindex",
        ("has 23 bytes, which is no number of entries",),
    ),
    Kind(
        "the offset index leads to the wrong place",
        index_of("index", (2, 78), (4, 312)),
        f"{FIRST}.index",
        ("entry (78, 2) is no batch's",),
    ),
    Kind(
        "the time index leads to the wrong time",
        index_of("timeindex", (999, 2), (1004, 4)),
        f"{FIRST}.timeindex",
        ("entry (2, 999) is no batch's",),
    ),
    Kind(
        "the offset index has an entry twice",
        index_of("index", (2, 156), (2, 156), (4, 312)),
        f"{FIRST}.index",
        ("entry (156, 2) does not rise",),
    ),
    Kind(
        "the time index has an entry twice",
        index_of("timeindex", (1002, 2), (1002, 2), (1004, 4)),
        f"{FIRST}.timeindex",
        ("entry (2, 1002) does not rise",),
    ),
]

KINDS = [*IN_THE_DIRECTORY, *IN_SMALL_FILES, *IN_SEGMENTS, *BESIDE_SEGMENTS]


def found_in(driver: Driver, *, reads_records: bool) -> list[tuple[str, str]]:
    """Return file and sentence of everything that the check finds."""
    found = check_directory(ROOT, driver.fs, driver.checkpoints, reads_records=reads_records)
    return [(problem.path, problem.detail) for problem in found]


@pytest.mark.damages_storage("each kind of damage is planted")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.replace(" ", "-"))
def test_each_kind_of_damage_is_found_by_its_name(kind: Kind) -> None:
    """In the file that it is in, and nothing else: what is whole is not accused beside it."""
    make = kind.make or (lambda: stopped(is_clean=kind.is_clean, is_journaled=kind.is_journaled))
    driver = make()
    assert [] == found_in(driver, reads_records=kind.reads_records)
    kind.plant(driver)
    found = found_in(driver, reads_records=kind.reads_records)
    path = kind.path if kind.path.startswith("/") else driver.path(kind.path).rstrip("/")
    assert [path] * len(kind.details) == [where for where, _ in found]
    for detail, (_, sentence) in zip(kind.details, found, strict=True):
        assert pattern_of(detail).fullmatch(sentence), sentence


@pytest.mark.parametrize("is_journaled", [True, False])
@pytest.mark.parametrize("is_clean", [True, False])
def test_nothing_is_found_where_nothing_is_wrong(*, is_clean: bool, is_journaled: bool) -> None:
    """After an orderly stop and after a kill, with the records read and without."""
    driver = stopped(is_clean=is_clean, is_journaled=is_journaled)
    for reads_records in (True, False):
        assert [] == found_in(driver, reads_records=reads_records)


@pytest.mark.parametrize(
    "plant",
    [
        add(f"{LAST}.log", b"an unfinished write"),
        remove(f"{LAST}.checksums"),
        cut(f"{LAST}.checksums", 1),
        remove(f"{FIRST}.index"),
    ],
    ids=["torn-tail", "no-side-file", "torn-side-file", "no-index"],
)
def test_what_a_kill_leaves_and_a_start_mends_is_not_found(
    plant: Callable[[Driver], object],
) -> None:
    """The next start cuts it or makes it anew."""
    driver = stopped(is_clean=False)
    plant(driver)
    assert [] == found_in(driver, reads_records=True)


@pytest.mark.parametrize(
    "plant",
    [flip(f"{LAST}.log", 2 * BATCH_BYTES - 1), cut(f"{LAST}.log", BATCH_BYTES)],
    ids=["torn", "gone"],
)
def test_what_the_journal_writes_again_is_not_found(plant: Callable[[Driver], object]) -> None:
    """A power loss may take what the side file calls durable: it was so in the journal."""
    driver = stopped(is_clean=False, is_journaled=True)
    plant(driver)
    assert [] == found_in(driver, reads_records=True)
    driver.start()
    assert COUNT == len(driver.values())
    assert [] == driver.store.directory.problems


# --- beside the database ----------------------------------------------------------------------


async def with_topic(path: Path) -> str:
    """Make a data directory with a partition whose topic is known, and stop it in order."""
    backend = EmbeddedBackend(path)
    await backend.open()
    log = await backend.create_partition(KEY, TOPIC, LogSettings())
    await log.append([make_batch([b"value"])])
    row = TopicRow(TOPIC, KEY.topic_id, 1, {})
    await backend.state.apply([Change(TOPIC_KIND, row.key, row.encode())])
    await backend.aclose()
    return str(path)


NOT_AS_LEFT = "is not as the last stop left it"
STATEMENTS = {
    NOT_AS_LEFT: "DELETE FROM state_entry WHERE kind = 'checkpoint'",
    "the checkpoint of …-0 is damaged": (
        "UPDATE state_entry SET checksum = checksum + 1 WHERE kind = 'checkpoint'"
    ),
    "topic orders (…) is on disk and not in the database; see `kgw log adopt`": (
        "DELETE FROM state_entry WHERE kind = 'topic'"
    ),
}


@pytest.mark.damages_storage("rows of the database are damaged")
@pytest.mark.parametrize("detail", STATEMENTS)
async def test_what_is_wrong_with_the_database_is_found_by_its_name(
    tmp_path: Path, detail: str
) -> None:
    """And nothing is said of one that is whole."""
    data_dir = await with_topic(tmp_path / "data")
    assert [] == await check_data_dir(data_dir)
    with closing(sqlite3.connect(f"{data_dir}/meta.sqlite")) as database, database:
        assert database.execute(STATEMENTS[detail]).rowcount
    if detail != NOT_AS_LEFT:
        marker = layout.encode_clean(look_at_state(RealFs(), data_dir))
        Path(data_dir, layout.CLEAN_NAME).write_bytes(marker)
    (problem,) = await check_data_dir(data_dir)
    assert pattern_of(detail).fullmatch(problem.detail), problem


NO_DIRECTORY = "topic … (…) has no directory of … partitions, the first of them …"


@pytest.mark.damages_storage("a directory is taken away")
async def test_partitions_without_a_directory_are_found(tmp_path: Path) -> None:
    """The next start would begin them at offset 0."""
    data_dir = await with_topic(tmp_path / "data")
    with closing(sqlite3.connect(f"{data_dir}/meta.sqlite")) as database, database:
        database.execute(STATEMENTS[NOT_AS_LEFT])
    marker = layout.encode_clean(look_at_state(RealFs(), data_dir))
    Path(data_dir, layout.CLEAN_NAME).write_bytes(marker)
    shutil.rmtree(Path(data_dir, "partitions", str(KEY)))
    (problem,) = await check_data_dir(data_dir)
    assert pattern_of(NO_DIRECTORY).fullmatch(problem.detail), problem


# --- the table is whole -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "least"),
    [(check, 12), (derived_check, 7), (log_state, 1), (journal, 2), (layout, 6)],
)
def test_each_sentence_of_the_check_is_planted(module: ModuleType, least: int) -> None:
    """Who adds a kind of damage adds a way to plant it here."""
    makers = ["StorageProblem", "SmallFileError", "DataDirectoryError", "append", "add"]
    assert least <= len(findings_of(module, makers=makers))
    planted = [NO_DIRECTORY, *STATEMENTS, *(detail for kind in KINDS for detail in kind.details)]
    assert [] == unplanted([module], planted, makers=makers)
