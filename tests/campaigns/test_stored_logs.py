"""What is held against a damaged directory is found, and nothing else is."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import Snapshot
from kgw.errors import StorageError
from tests.campaigns.altered_reads import (
    KEY,
    AlteredClients,
    Fetch,
    as_it_is,
    expecting,
    flip,
    garbled,
    one_more,
)
from tests.campaigns.client_reads import (
    AHEAD,
    CACHED,
    DIRECT,
    DISK,
    HOT,
    Batch,
    ClientReads,
    Clients,
)
from tests.campaigns.stored_logs import (
    Served,
    StoredDirectory,
    StoredLog,
    build_directory,
    check_snapshot,
    serve_directory,
)
from tests.findings import findings_of
from tests.simulated_fs import Fault, FaultKind, SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="module")
def directory() -> StoredDirectory:
    """A directory that was stopped in order; nobody changes it."""
    return build_directory(Random(5), is_clean=True)


def with_other_bytes(log: StoredLog) -> StoredLog:
    """Expect a byte of one batch to be another one."""
    at = len(log.batches) // 2
    content = log.batches[at].content
    changed = log.batches[at]._replace(content=content[:-1] + bytes([content[-1] ^ 1]))
    return log._replace(batches=[*log.batches[:at], changed, *log.batches[at + 1 :]])


def moved(log: StoredLog) -> StoredLog:
    """Expect a batch to be one offset further on."""
    first, *others = log.batches
    return log._replace(batches=[first._replace(base_offset=first.base_offset + 1), *others])


EXPECTED: dict[str, tuple[Callable[[StoredLog], StoredLog], set[str]]] = {
    "nothing else": (lambda log: log, set()),
    "another start": (
        lambda log: log._replace(log_start_offset=log.log_start_offset + 1),
        {"log start …, not …"},
    ),
    "an earlier end": (
        lambda log: log._replace(batches=log.batches[:-1]),
        # What lies there is served, too.
        {"high watermark …, above …", "WRONG BYTES at … by …"},
    ),
    "another end of an epoch": (
        lambda log: log._replace(epoch_ends=[(epoch, end + 1) for epoch, end in log.epoch_ends]),
        {"epoch … ends at …, not at …"},
    ),
    "another epoch": (
        lambda log: log._replace(epoch_ends=[(epoch + 9, end) for epoch, end in log.epoch_ends]),
        {"epoch … ends at …, not at …"},
    ),
    "another snapshot": (
        lambda log: log._replace(snapshot=Snapshot(log.snapshot.offset, b"another")),
        {"snapshot …"},
    ),
    "a snapshot of another offset": (
        lambda log: log._replace(snapshot=log.snapshot._replace(offset=log.snapshot.offset - 1)),
        {"snapshot …"},
    ),
    "other bytes": (with_other_bytes, {"WRONG BYTES at … by …"}),
    # One that is read singly is not among what is served otherwise.
    "a batch elsewhere": (moved, {"WRONG BYTES at … by …", "ONE WAY OR THE OTHER: …"}),
}


def no_single_batch(_: ClientReads, fetch: Fetch, found: list[Batch]) -> list[Batch]:
    """Serve nothing to whoever asks for one batch."""
    return [] if fetch.max_bytes == 1 else found


def nothing_cached(reads: ClientReads, fetch: Fetch, found: list[Batch]) -> list[Batch]:
    """Serve nothing out of the page cache but single batches."""
    return [] if reads.way == CACHED and fetch.max_bytes != 1 else found


def past_the_bound(_: ClientReads, fetch: Fetch, found: list[Batch]) -> list[Batch]:
    """Serve a batch of which a part lies above the bound."""
    if found and fetch.upper_bound < fetch.high_watermark:
        return [*found[:-1], found[-1]._replace(next_offset=fetch.upper_bound + 1)]
    return found


def a_broken_disk(_: ClientReads, fetch: Fetch, found: list[Batch]) -> list[Batch]:
    """Fail for whoever begins to read where the log begins, and say that the disk is broken."""
    if fetch.offset == fetch.log_start_offset and fetch.upper_bound == fetch.high_watermark:
        raise StorageError("the disk is broken")
    return found


def garbled_by(
    is_garbled: Callable[[ClientReads, Fetch], bool],
) -> Callable[[ClientReads, Fetch, list[Batch]], list[Batch]]:
    """Return what garbles what is read in one way."""

    def alter(reads: ClientReads, fetch: Fetch, found: list[Batch]) -> list[Batch]:
        return garbled(reads, fetch, found) if is_garbled(reads, fetch) else found

    return alter


READ = {
    "as it is": (as_it_is, set[str]()),
    "no single batch": (no_single_batch, {"ONE WAY OR THE OTHER: …"}),
    "nothing out of the page cache": (
        nothing_cached,
        {"ONE WAY OR THE OTHER: …, …", "ONE WAY OR THE OTHER: …"},
    ),
    "past the bound": (past_the_bound, {"ABOVE THE BOUND: … to … of … by …"}),
    "other bytes": (garbled, {"WRONG BYTES at … by …"}),
    "other bytes singly": (
        garbled_by(lambda _, fetch: fetch.max_bytes == 1),
        {"WRONG BYTES at … by …"},
    ),
    **{
        f"other bytes by {way}": (
            garbled_by(lambda reads, _, way=way: reads.way == way),  # type: ignore[misc]
            {"WRONG BYTES at … by …"},
        )
        for way in (AHEAD, CACHED, DISK, DIRECT)
    },
    "an error that is none of the data": (a_broken_disk, {"THE WRONG ERROR at …: …"}),
}


def texts_of(wrong: list[str]) -> set[str]:
    """Return which texts of the judge's source these are: of several the longest."""
    known = findings_of(Served, serve_directory, check_snapshot)
    return {
        max(
            (one.text for one in known if one.pattern.fullmatch(said)),
            key=lambda text: (len(text), text),
        )
        for said in wrong
    }


