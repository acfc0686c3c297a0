"""A broker of records with a known bug each, and what clients see of it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tests.campaigns.history import (
    AnomalyKind,
    Bounds,
    FinalLog,
    Outcome,
    Poll,
    Seek,
    Send,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.campaigns.history import Event

PARTITIONS = 2
PROCESSES = ("p0", "p1", "p2")


class Planted:
    """Whatever may have a bug."""

    def __init__(self, random: Random, bug: str | None) -> None:
        self.random = random
        self.bug = bug
        self.bug_strikes = 0

    def strikes(self, bug: str, chance: float = 0.2) -> bool:
        """Whether the bug shows now; certain at the tenth chance at the latest."""
        if self.bug != bug:
            return False
        self.bug_strikes += 1
        return self.random.random() < chance or self.bug_strikes == 10


class PlantedBroker(Planted):
    """A broker in a few lines, with crashes, and with at most one bug."""

    def __init__(self, random: Random, bug: str | None) -> None:
        super().__init__(random, bug)
        self.logs: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.synced = [0] * PARTITIONS
        self.epoch = 0

    def send(self, process: str, partition: int, value: bytes) -> Send:
        log = self.logs[partition]
        fate = self.random.random()
        if fate < 0.05:
            if self.strikes("stores-what-it-refuses", 0.5):
                log.append(value)
            return Send(process, partition, value, Outcome.FAIL)
        if fate < 0.1:
            if self.random.random() < 0.5:
                log.append(value)
                if self.strikes("duplicates-on-retry", 0.5):
                    log.append(value)
            return Send(process, partition, value, Outcome.INFO)
        offset = len(log)
        if self.strikes("reuses-an-offset") and log:
            offset -= 1
            log[offset] = value
        elif self.strikes("inserts-before-the-end") and log:
            log.insert(self.random.randrange(len(log)), value)
        elif self.strikes("invents-a-record"):
            log += [b"invented", value]
            offset += 1
        elif not self.strikes("acknowledges-and-drops"):
            log.append(value)
        if self.strikes("answers-a-wrong-offset"):
            offset += 1
        if self.strikes("writes-a-record-twice"):
            log.append(value)
        if self.bug != "acknowledges-before-the-sync":
            self.synced[partition] = len(log)
        if self.random.random() < 0.1:
            # A client that asks for no offset.
            if self.strikes("drops-what-nobody-asks-the-place-of", 0.5) and log[-1:] == [value]:
                del log[-1]
            return Send(process, partition, value, Outcome.OK)
        return Send(process, partition, value, Outcome.OK, offset)

    def crash(self) -> None:
        self.epoch += 1
        for partition, log in enumerate(self.logs):
            if self.bug == "acknowledges-before-the-sync":
                del log[self.synced[partition] :]
                self.synced[partition] = len(log)
            if self.strikes("loses-the-tail-at-a-restart", 0.5):
                del log[max(0, len(log) - 3) :]
            if self.strikes("loses-one-in-the-middle", 0.5) and len(log) > 4:
                del log[len(log) // 2]
            if self.strikes("changes-a-value", 0.5) and log:
                log[self.random.randrange(len(log))] = b"rotten"
            if self.strikes("swaps-two-records", 0.5) and len(log) > 1:
                log[-1], log[-2] = log[-2], log[-1]
            if self.strikes("moves-records-to-the-end", 0.5) and log:
                log.append(log.pop(0))

    def poll(self, process: str, partition: int, position: int) -> Poll:
        log = self.logs[partition]
        records = [(at, log[at]) for at in range(position, min(len(log), position + 7))]
        if len(records) > 3:
            if self.strikes("skips-when-reading"):
                del records[1]
            if self.strikes("repeats-when-reading"):
                records.append(records[0])
            if self.strikes("reorders-when-reading"):
                records[1], records[2] = records[2], records[1]
            if self.strikes("serves-a-neighbours-value"):
                records[1] = (records[1][0], records[2][1])
            if self.strikes("serves-wrong-bytes"):
                records[2] = (records[2][0], b"wrong")
        return Poll(process, partition, tuple(records))

    def bounds(self, partition: int) -> Bounds:
        end = len(self.logs[partition])
        if self.strikes("watermark-goes-back"):
            end //= 2
        start = 1 if self.strikes("log-start-goes-back") else 0
        epoch = self.epoch
        if self.epoch and self.strikes("epoch-goes-back", 0.5):
            epoch -= 1
        return Bounds(partition, start, end, epoch)

    def final(self, partition: int) -> FinalLog:
        """Return the log as it is read after everything has healed."""
        records = list(enumerate(self.logs[partition]))
        end = len(records)
        if self.bug == "ends-with-a-log-out-of-order":
            records[-1], records[-2] = records[-2], records[-1]
        if self.bug == "ends-with-records-beyond-the-watermark":
            end -= 1
        if self.bug == "ends-with-a-watermark-that-went-back":
            records = records[: len(records) // 2]
            end = len(records)
        if self.bug == "ends-with-a-double-that-nobody-polled":
            records.append((end, records[0][1]))
            end += 1
        start = end // 2 if self.bug == "ends-with-a-log-that-begins-later" else 0
        return FinalLog(start, end, records[start:])


class Findings(NamedTuple):
    """What a bug is found by: each of `must` in every history, and nothing beyond `may`."""

    must: frozenset[AnomalyKind]
    may: frozenset[AnomalyKind] = frozenset()


def found_by(*must: AnomalyKind, may: Sequence[AnomalyKind] = ()) -> Findings:
    """Return findings of which some come only where the bug happens to show so."""
    return Findings(frozenset(must), frozenset(may))


LOST, MOVED, UNSEEN = AnomalyKind.ACKED_LOST, AnomalyKind.ACKED_MOVED, AnomalyKind.UNSEEN
TWO_VALUES, TIME_TRAVEL = AnomalyKind.INCONSISTENT_OFFSETS, AnomalyKind.TIME_TRAVEL
DUPLICATE, PHANTOM = AnomalyKind.DUPLICATE, AnomalyKind.PHANTOM
SEND_BACK, BOUNDS_BACK = AnomalyKind.NONMONOTONIC_SEND, AnomalyKind.BOUNDS_WENT_BACK
POLL_BACK, SKIP = AnomalyKind.NONMONOTONIC_POLL, AnomalyKind.POLL_SKIP

BUGS: dict[str, Findings] = {
    "acknowledges-before-the-sync": found_by(
        *(LOST, TWO_VALUES, TIME_TRAVEL, SEND_BACK, BOUNDS_BACK, UNSEEN)
    ),
    "loses-the-tail-at-a-restart": found_by(
        *(LOST, SEND_BACK, UNSEEN), may=(TWO_VALUES, TIME_TRAVEL, BOUNDS_BACK)
    ),
    "loses-one-in-the-middle": found_by(
        *(LOST, MOVED, TWO_VALUES, TIME_TRAVEL, DUPLICATE), may=(SEND_BACK, BOUNDS_BACK, UNSEEN)
    ),
    "acknowledges-and-drops": found_by(LOST, SEND_BACK, UNSEEN),
    "drops-what-nobody-asks-the-place-of": found_by(LOST, UNSEEN),
    "answers-a-wrong-offset": found_by(MOVED, SEND_BACK),
    "reuses-an-offset": found_by(LOST, TWO_VALUES, TIME_TRAVEL, SEND_BACK, UNSEEN),
    "inserts-before-the-end": found_by(MOVED, TWO_VALUES, TIME_TRAVEL, DUPLICATE),
    "invents-a-record": found_by(PHANTOM, DUPLICATE),
    "stores-what-it-refuses": found_by(AnomalyKind.ABORTED_READ),
    "duplicates-on-retry": found_by(DUPLICATE),
    "writes-a-record-twice": found_by(DUPLICATE),
    "changes-a-value": found_by(*(LOST, TWO_VALUES, TIME_TRAVEL, PHANTOM), may=(DUPLICATE, UNSEEN)),
    "swaps-two-records": found_by(MOVED, may=(TWO_VALUES, TIME_TRAVEL, DUPLICATE)),
    "moves-records-to-the-end": found_by(MOVED, TWO_VALUES, TIME_TRAVEL, DUPLICATE),
    "skips-when-reading": found_by(SKIP, may=(UNSEEN,)),
    "repeats-when-reading": found_by(POLL_BACK, may=(SKIP,)),
    "reorders-when-reading": found_by(POLL_BACK, SKIP),
    "serves-a-neighbours-value": found_by(TWO_VALUES, TIME_TRAVEL, DUPLICATE, may=(UNSEEN,)),
    "serves-wrong-bytes": found_by(*(TWO_VALUES, TIME_TRAVEL, PHANTOM), may=(DUPLICATE, UNSEEN)),
    "watermark-goes-back": found_by(BOUNDS_BACK),
    "log-start-goes-back": found_by(BOUNDS_BACK),
    "epoch-goes-back": found_by(BOUNDS_BACK),
    "ends-with-a-log-out-of-order": found_by(TWO_VALUES, SKIP),
    "ends-with-a-double-that-nobody-polled": found_by(DUPLICATE),
    "ends-with-records-beyond-the-watermark": found_by(TWO_VALUES, may=(BOUNDS_BACK,)),
    "ends-with-a-log-that-begins-later": found_by(LOST, TIME_TRAVEL),
    "ends-with-a-watermark-that-went-back": found_by(LOST, TIME_TRAVEL, BOUNDS_BACK),
}


def record_history(seed: int, bug: str | None) -> tuple[list[Event], dict[int, FinalLog]]:
    """Return what three clients see of a planted broker in 600 steps, drained at the end."""
    random = Random(seed)
    broker = PlantedBroker(random, bug)
    events: list[Event] = []
    positions = {(process, n): 0 for process in PROCESSES for n in range(PARTITIONS)}

    def poll(process: str, partition: int) -> bool:
        event = broker.poll(process, partition, positions[process, partition])
        events.append(event)
        if event.records:
            positions[process, partition] = max(offset for offset, _ in event.records) + 1
        return bool(event.records)

    for number in range(600):
        process = random.choice(PROCESSES)
        partition = random.randrange(PARTITIONS)
        step = random.random()
        if step < 0.6:
            events.append(broker.send(process, partition, b"value-%d" % number))
        elif step < 0.85:
            poll(process, partition)
        elif step < 0.9:
            events.append(Seek(process, partition))
            end = len(broker.logs[partition])
            positions[process, partition] = random.randint(0, end)
        elif step < 0.97:
            events.append(broker.bounds(partition))
        else:
            broker.crash()
    for place in positions:
        events.append(Seek(*place))
        positions[place] = 0
        while poll(*place):
            pass
    return events, {number: broker.final(number) for number in range(PARTITIONS)}
