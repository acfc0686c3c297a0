"""D4: the last segment is cut anywhere, or ends in zeros or garbage; the intact prefix is served.

Run as `python -m tests.campaigns.torn_tail --full --seed N`.
"""

from __future__ import annotations

import traceback
from random import Random
from typing import TYPE_CHECKING, Any

from kgw.backend.embedded import layout
from kgw.backend.embedded.log.side import ENTRY_BYTES, decode_entry
from kgw.backend.embedded.log.snapshots import load_snapshot
from kgw.backend.embedded.recover import scan
from kgw.backend.embedded.store import Store
from tests.campaigns.client_reads import Clients, require_ways
from tests.campaigns.crash_model import ROOT, TOPIC
from tests.campaigns.stored_logs import OPTIONS, SETTINGS, build_directory, serve_directory
from tests.campaigns.support import Report, main, replaced, replays

if TYPE_CHECKING:
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.types import PartitionKey
    from tests.campaigns.stored_logs import Served, StoredDirectory
    from tests.simulated_fs import SimulatedFs

LAST_BATCHES = 3


class Tail:
    """The last segment of a partition whose end nothing else vouches for."""

    def __init__(self, directory: StoredDirectory, key: PartitionKey) -> None:
        self.directory = directory
        self.key = key
        self.path = max(
            path
            for path in directory.fs.files(f"{ROOT}/partitions/{key}")
            if path.endswith(layout.LOG_SUFFIX)
        )
        content = bytes(directory.fs.content(self.path))
        self.size_bytes = len(content)
        self.places: dict[int, tuple[int, bytes]] = {}
        """Where each batch of the segment begins and what it is, by its base offset."""
        for batch in directory.logs[key].batches:
            start = content.find(batch.content)
            if start >= 0:
                self.places[batch.base_offset] = (start, batch.content)
        self.first_offset = [*sorted(self.places)][-LAST_BATCHES:][0]
        self.first_position = self.places[self.first_offset][0]

    def forget_proofs(self, fs: SimulatedFs) -> None:
        """Remove what proves that the batches of the tail had been durable."""
        for path in fs.files(f"{ROOT}/{layout.JOURNAL_DIRECTORY}"):
            fs.unlink(path)
        side = fs.content(self.path.removesuffix(layout.LOG_SUFFIX) + layout.SIDE_SUFFIX)
        for position in range(0, len(side), ENTRY_BYTES):
            entry = decode_entry(side, position)
            if entry is None or max(entry.durable_end, entry.base_offset + 1) > self.first_offset:
                del side[position:]
                break

    def cut(
        self, report: Report, random: Random, position: int, filler: bytes, clients: Clients
    ) -> None:
        """Cut at `position`, put the filler there, start, and compare."""
        report.count("cuts")
        fs = self.directory.fs.clone()
        is_proven = random.random() < 0.3
        if not is_proven:
            self.forget_proofs(fs)
        content = fs.content(self.path)
        del content[position:]
        content += filler
        found = bytes(content)
        place = f"cut at {position} of {self.size_bytes}, {len(filler)} bytes of filler"
        try:
            served = serve_directory(self.directory, fs, clients, None if is_proven else {})
            # By content: a filler of zeros may complete a batch that ended in a zero.
            intact = [
                offset
                for offset, (start, known) in self.places.items()
                if found[start : start + len(known)] == known
            ]
            torn = [offset for offset in self.places if offset not in intact]
            unreadable = [batch.base_offset for batch in served.unreadable]
            # What is proven may come back from the journal: then more than the prefix is served.
            if set(unreadable) - set(torn) or (unreadable != torn and not is_proven):
                report.fail(f"{place}: {unreadable} are unreadable, {torn} were torn")
            log = served.store.logs[self.key]
            if not is_proven:
                self._check_end(report, place, log, intact)
            self._go_on(report, random, served, clients)
            for wrong in served.wrong:
                report.fail(f"{place}: {wrong}")
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            report.fail(f"{place}: {traceback.format_exc(limit=-5)}")

    def _check_end(self, report: Report, place: str, log: SegmentedLog, intact: list[int]) -> None:
        batches = {b.base_offset: b for b in self.directory.logs[self.key].batches}
        expected = batches[max(intact)].next_offset if intact else int(self.path[-24:-4])
        if log.offsets.next_offset != expected or log.damaged:
            report.fail(
                f"{place}: goes on at {log.offsets.next_offset}, not {expected}; {log.damaged}"
            )

    def _go_on(self, report: Report, random: Random, served: Served, clients: Clients) -> None:
        """Append behind it and read that; what was cut off is forgotten for good."""
        log = served.store.logs[self.key]
        expected = self.directory.logs[self.key]
        cut = log.offsets.next_offset < expected.snapshot.offset
        if not cut or random.random() < 0.8:
            served.go_on(self.key, 2)
            return
        # As many records again as were cut off, and other ones: nothing that was derived from those
        # may come back.
        report.count("cuts_grown_over")
        missing = expected.snapshot.offset - log.offsets.next_offset
        served.go_on(self.key, missing // 2 + 1)
        served.store.abandon()
        store = Store(served.store.fs, ROOT, OPTIONS)
        store.open()
        log = store.open_log(self.key, TOPIC, SETTINGS, None)
        if log.offsets.next_offset < expected.snapshot.offset:
            served.wrong.append(f"LOST after going on: {log.offsets.next_offset}")
        snapshot = load_snapshot(log, log.offsets.next_offset)
        if snapshot is not None and snapshot.offset >= expected.snapshot.offset:
            served.wrong.append(f"a snapshot of what was cut off came back: {snapshot}")


def tear(report: Report, seed: int, wanted: int, step: int, random_cuts: int) -> None:
    """Tear the tails of as many directories as that needs."""
    clients = Clients()
    _tear(report, seed, wanted, step, random_cuts, clients)
    clients.tell(report)


def _tear(
    report: Report, seed: int, wanted: int, step: int, random_cuts: int, clients: Clients
) -> None:
    number = 0
    while report.counts["cuts"] < wanted:
        random = Random(seed * 1_000 + number)
        number += 1
        directory = build_directory(random, is_clean=False)
        for key in directory.logs:
            tail = Tail(directory, key)
            for position in range(tail.first_position, tail.size_bytes, step):
                report.count("cuts_at_each_byte")
                tail.cut(report, random, position, b"", clients)
            for _ in range(random_cuts):
                position = random.randrange(tail.first_position, tail.size_bytes + 1)
                size = random.choice((1, 61, 512, random.randrange(3_000)))
                filler = random.choice((b"", bytes(size), random.randbytes(size)))
                what = "zeros" if filler and not any(filler) else "garbage" if filler else "nothing"
                report.count(f"random_cuts_with_{what}_behind")
                tail.cut(report, random, position, filler, clients)


def _believe_crc(window: Any, start: int, end: int) -> int:
    """Return the CRC that a batch claims to have."""
    return int.from_bytes(window.view(start - 4, 4), "big")


@replays
def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("torn-tail", seed)
    wanted = 5_000 if full else 160
    tear(report, seed, wanted, 1 if full else 40, 400 if full else 20)
    report.require("cuts", wanted)
    report.require("cuts_at_each_byte", wanted // 3)
    for what in ("nothing", "zeros", "garbage"):
        report.require(f"random_cuts_with_{what}_behind", wanted // 15)
    report.require("cuts_grown_over", wanted // 30)
    require_ways(report, wanted // 5)
    control = Report("control: no CRC", seed)
    with replaced(scan._Window, "crc", _believe_crc):
        tear(control, seed, 200, 50, 100)
    report.expect_alarm(control, "goes on at")
    return report


if __name__ == "__main__":
    main(run)
