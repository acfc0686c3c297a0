"""J2: the history checker is checked itself, with brokers that have a known bug each."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from random import Random
from types import FunctionType
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.campaigns.history import (
    Anomaly,
    AnomalyKind,
    Bounds,
    Event,
    FinalLog,
    Outcome,
    Poll,
    Seek,
    Send,
    check_history,
    records,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.campaign

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
        return FinalLog(0, end, records)


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


SEEDS = range(5)
FEW_SEEDS = range(2)
CLEAN_SEEDS = range(50)


@cache
def history_of(seed: int, bug: str | None) -> tuple[list[Event], dict[int, FinalLog]]:
    """Return a history, recorded once; nobody changes it."""
    return record_history(seed, bug)


def kinds_found(
    check: Callable[..., list[Anomaly]], seed: int, bug: str | None
) -> set[AnomalyKind]:
    """Return what a checker finds in a history."""
    events, final = history_of(seed, bug)
    return {one.kind for one in check(events, final, drained=True)}


@pytest.mark.parametrize("bug", BUGS)
def test_every_planted_bug_is_found_by_name(bug: str) -> None:
    """A broker with one known bug is accused of what it did, whatever the seed, and no more."""
    must, may = BUGS[bug]
    for seed in SEEDS:
        found = kinds_found(check_history, seed, bug)
        assert must == found - may, f"seed {seed}"


def test_every_kind_of_anomaly_is_planted() -> None:
    """No kind is defined that no planted bug must be found by."""
    assert set(AnomalyKind) == {kind for findings in BUGS.values() for kind in findings.must}


@pytest.mark.slow
def test_clean_runs_raise_no_alarm() -> None:
    """Fifty runs of the broker without a bug are all found clean."""
    for seed in CLEAN_SEEDS:
        events, final = history_of(seed, None)
        assert [] == check_history(events, final, drained=True), f"seed {seed}"


# --- the checker with a check switched off ---


def is_report(node: ast.stmt) -> bool:
    """Whether a statement reports an anomaly."""
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("self._report(")


def is_step(node: ast.stmt) -> bool:
    """Whether a statement calls something, and makes nothing of what that returns."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


class Weakened(ast.NodeTransformer):
    """Leaves one place of the checker out; `places` names all there are.

    A place is a report, one of several grounds for a report, or another step.
    """

    def __init__(self, left_out: int | None = None) -> None:
        self.places: list[tuple[str, bool]] = []
        """What is done there, and whether that is to accuse somebody."""
        self._left_out = left_out

    def _is_left_out(self, what: str, *, accuses: bool) -> bool:
        self.places.append((what, accuses))
        return len(self.places) - 1 == self._left_out

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Leave a report or a step out."""
        if is_step(node) and self._is_left_out(ast.unparse(node), accuses=is_report(node)):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        """Leave out one of the grounds that a report may have."""
        grounds = node.test
        if (
            isinstance(grounds, ast.BoolOp)
            and isinstance(grounds.op, ast.Or)
            and any(map(is_report, node.body))
        ):
            for index, ground in enumerate(grounds.values):
                if self._is_left_out(ast.unparse(ground), accuses=True):
                    grounds.values[index] = ast.copy_location(ast.Constant(value=False), ground)
        return self.generic_visit(node)


def checker_class() -> ast.Module:
    """Return the source of the checker."""
    (found,) = [
        node
        for node in ast.parse(inspect.getsource(records)).body
        if isinstance(node, ast.ClassDef) and node.name == "RecordChecker"
    ]
    return ast.Module([found], type_ignores=[])


def weakened(left_out: int) -> Callable[..., list[Anomaly]]:
    """Return `check_history` of a checker that leaves one place out."""
    tree = ast.fix_missing_locations(Weakened(left_out).visit(checker_class()))
    names = dict(vars(records))
    exec(compile(tree, "<weakened>", "exec"), names)  # noqa: S102 - our own source
    found: Callable[..., list[Anomaly]] = FunctionType(check_history.__code__, names)
    found.__kwdefaults__ = check_history.__kwdefaults__
    return found


def all_places() -> list[tuple[str, bool]]:
    """Return every place of the checker that can be left out."""
    transformer = Weakened()
    transformer.visit(checker_class())
    return transformer.places


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left_out", "accuses"),
    [
        pytest.param(number, accuses, id=f"{number}: {what[:60]}")
        for number, (what, accuses) in enumerate(all_places())
    ],
)
def test_a_checker_without_one_of_its_checks_is_found_out(left_out: int, *, accuses: bool) -> None:
    """A planted bug goes unfound; without a step that is no check, or a clean run is accused."""
    check = weakened(left_out)
    unfound = any(
        findings.must - kinds_found(check, seed, bug)
        for bug, findings in BUGS.items()
        for seed in FEW_SEEDS
    )
    falsely_accused = not accuses and any(kinds_found(check, seed, None) for seed in FEW_SEEDS)
    assert unfound or falsely_accused


def test_all_checks_are_switched_off_in_turn() -> None:
    """The places are those of the source: every report is one, and so is each ground of three."""
    places = all_places()
    reports = [what for what, accuses in places if what.startswith("self._report(")]
    assert inspect.getsource(records).count("self._report(") == len(reports)
    assert {kind.name for kind in AnomalyKind} <= {
        name for what in reports for name in re.findall(r"AnomalyKind\.(\w+)", what)
    }
    assert "epoch_went_back" in [what for what, accuses in places if accuses]


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
