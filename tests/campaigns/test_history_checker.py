"""J2: the history checker is checked itself, with brokers that have a known bug each."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest

from tests.campaigns.history import (
    NO_OFFSET,
    Anomaly,
    AnomalyKind,
    Bounds,
    Commit,
    FetchedOffset,
    FinalLog,
    Outcome,
    Poll,
    Seek,
    Send,
    TransactionEnd,
    check_history,
    check_progress,
    commits,
    fates,
    records,
    transactions,
)
from tests.campaigns.history.cycles import circles
from tests.campaigns.planted_broker import BUGS, record_history
from tests.campaigns.planted_clients import record_transactions
from tests.campaigns.planted_transactions import TRANSACTION_BUGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from tests.campaigns.history import Event

pytestmark = pytest.mark.campaign

ALL_BUGS = BUGS | TRANSACTION_BUGS
MODULES: tuple[ModuleType, ...] = (fates, records, transactions, commits)
"""Where the checks are."""

SEEDS = range(5)
FEW_SEEDS = range(2)
CLEAN_SEEDS = range(50)

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO


@cache
def history_of(seed: int, bug: str) -> tuple[list[Event], dict[int, FinalLog]]:
    """Return a history, recorded once; nobody changes it."""
    record = record_transactions if bug in TRANSACTION_BUGS else record_history
    return record(seed, bug)


@cache
def clean_histories(seed: int) -> list[tuple[list[Event], dict[int, FinalLog]]]:
    """Return a history of each broker without a bug."""
    return [record_history(seed, None), record_transactions(seed, None)]


def kinds_found(check: Callable[..., list[Anomaly]], seed: int, bug: str) -> set[AnomalyKind]:
    """Return what a checker finds in a history."""
    events, final = history_of(seed, bug)
    return {one.kind for one in check(events, final, drained=True, keeps_all=True)}


@pytest.mark.slow
@pytest.mark.parametrize("bug", ALL_BUGS)
def test_every_planted_bug_is_found_by_name(bug: str) -> None:
    """A broker with one known bug is accused of what it did, whatever the seed, and no more."""
    must, may = ALL_BUGS[bug]
    for seed in SEEDS:
        found = kinds_found(check_history, seed, bug)
        assert must == found - may, f"seed {seed}"


def test_every_kind_of_anomaly_is_planted() -> None:
    """No kind is defined that no planted bug must be found by; who is stuck, times tell."""
    planted = {kind for findings in ALL_BUGS.values() for kind in findings.must}
    assert set(AnomalyKind) - {AnomalyKind.STUCK} == planted


@pytest.mark.slow
def test_clean_runs_raise_no_alarm() -> None:
    """Fifty runs of each broker without a bug are all found clean."""
    for seed in CLEAN_SEEDS:
        for events, final in clean_histories(seed):
            assert [] == check_history(events, final, drained=True, keeps_all=True), f"seed {seed}"


@pytest.mark.slow
def test_clean_runs_have_all_that_is_judged() -> None:
    """Every kind of event, and each way in which it may end, is in many of them."""
    seen: Counter[object] = Counter()
    for seed in CLEAN_SEEDS:
        for events, _ in clean_histories(seed):
            seen.update({(type(one), getattr(one, "outcome", None)) for one in events})
    ways: set[object] = {(one, end) for one in (Send, TransactionEnd, Commit) for end in Outcome}
    ways |= {(one, None) for one in (Poll, Seek, Bounds, FetchedOffset)}
    assert ways == {one for one, count in seen.items() if count >= len(CLEAN_SEEDS) // 2}


# --- the checker with a check switched off ---


def is_report(node: ast.stmt) -> bool:
    """Whether a statement reports an anomaly."""
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("self._report(")


def is_step(node: ast.stmt) -> bool:
    """Whether a statement calls something, and makes nothing of what that returns."""
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return is_call and not ast.unparse(node).startswith("super()")


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


def checker_classes() -> Iterator[tuple[ModuleType, ast.Module]]:
    """Yield the sources of all that judges, by module."""
    for module in MODULES:
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef) and node.name != "Judge":
                yield module, ast.Module([node], type_ignores=[])


def weakened(left_out: int) -> Callable[..., list[Anomaly]]:
    """Return `check_history` of a checker that leaves one place out."""
    transformer = Weakened(left_out)
    names: dict[str, Any] = dict(check_history.__globals__)
    for module, tree in checker_classes():
        inside = dict(vars(module))
        changed = ast.fix_missing_locations(transformer.visit(tree))
        exec(compile(changed, "<weakened>", "exec"), inside)  # noqa: S102 - our own source
        (name,) = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        names[name] = inside[name]
    found: Callable[..., list[Anomaly]] = FunctionType(check_history.__code__, names)
    found.__kwdefaults__ = check_history.__kwdefaults__
    return found


def all_places() -> list[tuple[str, bool]]:
    """Return every place of the checker that can be left out."""
    transformer = Weakened()
    for _, tree in checker_classes():
        transformer.visit(tree)
    return transformer.places


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left_out", "what", "accuses"),
    [
        pytest.param(number, what, accuses, id=f"{number}: {what[:60]}")
        for number, (what, accuses) in enumerate(all_places())
    ],
)
def test_a_checker_without_one_of_its_checks_is_found_out(
    left_out: int, what: str, *, accuses: bool
) -> None:
    """A planted bug goes unfound; without a step that is no check, or a clean run is accused."""
    check = weakened(left_out)
    if not accuses and any(
        check(*history, drained=True, keeps_all=True)
        for seed in FEW_SEEDS
        for history in clean_histories(seed)
    ):
        return
    # Those that what is left out has to do with come first: nearly always the first one is enough.
    named = {AnomalyKind[name] for name in re.findall(r"AnomalyKind\.(\w+)", what)}
    bugs = sorted(ALL_BUGS, key=lambda bug: not named & ALL_BUGS[bug].must)
    assert any(
        ALL_BUGS[bug].must - kinds_found(check, seed, bug) for seed in FEW_SEEDS for bug in bugs
    )


def test_all_checks_are_switched_off_in_turn() -> None:
    """The places are those of the source: every report is one, and so is each ground of three."""
    places = all_places()
    reports = [what for what, accuses in places if what.startswith("self._report(")]
    sources = "".join(map(inspect.getsource, MODULES))
    assert sources.count("self._report(") == len(reports)
    assert {kind.name for kind in AnomalyKind} - {"STUCK"} == {
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
    polls = [Poll("c", 0, ((0, b"a"), (1, b"b")))]
    final = {0: FinalLog(1, 2, [(1, b"b")])}
    assert [] == check_history([*sends, *polls], final)


def test_where_nothing_is_removed_no_log_begins_later() -> None:
    """A record below the final log start is lost, and whoever has read it was told otherwise."""
    sends = [Send("p", 0, b"a", Outcome.OK, 0), Send("p", 0, b"b", Outcome.OK, 1)]
    poll = Poll("c", 0, ((0, b"a"), (1, b"b")))
    final = {0: FinalLog(1, 2, [(1, b"b")])}
    assert [AnomalyKind.ACKED_LOST] == kinds(check_history(sends, final, keeps_all=True))
    read = check_history([*sends, poll], final, keeps_all=True)
    assert [AnomalyKind.TIME_TRAVEL, AnomalyKind.ACKED_LOST] == kinds(read)
    assert [] == check_history(sends, {1: FinalLog(1, 1, [])}, keeps_all=True)


@pytest.mark.parametrize(
    "records",
    [
        [(1, b"a"), (1, b"a")],
        [(2, b"b"), (1, b"a")],
        [(0, b"a"), (1, b"b")],
        [(1, b"a"), (3, b"b")],
    ],
)
def test_offsets_of_a_log_rise_from_its_start_to_its_end(records: list[tuple[int, bytes]]) -> None:
    """None comes twice, after a higher one, below the start, or at the high watermark."""
    sends = [Send("p", 0, value, Outcome.INFO) for value in (b"a", b"b")]
    found = check_history(sends, {0: FinalLog(1, 3, records)})
    assert [AnomalyKind.INCONSISTENT_OFFSETS] == kinds(found)
    fine = {0: FinalLog(1, 3, [(1, b"a"), (2, b"b")])}
    assert [] == check_history(sends, fine)


def test_an_offset_is_polled_once() -> None:
    """One that comes again is no progress; after a seek it is."""
    sends = [Send("p", 0, b"a", Outcome.OK, 0)]
    polls = [Poll("c", 0, ((0, b"a"),)), Poll("c", 0, ((0, b"a"),))]
    final = {0: FinalLog(0, 1, [(0, b"a")])}
    assert [AnomalyKind.NONMONOTONIC_POLL] == kinds(check_history([*sends, *polls], final))
    sought: list[Event] = [polls[0], Seek("c", 0), polls[1]]
    assert [] == check_history([*sends, *sought], final)


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


# --- transactions ---


def kinds(found: list[Anomaly]) -> list[AnomalyKind]:
    """Return what was found, in order."""
    return [one.kind for one in found]


def transaction(name: str, partitions: int = 2) -> list[Event]:
    """Return the sends of a transaction that writes a record to each partition, at offset 0."""
    return [
        Send("p", number, b"%d" % number, OK, 0, transaction=name) for number in range(partitions)
    ]


def finals(committed: list[bool], end: int = 2, stable: int | None = None) -> dict[int, FinalLog]:
    """Return partitions with that record each, a marker, and what is committed of them."""
    logs = {}
    for number, is_committed in enumerate(committed):
        every = [(0, b"%d" % number)]
        logs[number] = FinalLog(0, end, every, every if is_committed else [], stable)
    return logs


@pytest.mark.parametrize("outcome", [OK, INFO, None])
def test_a_part_of_a_transaction_is_a_tear(outcome: Outcome | None) -> None:
    """Whatever its client knows: all of it or none of it is committed."""
    events = transaction("t")
    if outcome is not None:
        events.append(TransactionEnd("p", "t", outcome))
    assert [] == check_history(events, finals([True, True]))
    torn = check_history(events, finals([True, False]))
    assert [AnomalyKind.TORN_TRANSACTION] == kinds(torn)
    missing = [] if outcome is not OK else [AnomalyKind.ACKED_LOST] * 2
    assert missing == kinds(check_history(events, finals([False, False])))


def test_what_was_aborted_may_be_anywhere_but_among_committed_records() -> None:
    """It may be missing, and may be moved about."""
    events = [*transaction("t"), TransactionEnd("p", "t", FAIL)]
    assert [] == check_history(events, finals([False, False]), drained=True)
    empty = FinalLog(0, 2, [], [])
    assert [] == check_history(events, {0: empty, 1: empty}, drained=True)
    found = check_history(events, finals([True, False]))
    assert [AnomalyKind.ABORTED_READ] == kinds(found)


def test_the_last_end_counts() -> None:
    """A client that asks again learns what it did not know."""
    events = [*transaction("t"), TransactionEnd("p", "t", INFO), TransactionEnd("p", "t", OK)]
    lost = [AnomalyKind.ACKED_LOST] * 2
    assert lost == kinds(check_history(events, finals([False, False])))


def test_what_is_not_stable_yet_is_no_tear() -> None:
    """The partition hangs; who reads committed records has not got there."""
    events = [*transaction("t"), TransactionEnd("p", "t", OK)]
    final = finals([True, False], stable=0) | {0: finals([True])[0]}
    assert [AnomalyKind.HANGING] == kinds(check_history(events, final))


def poll(process: str, partition: int, *records: tuple[int, bytes]) -> Poll:
    """Return a poll of committed records."""
    return Poll(process, partition, records, read_committed=True)


def test_a_reader_that_has_not_got_there_tears_nothing() -> None:
    """One that has been past it does, unless it sought, or another reader got the other part."""
    sends: list[Event] = [
        *[Send("p", 0, value, OK, offset) for offset, value in enumerate([b"a", b"b"])],
        *[Send("p", 1, value, OK, offset) for offset, value in [(0, b"c"), (3, b"d")]],
        Send("t", 0, b"left", OK, 2, transaction="t"),
        Send("t", 1, b"right", OK, 1, transaction="t"),
        TransactionEnd("t", "t", OK),
    ]
    left, before = poll("c", 0, (2, b"left")), poll("c", 1, (0, b"c"))
    after = (3, b"d")
    assert [] == check_history([*sends, left, before], {})
    for torn in ([left, before, poll("c", 1, after)], [before, poll("c", 1, after), left]):
        assert [AnomalyKind.TORN_TRANSACTION] == kinds(check_history([*sends, *torn], {}))
    sought: list[Event] = [left, before, Seek("c", 1), poll("c", 1, after)]
    assert [] == check_history([*sends, *sought], {})
    others = [left, before._replace(process="d"), poll("d", 1, after)]
    assert [] == check_history([*sends, *others], {})
    every = [one._replace(read_committed=False) for one in (left, before, poll("c", 1, after))]
    assert [] == check_history([*sends, *every], {})


def test_a_value_at_two_offsets_is_neither_lost_nor_torn() -> None:
    """It is a duplicate, and nothing else."""
    events = [*transaction("t"), TransactionEnd("p", "t", OK)]
    final = finals([True, True], end=3)
    twice = [(0, b"0"), (1, b"0")]
    final[0] = FinalLog(0, 3, twice, twice[1:])
    assert [AnomalyKind.DUPLICATE] == kinds(check_history(events, final))


def test_own_records_are_not_read_before_they_are_committed() -> None:
    """Not with read_committed: with read_uncommitted that is what was asked for."""
    sends = transaction("t", 1)
    own = Poll("p", 0, ((0, b"0"),), "t", read_committed=True)
    for outcome in Outcome:
        events = [*sends, own, TransactionEnd("p", "t", outcome)]
        final = finals([outcome is not FAIL])
        assert [AnomalyKind.PRECOMMITTED_READ] == kinds(check_history(events, final))
        events[1] = own._replace(read_committed=False)
        assert [] == check_history(events, final)


def test_circles_of_any_length_are_found() -> None:
    """Each once, and nothing that merely leads into one or out of it."""
    edges = {0: [1], 1: [2], 2: [3, 0], 3: [4], 4: [5], 5: [4], 6: [0], 7: [7]}
    assert [{4, 5}, {0, 1, 2}] == [set(one) for one in circles(edges)]
    long = {number: [(number + 1) % 10_000] for number in range(10_000)}
    assert [10_000] == [len(one) for one in circles(long)]
    del long[9_999]
    assert [] == circles(long)


@pytest.mark.parametrize("aborted", [None, 0, 2])
def test_a_circle_of_three_readers(aborted: int | None) -> None:
    """Each has read what the next one wrote; where one was aborted, that is what is wrong."""
    names = ["a", "b", "c"]
    events: list[Event] = [
        Send(name, at, name.encode(), OK, 0, transaction=name) for at, name in enumerate(names)
    ]
    for at, name in enumerate(names):
        source = (at + 1) % 3
        events.append(Poll(name, source, ((0, names[source].encode()),), name, read_committed=True))
    events += [
        TransactionEnd(name, name, FAIL if at == aborted else OK) for at, name in enumerate(names)
    ]
    expected = AnomalyKind.CIRCULAR_INFORMATION if aborted is None else AnomalyKind.ABORTED_READ
    assert [expected] == kinds(check_history(events, {}))


def test_what_was_read_of_a_transaction_may_not_be_taken_back() -> None:
    """Nobody knows how it ended, but a reader of committed records had it."""
    events = [*transaction("t", 1), poll("c", 0, (0, b"0"))]
    assert [AnomalyKind.TIME_TRAVEL] == kinds(check_history(events, finals([False])))
    assert [] == check_history(events, finals([True]))


# --- committed offsets ---


def told(*history: Event | int, final: dict[int, FinalLog] | None = None) -> list[AnomalyKind]:
    """Return what is found where numbers are what OffsetFetch told."""
    events = [FetchedOffset("g", 0, one) if isinstance(one, int) else one for one in history]
    return kinds(check_history(events, final or {}))


def committed(offset: int, outcome: Outcome = OK, transaction: str | None = None) -> Commit:
    """Return a commit of the one group."""
    return Commit("c", "g", 0, offset, outcome, transaction)


def ended(outcome: Outcome, name: str = "t") -> TransactionEnd:
    """Return the end of a transaction."""
    return TransactionEnd("c", name, outcome)


def test_the_last_commit_is_told() -> None:
    """Not one before, not none, and not one that nobody made."""
    assert [] == told(NO_OFFSET, committed(5), 5, committed(3), 3)
    assert [AnomalyKind.COMMIT_LOST] == told(committed(5), committed(7), 5)
    assert [AnomalyKind.COMMIT_LOST] == told(committed(5), committed(3), 5)
    assert [AnomalyKind.COMMIT_LOST] == told(committed(5), NO_OFFSET)
    assert [AnomalyKind.COMMIT_INVENTED] == told(committed(5), 6)
    assert [AnomalyKind.COMMIT_INVENTED] == told(committed(5), committed(6, FAIL), 6)


def test_a_commit_may_count_before_it_is_recorded() -> None:
    """Its answer was on its way when another asked."""
    assert [] == told(committed(5), 6, committed(6))


def test_a_commit_without_an_answer_may_count_at_any_time() -> None:
    """Or never."""
    unknown = committed(6, INFO)
    assert [] == told(committed(5), unknown, 5, 6, 5, committed(7), 7, 6)


def test_offsets_of_a_transaction_count_from_its_end_on() -> None:
    """Those of an aborted one never do; of an unknown one they may."""
    begun = [committed(5), committed(9, OK, "t")]
    assert [] == told(*begun, 5, ended(OK), 9)
    assert [AnomalyKind.COMMIT_LOST] == told(*begun, ended(OK), 5)
    assert [AnomalyKind.ABORTED_READ] == told(*begun, ended(FAIL), 9)
    assert [] == told(*begun, ended(FAIL), 5)
    assert [] == told(*begun, ended(INFO), 5, 9, 5)
    assert [] == told(*begun, 5, 9)


def test_of_several_commits_the_one_that_came_last_counts() -> None:
    """Whenever transactions end: a later commit outdates what was pending."""
    first, plain = committed(9, OK, "t"), committed(7)
    assert [] == told(first, plain, 7, ended(OK), 7)
    assert [AnomalyKind.COMMIT_LOST] == told(first, plain, ended(OK), 9)
    second = committed(11, OK, "u")
    assert [] == told(first, second, ended(OK, "u"), 11, ended(OK), 11)


def test_offsets_count_with_the_records_of_their_transaction() -> None:
    """Nobody knows how it ended, but its record is read as committed: so must its offsets be."""
    events = [committed(5), *transaction("t", 1), committed(9, OK, "t"), ended(INFO)]
    seen, final = poll("d", 0, (0, b"0")), finals([True])
    assert [] == told(*events, 5, seen, 9, final=final)
    assert [AnomalyKind.COMMIT_LOST] == told(*events, seen, 5, final=final)


def test_offsets_are_undone_with_the_records_of_their_transaction() -> None:
    """Nobody knows how it ended, but readers of committed records have passed its record."""
    events = [committed(5), *transaction("t", 1), committed(9, OK, "t"), ended(INFO)]
    assert [AnomalyKind.ABORTED_READ] == told(*events, 9, final=finals([False]))
    assert [] == told(*events, 5, final=finals([False]))
    # They have not come to it yet, or nobody looked.
    open_still = {0: finals([False])[0]._replace(last_stable_offset=0)}
    assert [AnomalyKind.HANGING] == told(*events, 5, 9, final=open_still)
    unseen = {0: finals([False])[0]._replace(committed=None)}
    assert [] == told(*events, 5, 9, final=unseen)
    # A record of nobody's transaction says nothing of it.
    other = Send("p", 0, b"other", OK, 1)
    log = FinalLog(0, 3, [(0, b"0"), (1, b"other")], [(0, b"0")])
    assert [AnomalyKind.ACKED_LOST] == told(*events, other, 9, final={0: log})


# --- progress ---


def test_who_does_nothing_after_a_healing_is_stuck() -> None:
    """Each process and each healing by itself; just in time is in time."""
    progress = {
        "early": [1.0, 11.0, 25.0],
        "just": [20.0, 30.0],
        "late": [9.9, 20.1, 30.0],
        "dead": [],
    }
    found = check_progress([10.0, 20.0], progress, 10.0)
    assert {AnomalyKind.STUCK} == set(kinds(found))
    assert ["late did nothing within 10 s of 10.0 s"] == [
        one.detail for one in found if one.detail.startswith(("early", "just", "late"))
    ]
    assert 2 == sum(one.detail.startswith("dead") for one in found)
