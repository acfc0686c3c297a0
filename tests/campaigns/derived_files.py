"""D12: every subset of the derived files is deleted or garbled; nothing that is served changes.

Run as `python -m tests.campaigns.derived_files --full --seed N`.
"""

from __future__ import annotations

import traceback
from random import Random
from struct import Struct
from typing import TYPE_CHECKING

from kgw.backend.embedded import layout
from kgw.backend.embedded.log import segment
from kgw.backend.embedded.log.side import ENTRY_BYTES, SideEntry
from kgw.backend.embedded.read import reading
from kgw.records.batch import HEADER_BYTES, read_header
from tests.campaigns.client_reads import Clients, require_ways
from tests.campaigns.crash_model import ROOT
from tests.campaigns.stored_logs import SETTINGS, build_directory, find_by_time, serve_directory
from tests.campaigns.support import Report, main, replaced, replays

if TYPE_CHECKING:
    from kgw.backend.embedded.store import Store
    from kgw.types import Buffer
    from tests.campaigns.stored_logs import StoredDirectory
    from tests.simulated_fs import SimulatedFs

CHECKPOINTS = "checkpoints"
KINDS = (
    layout.OFFSET_INDEX_SUFFIX,
    layout.TIME_INDEX_SUFFIX,
    layout.SIDE_SUFFIX,
    layout.SNAPSHOT_SUFFIX,
    layout.EPOCHS_NAME,
    CHECKPOINTS,
)


def spoil(random: Random, fs: SimulatedFs, path: str) -> None:
    """Delete a file or make it something else."""
    content = fs.content(path)
    match random.randrange(6):
        case 0:
            fs.unlink(path)
        case 1:
            content[:] = random.randbytes(len(content))
        case 2:
            content[:] = content[: random.randint(0, len(content))]
        case 3:
            content.clear()
        case 4 if content:
            # What is before and behind it looks as it should.
            start = random.randrange(len(content))
            size = min(random.randrange(1, ENTRY_BYTES), len(content) - start)
            content[start : start + size] = random.randbytes(size)
        case _:
            content += random.randbytes(random.randrange(1, 200))


def try_subset(
    report: Report,
    random: Random,
    directory: StoredDirectory,
    subset: set[str],
    clients: Clients,
) -> None:
    """Spoil the files of these kinds, start, and compare."""
    report.count("directories")
    fs = directory.fs.clone()
    logs = {path: bytes(fs.content(path)) for path in fs.files(ROOT) if path.endswith(".log")}
    for path in fs.files(ROOT):
        if any(path.endswith(kind) for kind in subset):
            spoil(random, fs, path)
            report.count("files_spoilt")
    checkpoints = dict(directory.checkpoints)
    if CHECKPOINTS in subset:
        for key in list(checkpoints):
            if random.random() < 0.5:
                del checkpoints[key]
            else:
                old = checkpoints[key]
                checkpoints[key] = old._replace(
                    next_offset=max(0, old.next_offset - random.randrange(20)),
                    segment_position=random.randrange(4_000),
                    clean=random.random() < 0.5,
                )
    place = f"{'clean' if directory.is_clean else 'killed'}, without {sorted(subset)}"
    try:
        served = serve_directory(directory, fs, clients, checkpoints)
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        report.fail(f"{place}: {traceback.format_exc(limit=-5)}")
        return
    if served.unreadable:
        lost = [batch.base_offset for batch in served.unreadable]
        report.fail(f"{place}: {lost} are unreadable; {served.problems}")
    for path, content in logs.items():
        if not fs.exists(path) or bytes(fs.content(path)) != content:
            report.fail(f"{place}: {path} was changed")
    try:
        check_times(report, random, directory, served.store)
        for key in directory.logs:
            served.go_on(key, 3)
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        report.fail(f"{place}: {traceback.format_exc(limit=-5)}")
    for wrong in served.wrong:
        report.fail(f"{place}: {wrong}")


def check_times(report: Report, random: Random, directory: StoredDirectory, store: Store) -> None:
    """Look up timestamps as a consumer that seeks by time does."""
    for key, expected in directory.logs.items():
        for _ in range(6):
            timestamp_ms = random.choice(expected.batches).max_timestamp_ms + random.randint(-2, 2)
            wanted = next(
                (b.base_offset for b in expected.batches if b.max_timestamp_ms >= timestamp_ms),
                None,
            )
            report.count("time_lookups")
            found = find_by_time(store.logs[key], timestamp_ms)
            if found != wanted:
                report.fail(f"the look-up of {timestamp_ms} finds {found}, not {wanted}")


def spoil_all(report: Report, seed: int, rounds: int) -> None:
    """Try every subset so many times, on directories that were closed and on killed ones."""
    clients = Clients()
    _spoil_all(report, seed, rounds, clients)
    clients.tell(report)


def _spoil_all(report: Report, seed: int, rounds: int, clients: Clients) -> None:
    for number in range(rounds):
        random = Random(seed * 1_000 + number)
        for is_clean in (True, False):
            directory = build_directory(random, is_clean=is_clean)
            for bits in range(number % 2 if is_clean else 1 - number % 2, 64, 2):
                subset = {kind for bit, kind in enumerate(KINDS) if bits >> bit & 1}
                try_subset(report, random, directory, subset, clients)


def _believe_entry(data: Buffer, position: int = 0) -> SideEntry | None:
    """Decode a side entry without a look at its checksum; not of a place behind 4 GB of others."""
    if len(data) < position + ENTRY_BYTES:
        return None
    entry = SideEntry(*Struct(">qqqIII").unpack_from(data, position))
    most = SETTINGS.segment_bytes
    return entry._replace(
        position=min(entry.position, most), size_bytes=min(entry.size_bytes, most)
    )


def _believe_batch(view: memoryview, _entry: SideEntry) -> int | None:
    """Take whatever lies where the side file says."""
    return read_header(view[:HEADER_BYTES]).next_offset if len(view) >= HEADER_BYTES else None


@replays
def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("derived-files", seed)
    rounds = 10 if full else 2
    spoil_all(report, seed, rounds)
    report.require("directories", 64 * rounds)
    require_ways(report, 64 * rounds)
    control = Report("control: side files and bytes are believed", seed)
    with (
        replaced(segment, "decode_entry", _believe_entry),
        replaced(reading, "verify", _believe_batch),
    ):
        spoil_all(control, seed, 2)
    # What is garbled says something, and that is believed.
    report.expect_alarm(control, f"'{layout.SIDE_SUFFIX}'")
    return report


if __name__ == "__main__":
    main(run)