def serve(directory: StoredDirectory, clients: Clients, fs: SimulatedFs | None = None) -> Served:
    """Return what is served of a copy of a directory."""
    return serve_directory(directory, fs or directory.fs.clone(), clients)


@pytest.mark.parametrize("what", EXPECTED)
def test_what_is_not_as_expected_is_found(directory: StoredDirectory, what: str) -> None:
    """Each thing alone, by its name; and nothing is said where all is as it must be."""
    alter, said = EXPECTED[what]
    served = serve(expecting(directory, alter), Clients())
    assert said == texts_of(served.wrong)
    assert [] == served.unreadable


@pytest.mark.parametrize("what", READ)
def test_what_one_way_of_reading_does_otherwise_is_found(
    directory: StoredDirectory, what: str
) -> None:
    """Each thing alone, by its name."""
    alter, said = READ[what]
    assert said == texts_of(serve(directory, AlteredClients(alter)).wrong)


@pytest.mark.damages_storage("bits are flipped, and calls fail")
def test_what_is_not_there_and_what_is_damaged_cannot_be_read(directory: StoredDirectory) -> None:
    """Such batches are told, and they alone; nothing is wrong with what is served."""
    more = expecting(directory, one_more)
    served = serve(more, Clients())
    assert (more.logs[KEY].batches[-1:], []) == (served.unreadable, served.wrong)
    for batch in directory.logs[KEY].batches[::7]:
        fs = directory.fs.clone()
        flip(fs, batch)
        served = serve(directory, Clients(), fs)
        assert ([batch], []) == (served.unreadable, served.wrong)


@pytest.mark.damages_storage("bits are flipped, and calls fail")
def test_what_is_damaged_later_is_found_later(directory: StoredDirectory) -> None:
    """Reading again judges what is there by then, and that alone."""
    served = serve(directory, Clients())
    batch = directory.logs[KEY].batches[3]
    fs = served.store.fs
    assert isinstance(fs, SimulatedFs)
    content, position = flip(fs, batch)
    served.read_again()
    assert ([batch], []) == (served.unreadable, served.wrong)
    content[position] ^= 1
    served.wrong.append("what was wrong before")
    served.read_again()
    assert ([], []) == (served.unreadable, served.wrong)


def nothing_hot(reads: ClientReads, _: Fetch, found: list[Batch]) -> list[Batch]:
    """Leave out the last batch of what is in memory."""
    return found[:-1] if reads.way == HOT else found


@pytest.mark.damages_storage("bits are flipped, and calls fail")
def test_a_log_that_goes_on_serves_what_was_appended(directory: StoredDirectory) -> None:
    """In the order in which it was, behind what was there; or it says that it cannot."""
    served = serve(directory, Clients())
    assert directory.logs[KEY].batches[-1].next_offset == served.go_on(KEY, 3)
    assert [] == served.wrong
    served = serve(directory, AlteredClients(nothing_hot))
    served.go_on(KEY, 3)
    assert {"WRONG BYTES after going on: …, not …"} == texts_of(served.wrong)
    served = serve(directory, AlteredClients(garbled))
    served.wrong.clear()
    served.go_on(KEY)
    assert {"WRONG BYTES after going on: …, not …"} == texts_of(served.wrong)
    served = serve(directory, Clients())
    fs = served.store.fs
    assert isinstance(fs, SimulatedFs)
    fs.inject(Fault(FaultKind.EIO, 1, persistent=True))
    served.go_on(KEY)
    assert {"cannot go on: …"} == texts_of(served.wrong)


def test_everything_that_is_said_of_a_directory_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    planted = {text for _, said in (*EXPECTED.values(), *READ.values()) for text in said}
    planted |= {"WRONG BYTES after going on: …, not …", "cannot go on: …"}
    known = findings_of(Served, serve_directory, check_snapshot)
    assert planted == {one.text for one in known}
