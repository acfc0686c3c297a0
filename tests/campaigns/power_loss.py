"""D2 and D14: the power goes while a real process works; what its disk may then hold is booted.

strace records a gateway under load (`traces`), a model says what a power loss may leave
(`traced_disk`), and a gateway starts on each of these images and is asked for all that clients were
promised by then (`power_loss_judge`). An answer counts as given as soon as the server begins the
system call that sends it. How old a relaxed record was that is lost is judged in full size only.

Run as `python -m tests.campaigns.power_loss --full --seed N`. Needs strace. What a seed decides is
where the power goes in a trace; the trace itself is the kernel's and the scheduler's. So a run that
finds something keeps its traces and says where; `--full --replay DIRECTORY --seed N` makes its
images again, without `--full` those of a short run. It goes over the recordings that the directory
holds.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.clock import SystemClock
from kgw.testing.gateway import InProcessGateway
from kgw.testing.process import SERVE, GatewayProcess
from tests.campaigns import power_loss_serve
from tests.campaigns.power_loss_judge import Crash, judge, look, promised_by, use
from tests.campaigns.power_loss_work import FLUSH_MS, RELAXED, Book, Wire, Work
from tests.campaigns.support import Report
from tests.campaigns.traced_disk import (
    RENAME,
    SYNC,
    TracedDisk,
    difference,
    disk_events,
    files_on_disk,
)
from tests.campaigns.traces import TraceError, read_calls, sent_frames, traced, wait_for_end
from tests.simulated_disk import CrashMode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from tests.campaigns.power_loss_judge import Found
    from tests.campaigns.power_loss_work import Ask, Place
    from tests.campaigns.traced_disk import Event

SETTINGS: Final = (
    "kgw.min.free.bytes=0",
    "kgw.checkpoint.interval.ms=300",
    "log.retention.check.interval.ms=200",
    "log.cleaner.backoff.ms=100",
    "log.initial.task.delay.ms=200",
)
BOOT_SETTINGS: Final = SETTINGS[:1]
"""Nothing is to be removed while it is looked at."""
LATE_S: Final = 0.1
"""How much later than it should a timer may come in a process that is traced, on a machine that
others use. Ten times less than a timer that is wrong by a second."""
MODES: Final = (CrashMode.NOTHING, CrashMode.PREFIX, CrashMode.RANDOM, CrashMode.RANDOM)
LINGER_S: Final = 2.0
"""A process that compacts takes a while to start, with strace watching."""
JOURNAL: Final = "/journal/"
SLOW_FOR_S: Final = 1.0
"""For how long before a crash an append tells how slow the machine was."""
_STRICT_LOST: Final = r"((many|single|begun-later|rolling)-\d+|compacted): acked-lost"
CONTROLS: Final = {
    "no-journal": _STRICT_LOST,
    "void-fdatasync": _STRICT_LOST,
    "void-sync-directory": rf"{_STRICT_LOST}|\('topic', '[\w-]+'\) is 0 ",
    "late-flush-timer": "relaxed: acked-lost",
}
"""What must be found of each bug."""
IN_MEMORY: Final = Path("/dev/shm")
"""Where images lie if it is there: nothing hangs on what is synced in them, and it takes time."""


class Instant(NamedTuple):
    """When the power goes: after all that a trace holds up to a place."""

    at: int
    mode: CrashMode


class Recording:
    """What a gateway did to its disk, what it answered and when, and what clients had asked."""

    def __init__(self, directory: Path, book: Book) -> None:
        """Read the trace in a directory. Raises TraceError."""
        self.book = book
        self.root = (directory / "root").read_text()
        calls = read_calls(directory / "trace")
        self.events: list[Event] = disk_events(calls, self.root)
        frames = sent_frames(calls)
        self.answers: dict[Place, tuple[int, float]] = {
            place: (call.entered, call.entered_s) for place, call in frames.items()
        }
        unanswered = [entry for entry in book.entries if entry.place not in self.answers]
        if unanswered:
            raise TraceError(f"no answer in the trace to {len(unanswered)}: {unanswered[0]}")
        for earlier, later in pairwise(call.entered_s for call in calls):
            if later < earlier - LATE_S:
                raise TraceError(f"the clock went back by {earlier - later:.3f} s")

    def window_s(self, crash_s: float) -> float:
        """Return what a crash may take of a relaxed topic, as docs/storage.md has it.

        One flush is what the slowest append to a strict topic took, with what waits in front of it,
        of those under way in the last second. Whatever holds up the flusher, the disk or the
        process holds up flushes of relaxed topics as much.
        """
        flush_s = max(
            (
                self.answers[batch.place][1] - batch.sent_s
                for batch in self.book.batches()
                if batch.topic != RELAXED
                and batch.sent_s <= crash_s
                and self.answers[batch.place][1] >= crash_s - SLOW_FOR_S
            ),
            default=0.0,
        )
        return max(FLUSH_MS / 1000, flush_s) + flush_s

    def counts(self) -> Counter[str]:
        """Count what happened, for what a run must have seen."""
        found: Counter[str] = Counter()
        for event in self.events:
            if not event.is_return:
                operation = event.operation
                found[f"traced_{operation.kind.replace(' ', '_')}"] += 1
                if operation.kind == SYNC and JOURNAL in operation.path:
                    found["traced_sync_of_journal"] += 1
                if operation.kind == RENAME and operation.target.endswith(".swap"):
                    found["traced_swap_of_compaction"] += 1
                if operation.kind == RENAME and operation.target.endswith(".deleted"):
                    found["traced_set_aside"] += 1
        return found


async def _work(random: Random, gateway: GatewayProcess, *, steps: int, linger_s: float) -> Book:
    work = Work(random, gateway.host, gateway.port, steps, linger_s)
    await work.run()
    return work.book


def record(
    directory: Path,
    command: Sequence[str],
    work: Callable[[GatewayProcess], Coroutine[None, None, Book]],
) -> Recording:
    """Run a gateway under strace and clients against it, and stop it in order.

    Raises TraceError, RefusedError, RuntimeError, and whatever the work raises.
    """
    root = directory / "disk"
    root.mkdir(parents=True)
    (directory / "root").write_text(str(root))
    gateway = GatewayProcess(root / "data", *SETTINGS, command=traced(command, directory / "trace"))
    gateway.log_path = directory / "log"
    gateway.start()
    pid = gateway.pid
    try:
        book = asyncio.run(work(gateway))
    finally:
        status = gateway.stop()
        wait_for_end(directory / "trace", pid)
    (directory / "book").write_text(book.dump())
    if status:
        raise RuntimeError(f"exit status {status} after SIGTERM: {gateway.log()[-2_000:]}")
    recording = Recording(directory, book)
    disk = TracedDisk(recording.root)
    for event in recording.events:
        disk.take(event)
    differing = difference(disk.current_files(), files_on_disk(root))
    if differing:
        raise TraceError(f"not all that was written is in the trace: {differing}")
    return recording


def choose_instants(random: Random, recording: Recording, number: int) -> list[Instant]:
    """Choose when the power goes: around any change, right before a sync ends, with an answer."""
    changes = [event.at for event in recording.events]
    ends = [
        event.at - 1
        for event in recording.events
        if event.is_return and event.operation.kind == SYNC
    ]
    answers = [at for at, _ in recording.answers.values()]
    found: list[Instant] = []
    for at in range(number):
        places = (ends, answers, changes, changes)[at % 4]
        # What is not synced is all lost when somebody waits for a sync: the most that may be.
        mode = CrashMode.NOTHING if places is ends else random.choice(MODES)
        found.append(Instant(random.choice(places), mode))
    return sorted(found, key=lambda instant: instant.at)


async def ask_all(ask: Ask, book: Book, crash: Crash) -> tuple[list[str], list[float]]:
    """Look at what there is, judge it, and use it. Raises RefusedError."""
    found: Found = await look(ask, book)
    verdict = judge(found, book, crash)
    return verdict.problems + await use(ask, book, found, crash), verdict.lost_ages_s


async def boot_here(data: Path, book: Book, crash: Crash) -> tuple[list[str], list[float]]:
    """Start a gateway in this process. Raises whatever keeps it from starting and answering."""
    options = EmbeddedOptions(
        min_free_bytes=0,
        journal_bytes=power_loss_serve.JOURNAL_BYTES,
        reserved_offsets=power_loss_serve.RESERVED_OFFSETS,
    )
    backend = EmbeddedBackend(str(data), options)
    async with InProcessGateway(backend=backend, clock=SystemClock()) as gateway:
        return await ask_all(gateway.request, book, crash)


async def _ask_process(
    gateway: GatewayProcess, book: Book, crash: Crash
) -> tuple[list[str], list[float]]:
    wire = await Wire.open(gateway.host, gateway.port)
    try:
        return await ask_all(wire.ask, book, crash)
    finally:
        await wire.aclose()


def boot_process(
    data: Path, book: Book, crash: Crash, command: Sequence[str]
) -> tuple[list[str], list[float]]:
    """Start a gateway as users do. Raises whatever keeps it from starting and answering."""
    gateway = GatewayProcess(data, *BOOT_SETTINGS, command=command)
    gateway.log_path = data.parent.with_suffix(".log")
    gateway.start()
    try:
        return asyncio.run(_ask_process(gateway, book, crash))
    finally:
        gateway.kill()


def found_by(bug: str, failure: str) -> bool:
    """Whether a failure is what a bug must lead to, and not just any."""
    return re.search(CONTROLS[bug], failure) is not None


class Images:
    """Images of one recording, one after the other.

    With `bug` a failure that it must lead to counts as an alarm, and the first one ends the run.
    """

    def __init__(
        self, report: Report, recording: Recording, directory: Path, command: Sequence[str], *,
        judges_ages: bool, bug: str | None = None,
    ) -> None:  # fmt: skip
        self._report = report
        self._recording = recording
        self._name = directory.name
        self._command = command
        self._judges_ages = judges_ages
        self._bug = bug
        self._number = 0
        self.oldest_lost_s = 0.0
        self.widest_window_s = 0.0

    def run(self, random: Random, number: int, *, processes: int) -> None:
        """Boot so many images, every n-th in a process of its own."""
        recording, report = self._recording, self._report
        disk = TracedDisk(recording.root)
        events = iter(recording.events)
        waiting = next(events, None)
        for instant in choose_instants(random, recording, number):
            while waiting is not None and waiting.at <= instant.at:
                disk.take(waiting)
                waiting = next(events, None)
            self._number += 1
            is_process = self._number % processes == 0
            with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as name:
                image = Path(name) / "disk"
                disk.power_loss(random, instant.mode, image)
                self._boot(image, instant, is_process=is_process)
            if report.counts["alarms"]:
                return

    def _boot(self, image: Path, instant: Instant, *, is_process: bool) -> None:
        recording, report = self._recording, self._report
        # The power goes right before whatever comes next.
        later = (event.time_s for event in recording.events if event.at > instant.at)
        answered_s = promised_by(instant.at, recording.answers)
        time_s = min(later, default=max(answered_s.values(), default=0.0))
        window_s = recording.window_s(time_s)
        self.widest_window_s = max(self.widest_window_s, window_s)
        # A thread that gets no turn is late, and nothing says by how much; few images tell little.
        crash = Crash(answered_s, time_s, window_s + LATE_S if self._judges_ages else math.inf)
        report.count("images")
        report.count(f"images_{instant.mode.value}")
        report.count("images_in_processes", is_process)
        report.count("promises", len(answered_s))
        place = f"{self._name} image {self._number}, {instant.mode.value} at {instant.at}"
        data = image / "data"
        began_s = time.monotonic()
        try:
            problems, ages_s = (
                boot_process(data, recording.book, crash, self._command)
                if is_process
                else asyncio.run(boot_here(data, recording.book, crash))
            )
        except Exception as error:  # noqa: BLE001 - whatever an image leads to is a finding
            report.fail(f"{place}: no start: {error!r}"[:3_000])
            return
        report.count("boots")
        if is_process:
            report.count("process_ms", round(1000 * (time.monotonic() - began_s)))
        report.count("relaxed_records_lost", len(ages_s))
        self.oldest_lost_s = max(self.oldest_lost_s, *ages_s, 0.0)
        for problem in problems:
            report.fail(f"{place}: {problem}")
            report.count("alarms", self._bug is not None and found_by(self._bug, problem))


def run_recording(
    report: Report, directory: Path, number: int, *, images: int, steps: int, processes: int,
    command: Sequence[str], boot_command: Sequence[str], linger_s: float = 0.0,
    judges_ages: bool = False, bug: str | None = None,
) -> None:  # fmt: skip
    """Record once and boot images of it; the trace is kept where something was found."""
    try:
        _record_and_boot(
            report, directory, number, images=images, steps=steps, processes=processes,
            command=command, boot_command=boot_command, linger_s=linger_s,
            judges_ages=judges_ages, bug=bug,
        )  # fmt: skip
    except Exception as error:  # noqa: BLE001 - nothing may end the campaign without its traces
        report.fail(f"recording {number}: {error!r}"[:3_000])


def _record_and_boot(
    report: Report, directory: Path, number: int, *, images: int, steps: int, processes: int,
    command: Sequence[str], boot_command: Sequence[str], linger_s: float, judges_ages: bool,
    bug: str | None,
) -> None:  # fmt: skip
    place = directory / f"recording-{number}"
    seed = f"{report.seed}/{number}"
    if (place / "book").exists():
        recording = Recording(place, Book.load((place / "book").read_text()))
    else:
        work = partial(_work, Random(seed), steps=steps, linger_s=linger_s)
        recording = record(place, command, work)
    report.count("recordings")
    for what, count in recording.counts().items():
        report.count(what, count)
    made = Images(report, recording, place, boot_command, judges_ages=judges_ages, bug=bug)
    made.run(Random(seed), images, processes=processes)
    oldest_ms = round(1000 * made.oldest_lost_s)
    report.counts["oldest_lost_ms"] = max(report.counts["oldest_lost_ms"], oldest_ms)
    widest_ms = round(1000 * made.widest_window_s)
    report.counts["widest_window_ms"] = max(report.counts["widest_window_ms"], widest_ms)


def run_control(bug: str, seed: int, report: Report, *, images: int, steps: int) -> None:
    """See a gateway with a bug found out."""
    control = Report(f"control: {bug}", seed)
    with tempfile.TemporaryDirectory() as name:
        run_recording(
            control,
            Path(name),
            0,
            images=images,
            steps=steps,
            processes=images + 1,
            command=power_loss_serve.command(bug),
            boot_command=SERVE,
            judges_ages=bug == "late-flush-timer",
            bug=bug,
        )
    report.count(f"control_images_{bug}", control.counts["images"])
    report.count("control_alarms", control.counts["alarms"])
    if not control.counts["alarms"]:
        report.fail(f"control: nothing says {CONTROLS[bug]!r}: {control}")
    print(control, flush=True)


def _kept(directory: Path) -> list[int]:
    return sorted(
        int(book.parent.name.split("-")[1]) for book in directory.glob("recording-*/book")
    )


def run(seed: int, full: bool, replayed: Path | None = None) -> Report:
    """Run the campaign, or make the images of kept traces again."""
    report = Report("power-loss", seed)
    directory = replayed or Path(tempfile.mkdtemp(prefix="power-loss-"))
    recordings, images = (8, 25) if full else (1, 16)
    numbers = range(recordings) if replayed is None else _kept(replayed)
    for number in numbers:
        # One in four is of `kgw serve` itself, whose journals do not fill in a few seconds.
        is_plain = number % 4 == 3
        run_recording(
            report,
            directory,
            number,
            images=images,
            steps=30 if full else 12,
            linger_s=LINGER_S if full else 0.0,
            judges_ages=full,
            processes=1 if full else 8,
            command=SERVE if is_plain else power_loss_serve.command(),
            boot_command=SERVE if is_plain else power_loss_serve.command(),
        )
    recordings = max(1, len(numbers))
    report.require("images", recordings * images)
    report.require("boots", recordings * images)
    report.require("promises", 50 * recordings * images)
    report.require("traced_sync_of_journal", 10 * recordings)
    report.require("traced_rename", recordings)
    if full:
        report.require("images_in_processes", recordings * images)
        report.require("relaxed_records_lost", recordings)
        report.require("traced_swap_of_compaction", recordings // 2)
    if replayed is None and report.failure_count:
        report.kept = directory
    elif replayed is None:
        shutil.rmtree(directory)
    if replayed is None:
        for bug in CONTROLS if full else ("no-journal",):
            run_control(bug, seed, report, images=50, steps=30 if full else 8)
    return report


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="full size instead of the short form")
    parser.add_argument("--seed", type=int, default=None, help="replay the run of this seed")
    parser.add_argument("--replay", type=Path, help="make the images of the traces kept there")
    arguments = parser.parse_args()
    seed = time.time_ns() % 1_000_000 if arguments.seed is None else arguments.seed
    print(f"seed={seed}", flush=True)
    # What gateways in this process say about each image.
    logging.disable(logging.WARNING)
    report = run(seed, arguments.full, arguments.replay)
    print(report, flush=True)
    sys.exit(1 if report.failure_count else 0)


if __name__ == "__main__":
    main()
