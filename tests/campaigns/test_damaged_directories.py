"""What the campaigns that damage directories hold against a start is found, and nothing else is."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import Snapshot
from kgw.backend.embedded import layout
from kgw.backend.embedded.store import Store
from tests.campaigns import bit_rot, torn_tail
from tests.campaigns.altered_reads import KEY, AlteredClients, expecting, garbled, one_more
from tests.campaigns.bit_rot import Flip, try_flip, try_running
from tests.campaigns.client_reads import Clients
from tests.campaigns.crash_model import ROOT
from tests.campaigns.derived_files import try_subset
from tests.campaigns.stored_logs import (
    StoredDirectory,
    StoredLog,
    build_directory,
    serve_directory,
)
from tests.campaigns.support import Report, replaced
from tests.campaigns.torn_tail import Tail

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.options import EmbeddedOptions
    from tests.campaigns.client_reads import Batch
    from tests.campaigns.stored_logs import StoredBatch
    from tests.simulated_fs import SimulatedFs

pytestmark = [pytest.mark.slow, pytest.mark.damages_storage("bits are flipped, and files cut")]


@pytest.fixture(scope="module")
def directory() -> StoredDirectory:
    """A directory that was killed; nobody changes it."""
    return build_directory(Random(5), is_clean=False)


def breaking(*_: object) -> list[Batch]:
    """Break down while reading."""
    raise ValueError("unforeseen")


def flip_in(directory: StoredDirectory, batch: StoredBatch, mask: int = 1) -> Flip:
    """Return a bit of the last byte of a batch; without a mask nothing is flipped."""
    for path in directory.fs.files(ROOT):
        start = bytes(directory.fs.content(path)).find(batch.content)
        if path.endswith(layout.LOG_SUFFIX) and start >= 0:
            return Flip(path, start + len(batch.content) - 1, mask)
    raise AssertionError("a batch is in no segment")


ALTERED: dict[str, tuple[Callable[[StoredLog], StoredLog] | None, Clients, str]] = {
    "fine": (None, Clients(), ""),
    "more is expected": (one_more, Clients(), "intact batches at [98] are unreadable"),
    "other bytes": (None, AlteredClients(garbled), "WRONG BYTES"),
    "a break-down": (None, AlteredClients(breaking), "ValueError: unforeseen"),
}


@pytest.mark.parametrize("what", ALTERED)
def test_what_a_flipped_bit_does_is_judged(directory: StoredDirectory, what: str) -> None:
    """Each thing that is wrong alone, by its name; a batch that was hit is refused."""
    alter, clients, said = ALTERED[what]
    altered = directory if alter is None else expecting(directory, alter)
    for mask in (0, 1):
        report = Report("bit rot", 1)
        try_flip(report, altered, flip_in(directory, directory.logs[KEY].batches[3], mask), clients)
        assert said in (report.failures or [""])[0]
        assert bool(said) == bool(report.failures)


def test_a_start_that_a_flipped_bit_prevents_is_a_finding(directory: StoredDirectory) -> None:
    """But for a format that cannot be told, which is refused."""
    (path,) = [one for one in directory.fs.files(ROOT) if one.endswith(layout.FORMAT_NAME)]
    report = Report("bit rot", 1)
    try_flip(report, directory, Flip(path, 0, 0xFF), Clients())
    assert ([], 1) == (report.failures, report.counts["refused_clearly"])
    unreadable = directory._replace(fs=directory.fs.clone())
    unreadable.fs.content(path)[0] ^= 0xFF
    try_flip(report, unreadable, flip_in(directory, directory.logs[KEY].batches[3]), Clients())
    (failure,) = report.failures
    assert "the start failed: " in failure


def test_a_flipped_bit_that_nobody_notices_must_heal(directory: StoredDirectory) -> None:
    """What is still there after an orderly stop is a finding."""
    answers: list[list[str]] = [[], ["still damaged"]]
    report = Report("bit rot", 1)
    nothing = flip_in(directory, directory.logs[KEY].batches[3], 0)
    with replaced(bit_rot, "check_directory", lambda *_: answers.pop(0)):
        try_flip(report, directory, nothing, Clients())
    assert [f"{nothing}: undetected: still damaged"] == report.failures
    report = Report("bit rot", 1)
    try_flip(report, directory, nothing, Clients())
    assert ([], 1) == (report.failures, report.counts["unnoticed_and_healed"])


@pytest.mark.parametrize("what", ALTERED)
def test_what_a_bit_does_that_is_flipped_later_is_judged(
    directory: StoredDirectory, what: str
) -> None:
    """Each thing that is wrong alone, by its name; the bit is flipped back."""
    alter, clients, said = ALTERED[what]
    is_broken = what == "a break-down"
    altered = directory if alter is None else expecting(directory, alter)
    served = serve_directory(altered, directory.fs.clone(), Clients() if is_broken else clients)
    if is_broken:
        served.reads = clients.of(served.store)
    report = Report("bit rot", 1)
    hit = flip_in(directory, directory.logs[KEY].batches[3])
    try_running(report, altered, hit, served)
    assert said in (report.failures or [""])[0]
    assert bool(said) == bool(report.failures)
    if not said:
        assert 1 == report.counts["flips_while_running_found"]
        served.read_again()
        assert [] == served.unreadable


# --- torn tails ----------------------------------------------------------------------------------


class _ThirdTime(Random):
    """Forgets what proves that the tail was durable; and grows over what was cut off."""

    def random(self) -> float:
        return 0.9


def cut(directory: StoredDirectory, clients: Clients, *, records: int = 1) -> list[str]:
    """Return what is found when the last segment has lost its last batches and a byte more."""
    report = Report("torn tail", 1)
    tail = Tail(directory, KEY)
    starts = sorted(start for start, _ in tail.places.values())
    tail.cut(report, _ThirdTime(1), starts[-records] + 5, b"", clients)
    return report.failures


def a_later_end(log: StoredLog) -> StoredLog:
    """Expect the last but one batch to end later."""
    *others, before, last = log.batches
    return log._replace(
        batches=[*others, before._replace(next_offset=before.next_offset + 1), last]
    )


def test_a_torn_tail_is_judged(directory: StoredDirectory) -> None:
    """Exactly the intact prefix is served; each thing that is wrong has its name."""
    assert [] == cut(directory, Clients())
    assert [] == cut(directory, Clients(), records=2)
    (failure,) = cut(expecting(directory, one_more), Clients())
    assert "are unreadable, " in failure
    (failure,) = cut(expecting(directory, a_later_end), Clients())
    assert "goes on at " in failure
    assert all("WRONG BYTES" in one for one in cut(directory, AlteredClients(garbled)))
    assert cut(directory, AlteredClients(garbled))
    (failure,) = cut(directory, AlteredClients(breaking))
    assert "ValueError: unforeseen" in failure


def test_what_was_cut_off_may_not_come_back(directory: StoredDirectory) -> None:
    """Nor may what has taken its place be gone after the next start."""
    newest = directory.logs[KEY].snapshot
    with replaced(torn_tail, "load_snapshot", lambda *_: newest):
        (failure,) = cut(directory, Clients())
    assert "a snapshot of what was cut off came back: Snapshot(" in failure
    older = Snapshot(newest.offset - 1, b"older")
    with replaced(torn_tail, "load_snapshot", lambda *_: older):
        assert [] == cut(directory, Clients())
    short = directory.fs.clone()
    tail = Tail(directory, KEY)
    tail.forget_proofs(short)
    del short.content(tail.path)[tail.first_position :]

    def store_of_less(_: SimulatedFs, root: str, options: EmbeddedOptions) -> Store:
        return Store(short, root, options)

    with replaced(torn_tail, "Store", store_of_less):
        (failure,) = cut(directory, Clients())
    assert "LOST after going on: " in failure


# --- what is derived -----------------------------------------------------------------------------


def spoil(directory: StoredDirectory, clients: Clients, *kinds: str) -> list[str]:
    """Return what is found when all files of some kinds are spoilt."""
    report = Report("derived files", 1)
    try_subset(report, Random(1), directory, {*kinds}, clients)
    return report.failures


def later(log: StoredLog) -> StoredLog:
    """Expect the records to be of a later time."""
    batches = [one._replace(max_timestamp_ms=one.max_timestamp_ms + 9) for one in log.batches]
    return log._replace(batches=batches)


def test_spoilt_files_are_judged(directory: StoredDirectory) -> None:
    """What is derived may be lost; each thing that is wrong has its name."""
    assert [] == spoil(directory, Clients())
    assert [] == spoil(directory, Clients(), layout.SIDE_SUFFIX)
    (failure,) = spoil(expecting(directory, one_more), Clients())
    assert "[98] are unreadable; " in failure
    found = spoil(expecting(directory, later), Clients())
    assert found
    assert all(one.startswith("the look-up of ") for one in found)
    found = spoil(directory, AlteredClients(garbled))
    assert found
    assert all("WRONG BYTES" in one for one in found)
    (failure,) = spoil(directory, AlteredClients(breaking))
    assert "ValueError: unforeseen" in failure
    assert any(".log was changed" in one for one in spoil(directory, Clients(), ".log"))
