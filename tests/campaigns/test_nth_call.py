"""What is held against a store whose file calls fail is found, and nothing else is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from kgw.errors import CorruptionError, StorageError
from tests.campaigns import nth_call
from tests.campaigns.altered_reads import AlteredClients
from tests.campaigns.nth_call import ALL_BUT_READS, FaultyMachine, ReadFaults, run_script
from tests.campaigns.support import Report, replaced
from tests.findings import findings_of
from tests.simulated_fs import Fault, FaultKind, SimulatedFs

if TYPE_CHECKING:
    from random import Random

    from kgw.backend.embedded.options import EmbeddedOptions
    from tests.campaigns.altered_reads import Fetch
    from tests.campaigns.client_reads import Batch, ClientReads

pytestmark = [pytest.mark.slow, pytest.mark.damages_storage("calls fail")]

SEED = 7
ONCE = Fault(FaultKind.EIO, 3, spared=ALL_BUT_READS)


def texts_of(failures: list[str]) -> set[str]:
    """Return which texts of the campaign's source these are: of several the longest."""
    known = findings_of(nth_call)
    return {
        max((one.text for one in known if one.pattern.fullmatch(said)), key=len)
        for said in failures
        if not said.startswith("  ^ ")
    }


# --- readers -------------------------------------------------------------------------------------


class Altering:
    """Readers of a disk of which reads fail, to whom something else happens than that."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __call__(self, _: ClientReads, fetch: Fetch, found: list[Batch]) -> list[Batch]:
        """Return what is served instead, or raise."""
        match self._what:
            case "nothing":
                return []
            case "another error":
                raise CorruptionError("damaged")
            case "an error":
                raise StorageError("broken")
            case "a hole" if len(found) > 1 and found[-1].has_records:
                # From the middle of a batch on the first one says nothing of where it began.
                return found[1:]
        return found


class AlteredMachine(FaultyMachine):
    """A machine whose readers get something else."""

    what = ""

    def __init__(
        self, random: Random, fs: SimulatedFs, options: EmbeddedOptions, report: Report
    ) -> None:
        super().__init__(random, fs, options, report)
        self.clients = AlteredClients(self._altered)

    def _altered(self, reads: ClientReads, fetch: Fetch, found: list[Batch]) -> list[Batch]:
        is_later = self.fs.fault is not None
        if is_later and self.what == "harm":
            self.started().writes.directory.failure = StorageError("over")
        return Altering(self.what)(reads, fetch, found) if is_later else found

    def attempt(self) -> None:
        super().attempt()
        self.errors += self.what == "writing fails"


READ: dict[str, set[str]] = {
    "": set(),
    "nothing": {"…: nothing is served from … on"},
    "a hole": {"HOLE"},
    "an error": {
        "…: a read fails for nothing: …",
        "…: the read after the one that failed fails, too: …",
    },
    "another error": {
        "…: a read fails for nothing: …",
        "…: the read after the one that failed fails, too: …",
        "…: a failed read is answered with …: …",
    },
    "writing fails": {"…: writing fails after a failed read"},
    "harm": {"…: a failed read has done harm: … …"},
}


@pytest.mark.parametrize("what", READ)
def test_what_readers_of_a_failing_disk_get_is_judged(what: str) -> None:
    """A failed read is answered with the disk's error, once; what is served is right."""
    report = Report("nth call", 1)
    machine = type("Machine", (AlteredMachine,), {"what": what})
    with replaced(nth_call, "FaultyMachine", machine):
        faults = ReadFaults(report, SEED)
        for _ in range(1 if what == "harm" else 4):
            faults.fail_nth(ONCE)
    found = {
        "HOLE" if re.search("HOLE at", said) else next(iter(texts_of([said])))
        for said in report.failures
    }
    assert READ[what] == found
    assert report.counts["reads_with_failing_calls"]


# --- a whole script ------------------------------------------------------------------------------


class ErringMachine(FaultyMachine):
    """Answers with an error where nothing is wrong."""

    def attempt(self) -> None:
        super().attempt()
        self.errors += 1


class ForgettingMachine(FaultyMachine):
    """Takes a record as answered that it has lost."""

    def check_reads(self) -> None:
        for model in self.partitions.values():
            model.promised.setdefault(model.end, b"lost")
        super().check_reads()


class EndedMachine(FaultyMachine):
    """Writes no more after any failure."""

    def attempt(self) -> None:
        super().attempt()
        if self.fs.struck and self.store is not None:
            self.started().writes.directory.failure = StorageError("over")


class RefusingMachine(FaultyMachine):
    """Refuses appends for good after any failure."""

    is_over = False

    def append_once(self) -> None:
        if self.fs.struck and self.fs.fault is None:
            raise StorageError("no space")
        super().append_once()


def script(machine: type[FaultyMachine], fault: Fault | None) -> list[str]:
    """Return what is found in a script."""
    report = Report("nth call", 1)
    run_script(report, SEED, fault, machine)
    return [one for one in report.failures if not one.startswith("  ^ ")]


WRITES = Fault(FaultKind.ENOSPC, 5, spared=frozenset(("fdatasync", "sync_directory")))
"""A disk that is full once, which no sync has met."""


def test_a_script_is_judged() -> None:
    """Each thing that is wrong has its name, and nothing is said where all is well."""
    assert [] == script(FaultyMachine, None)
    assert [] == script(FaultyMachine, WRITES)
    (failure,) = script(ErringMachine, None)
    assert re.fullmatch(r"\d+ errors where nothing was wrong for good", failure)
    found = script(ForgettingMachine, None)
    assert any("is not served while the disk fails" in one for one in found)
    (failure,) = script(EndedMachine, WRITES)
    assert failure.startswith("writing has ended although no sync has failed: ")
    (failure,) = script(RefusingMachine, WRITES)
    assert "appends are still refused after space has come back: no space" == failure
