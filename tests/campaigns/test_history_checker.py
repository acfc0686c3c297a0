"""J2: the history checker is checked itself, with brokers that have a known bug each."""

from __future__ import annotations

from random import Random

import pytest

from kgw.testing.history import (
    AnomalyKind,
    Bounds,
    Event,
    FinalLog,
    Outcome,
    Poll,
    Seek,
    Send,
    check_history,
)

PARTITIONS = 2
PROCESSES = ("p0", "p1", "p2")


class PlantedBroker:
    """A broker in a few lines, with crashes, and with at most one bug."""

    def __init__(self, random: Random, bug: str | None) -> None:
        self.random = random
        self.bug = bug
        self.logs: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.synced = [0] * PARTITIONS
        self.epoch = 0
        self.bug_strikes = 0

    def strikes(self, bug: str, chance: float = 0.2) -> bool:
        """Whether the bug shows now; certain at the tenth chance at the latest."""
        if self.bug != bug:
            return False
        self.bug_strikes += 1
        return self.random.random() < chance or self.bug_strikes == 10

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
        if self.strikes("epoch-goes-back") and self.epoch:
            epoch -= 1
        return Bounds(partition, start, end, epoch)


BUGS = (
    "acknowledges-before-the-sync",
    "loses-the-tail-at-a-restart",
    "loses-one-in-the-middle",
    "acknowledges-and-drops",
    "answers-a-wrong-offset",
    "reuses-an-offset",
    "inserts-before-the-end",
    "invents-a-record",
    "stores-what-it-refuses",
    "duplicates-on-retry",
    "writes-a-record-twice",
    "changes-a-value",
    "swaps-two-records",
    "moves-records-to-the-end",
    "skips-when-reading",
    "repeats-when-reading",
    "reorders-when-reading",
    "serves-a-neighbours-value",
    "serves-wrong-bytes",
    "watermark-goes-back",
    "log-start-goes-back",
    "epoch-goes-back",
)


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
    final = {
        number: FinalLog(0, len(log), list(enumerate(log)))
        for number, log in enumerate(broker.logs)
    }
    return events, final


@pytest.mark.parametrize("bug", BUGS)
def test_every_planted_bug_is_caught(bug: str) -> None:
    """A broker with one known bug is found out, whatever the seed."""
    for seed in range(5):
        events, final = record_history(seed, bug)
        assert check_history(events, final, drained=True), f"seed {seed}"


def test_clean_runs_raise_no_alarm() -> None:
    """Fifty runs of the broker without a bug are all found clean."""
    for seed in range(50):
        events, final = record_history(seed, None)
        assert [] == check_history(events, final, drained=True), f"seed {seed}"


def test_an_acknowledged_record_that_is_elsewhere_has_moved() -> None:
    """Lost and moved are told apart."""
    sends = [Send("p", 0, b"a", Outcome.OK, 0), Send("p", 0, b"b", Outcome.OK, 1)]
    final = {0: FinalLog(0, 3, [(0, b"a"), (2, b"b")])}
    assert [AnomalyKind.ACKED_MOVED] == [a.kind for a in check_history(sends, final)]
    final = {0: FinalLog(0, 2, [(0, b"a")])}
    assert [AnomalyKind.ACKED_LOST] == [a.kind for a in check_history(sends, final)]


def test_what_retention_removed_is_not_lost() -> None:
    """An acknowledged record below the final log start may be gone."""
    sends = [Send("p", 0, b"a", Outcome.OK, 0), Send("p", 0, b"b", Outcome.OK, 1)]
    assert [] == check_history(sends, {0: FinalLog(1, 2, [(1, b"b")])})


def test_an_unanswered_send_may_or_may_not_be_there() -> None:
    """Once or not at all is fine; twice is not."""
    sends = [Send("p", 0, b"a", Outcome.INFO)]
    assert [] == check_history(sends, {0: FinalLog(0, 0, [])})
    assert [] == check_history(sends, {0: FinalLog(0, 1, [(0, b"a")])})
    twice = {0: FinalLog(0, 2, [(0, b"a"), (1, b"a")])}
    assert [AnomalyKind.DUPLICATE] == [a.kind for a in check_history(sends, twice)]


def test_a_hole_in_the_offsets_is_no_skip() -> None:
    """Control batches and compaction leave holes that a consumer steps over."""
    sends = [Send("p", 0, b"a", Outcome.OK, 0), Send("p", 0, b"b", Outcome.OK, 2)]
    poll = Poll("c", 0, ((0, b"a"), (2, b"b")))
    assert [] == check_history([*sends, poll], {0: FinalLog(0, 4, [(0, b"a"), (2, b"b")])})


def test_what_was_acknowledged_must_be_polled_in_a_drained_history() -> None:
    """A record that is in the log but reached no consumer is reported."""
    sends = [Send("p", 0, b"a", Outcome.OK, 0)]
    final = {0: FinalLog(0, 1, [(0, b"a")])}
    found = check_history(sends, final, drained=True)
    assert [AnomalyKind.UNSEEN] == [a.kind for a in found]
