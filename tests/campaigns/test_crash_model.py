"""What the model of a crashed store holds against it is found, and nothing else is."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from kgw.backend.embedded.layout import Gap
from kgw.testing.batches import make_batch
from tests.campaigns.client_reads import Batch, ClientReads, Clients
from tests.campaigns.crash_model import Contents, Loose, PartitionModel, serve
from tests.campaigns.crash_states import has_only_left_out
from tests.findings import unplanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.backend.embedded.log.segmented_log import SegmentedLog

OLDEST_S = 5.5
"""A power loss may have taken what was answered since then."""
RECORDS = {0: b"a", 1: b"b", 2: b"c", 3: b"d"}
LOST_AT_THE_END = Contents(0, 4, {0: b"a", 1: b"b", 2: b"c"}, (Gap(3, 4),))


def model_of_four() -> PartitionModel:
    """Two durable records, two that were answered since, one that nobody has answered."""
    model = PartitionModel()
    model.promised = {0: b"a", 1: b"b"}
    model.loose = {2: Loose(b"c", 5.0), 3: Loose(b"d", 6.0)}
    model.possible = {4: {b"e"}, 5: {b"f"}}
    model.end = 4
    model.leader_epoch = 3
    model.must_raise_epoch = True
    return model


class Case(NamedTuple):
    """What a start finds, and what the model says of it."""

    found: Contents
    said: list[str]
    leader_epoch: int = 4
    oldest_s: float | None = OLDEST_S
    before: Callable[[PartitionModel], object] = lambda _: None
    """What was done before."""


def served(
    records: dict[int, bytes], *gaps: Gap, start: int = 0, end: int | None = None
) -> Contents:
    """Return contents with these records."""
    return Contents(start, max(records) + 1 if end is None else end, records, gaps)


def without(*offsets: int) -> dict[int, bytes]:
    """Return the records but for some."""
    return {offset: value for offset, value in RECORDS.items() if offset not in offsets}


def compacted(model: PartitionModel) -> None:
    """Compaction has removed a record, and might be removing another one."""
    model.removed = {0}
    del model.promised[0]
    model.removable = {1}


def begun_at(start: int) -> Callable[[PartitionModel], object]:
    """Return what lets the log begin at an offset, too."""
    return lambda model: model.log_starts.add(start)


def one_more(model: PartitionModel) -> None:
    """A third record was answered that is not durable."""
    model.loose[4] = Loose(b"e", 7.0)
    model.end = 5


def gone(model: PartitionModel) -> None:
    """Compaction has removed a record which a client has sent again, without an answer."""
    model.removed = {4}


FINE: dict[str, Case] = {
    "everything is there": Case(served(RECORDS), []),
    "after a kill": Case(served(RECORDS), [], oldest_s=None),
    "what nobody has answered is there": Case(served(RECORDS | {4: b"e", 5: b"f"}), []),
    "the last one of the window is lost": Case(LOST_AT_THE_END, []),
    "what compaction removes is not there": Case(served(without(0, 1)), [], before=compacted),
    "what compaction may remove is still there": Case(served(without(0)), [], before=compacted),
    "the start has moved": Case(
        served(without(0, 1, 2), start=3),
        [],
        before=begun_at(3),
    ),
    "what was answered right then is lost": Case(LOST_AT_THE_END, [], oldest_s=6.0),
    "nothing was answered": Case(
        served(RECORDS), [], 3, before=lambda model: setattr(model, "must_raise_epoch", False)
    ),
}

WRONG: dict[str, Case] = {
    "the log begins elsewhere": Case(
        served(without(0), start=1), ["the log starts at 1, not at one of [0]"]
    ),
    "the high watermark goes back": Case(
        served(without(3)), ["the high watermark went back from 4 to 3"]
    ),
    "a durable record is lost": Case(
        served(without(1), Gap(1, 2)), ["LOST offset 1 (b'b'); served 0..4"]
    ),
    "a durable record is altered": Case(served(RECORDS | {1: b"x"}), ["WRONG at 1: b'x' for b'b'"]),
    "a durable record is where another one was": Case(
        served(RECORDS | {1: b"a"}), ["WRONG at 1: b'a' for b'b'"]
    ),
    "what was answered since is altered": Case(
        served(RECORDS | {2: b"x"}), ["WRONG at 2: b'x' for b'c'"]
    ),
    "a kill takes what was answered": Case(
        LOST_AT_THE_END, ["LOST offset 3 (b'd') by a kill"], oldest_s=None
    ),
    "what was answered too long ago is lost": Case(
        served(without(2, 3), Gap(2, 4), end=4), ["OVERDUE offset 2 was lost 0.500 s too late"]
    ),
    "one is lost from before one that is there": Case(
        served(without(2), Gap(2, 3)), ["HOLE at 2: 3 is there"], oldest_s=4.0
    ),
    "the first one after a start that has moved is lost": Case(
        served(without(0, 1), Gap(1, 2), start=1),
        ["LOST offset 1 (b'b'); served 1..4"],
        before=begun_at(1),
    ),
    "a kill takes the first one after a start that has moved": Case(
        Contents(3, 4, {}, (Gap(3, 4),)),
        ["LOST offset 3 (b'd') by a kill"],
        oldest_s=None,
        before=begun_at(3),
    ),
    "two are lost from before one that is there": Case(
        served(without(2, 3) | {4: b"e"}, Gap(2, 4)),
        ["HOLE at 2: 4 is there"],
        oldest_s=4.0,
        before=one_more,
    ),
    "what was made durable is lost with the rest": Case(
        served(without(2, 3), Gap(2, 4), end=4),
        ["LOST offset 2 (b'c'); served 0..4"],
        oldest_s=4.0,
        before=lambda model: model.make_durable(3),
    ),
    "nobody has sent it": Case(served(RECORDS | {4: b"x"}), ["PHANTOM b'x' at 4"]),
    "what was sent is elsewhere": Case(served(RECORDS | {4: b"f"}), ["PHANTOM b'f' at 4"]),
    "what was removed is there": Case(
        served(RECORDS | {4: b"e"}), ["BACK at [4]: they had been removed"], before=gone
    ),
    "offsets are left out without a word": Case(
        served(RECORDS | {5: b"f"}), ["HOLE at [4] of 0..6"]
    ),
    "the end is left out without a word": Case(served(RECORDS, end=6), ["HOLE at [4, 5] of 0..6"]),
    "the epoch goes back": Case(served(RECORDS), ["leader epoch 2 after 3"], 2),
    "the epoch stays although it was used": Case(served(RECORDS), ["leader epoch 3 after 3"], 3),
}


@pytest.mark.parametrize("what", [*FINE, *WRONG])
def test_a_start_is_accused_of_what_it_has_broken(what: str) -> None:
    """Of each thing alone, by its name; and of nothing where all is as it was promised."""
    case = (FINE | WRONG)[what]
    model = model_of_four()
    case.before(model)
    assert case.said == list(model.check(case.found, case.leader_epoch, case.oldest_s))


READ: dict[str, tuple[int, dict[int, bytes], tuple[Gap, ...], list[str]]] = {
    "from the middle on": (1, {1: b"b", 2: b"c"}, (), []),
    "past what is left out": (1, {2: b"c"}, (Gap(1, 2),), []),
    "nothing": (4, {}, (), []),
    "a durable record altered": (1, {1: b"x"}, (), ["WRONG at 1: b'x' for b'b'"]),
    "a new record altered": (2, {2: b"x"}, (), ["WRONG at 2: b'x' for b'c'"]),
    "what nobody has answered": (4, {4: b"e"}, (), ["WRONG at 4: b'e' for None"]),
    "past a record": (0, {0: b"a", 2: b"c"}, (), ["HOLE at 1 of 0..2"]),
    "not from where was asked": (0, {1: b"b"}, (), ["HOLE at 0 of 0..1"]),
}


@pytest.mark.parametrize("what", READ)
def test_a_reader_gets_what_was_answered(what: str) -> None:
    """All of it from where it asked, nothing else, and nothing that was not answered."""
    start, records, gaps, said = READ[what]
    assert said == list(model_of_four().check_reader(start, records, gaps))


def test_a_reader_steps_over_what_was_removed() -> None:
    """What compaction has removed, or may have, is no hole."""
    model = model_of_four()
    compacted(model)
    assert [] == list(model.check_reader(0, {2: b"c"}, ()))


def test_everything_that_is_served_is_promised_from_then_on() -> None:
    """A record that nobody had answered, too; and what compaction took must not come back."""
    model = model_of_four()
    model.removable = {1}
    model.adopt(served(without(1) | {4: b"e"}), 4)
    assert [] == list(model.check(served(without(1) | {4: b"e"}), 5, None))
    assert ["LOST offset 4 (b'e'); served 0..5"] == list(
        model.check(served(without(1), Gap(4, 5), end=5), 5, None)
    )
    assert ["PHANTOM b'b' at 1", "BACK at [1]: they had been removed"] == list(
        model.check(served(RECORDS | {4: b"e"}), 5, None)
    )
    assert [
        "the high watermark went back from 5 to 4",
        "LOST offset 4 (b'e'); served 0..4",
    ] == list(model.check(served(without(1)), 4, None))


def test_a_recovered_state_is_all_that_counts() -> None:
    """What was possible before is not any more, nor where the log might begin, nor what may go."""
    model = model_of_four()
    model.log_starts.add(3)
    model.removable = {2}
    model.adopt(served(RECORDS), 4)
    assert [] == list(model.check(served(RECORDS), 4, None))
    assert ["LOST offset 2 (b'c'); served 0..4"] == list(
        model.check(served(without(2), Gap(2, 3)), 4, 9.0)
    )
    assert ["PHANTOM b'e' at 4"] == list(model.check(served(RECORDS | {4: b"e"}), 4, None))
    assert ["the log starts at 3, not at one of [0]"] == list(
        model.check(served(without(0, 1, 2), start=3), 4, None)
    )
    assert ["leader epoch 3 after 4"] == list(model.check(served(RECORDS), 3, None))


def test_a_new_partition_has_promised_nothing() -> None:
    """It is empty, under its first epoch; whatever is in it nobody has written."""
    assert [] == list(PartitionModel().check(served({}, end=0), 0, None))
    assert [] == list(PartitionModel().check(served({}, end=0), -1, None))
    found = list(PartitionModel().check(served({0: b"a"}), 0, None))
    assert ["PHANTOM b'a' at 0"] == found


def test_the_oldest_loss_is_known() -> None:
    """Of what was answered and is not there: the longest ago, above the log's start."""
    model = model_of_four()
    assert model.oldest_lost_s(served(RECORDS)) is None
    assert 6.0 == model.oldest_lost_s(LOST_AT_THE_END)
    assert 5.0 == model.oldest_lost_s(served(without(2, 3), Gap(2, 4), end=4))
    assert 6.0 == model.oldest_lost_s(served({4: b"e"}, start=3))
    assert model.oldest_lost_s(served({4: b"e"}, start=4)) is None


@pytest.mark.parametrize(
    ("second", "is_fine"),
    [
        (LOST_AT_THE_END._replace(high_watermark=9, gaps=(Gap(3, 4), Gap(4, 9))), True),
        (LOST_AT_THE_END._replace(high_watermark=9), False),
        (LOST_AT_THE_END._replace(high_watermark=9, gaps=(Gap(3, 4), Gap(4, 8))), False),
        (LOST_AT_THE_END._replace(high_watermark=9, gaps=(Gap(4, 9),)), False),
        (Contents(0, 9, {0: b"a", 1: b"b"}, (Gap(3, 4), Gap(4, 9))), False),
        (Contents(0, 9, {0: b"a", 1: b"b", 2: b"x"}, (Gap(3, 4), Gap(4, 9))), False),
        (Contents(1, 9, LOST_AT_THE_END.records, (Gap(3, 4), Gap(4, 9))), False),
    ],
)
def test_a_second_start_may_leave_offsets_out(second: Contents, *, is_fine: bool) -> None:
    """Behind the end, and says so; everything else is as the first start has served it."""
    assert is_fine == has_only_left_out(LOST_AT_THE_END, second)


# --- what readers are served ---------------------------------------------------------------------


class _Offsets(NamedTuple):
    log_start_offset: int
    high_watermark: int


class _Log:
    """A log as far as those know it who read all of it."""

    def __init__(self, start: int, end: int) -> None:
        self.offsets = _Offsets(start, end)
        self.gaps: tuple[Gap, ...] = ()


def stored(base_offset: int, *values: bytes) -> Batch:
    """Return a batch as it is served."""
    batch = make_batch(values)
    batch.assign(base_offset, 0)
    return Batch(base_offset, base_offset + len(values), bytes(batch.buffer))


class _Walks:
    """Readers that are served batches, the first one these and later ones others."""

    def __init__(self, first: list[Batch], later: list[Batch]) -> None:
        self._walks = [first]
        self._later = later

    def walk(self, _log: object, _offset: int, _max_bytes: int, end: int) -> Iterator[Batch]:
        """Yield what lies below an end."""
        batches = self._walks.pop() if self._walks else self._later
        yield from (one for one in batches if one.next_offset <= end)


class _Again(Random):
    """Always reads again."""

    def random(self) -> float:
        return 0.0


TWO = [stored(0, b"a", b"b"), stored(2, b"c")]


def serve_walks(first: list[Batch], later: list[Batch], start: int = 0) -> Contents:
    """Return what two readers are served, who read one after the other."""
    reads = cast("ClientReads", _Walks(first, later))
    return serve(reads, cast("SegmentedLog", _Log(start, 3)), _Again(1))


def test_two_readers_are_served_the_same() -> None:
    """And records below the start, in a batch that reaches over it, are none."""
    assert Contents(0, 3, {0: b"a", 1: b"b", 2: b"c"}, ()) == serve_walks(TWO, TWO)
    assert {1: b"b", 2: b"c"} == serve_walks(TWO, TWO, 1).records


def test_a_tombstone_is_told_by_its_key() -> None:
    """It has no value by which it could be known."""
    batch = make_batch([None, b"a"], keys=[b"3", b"4"])
    batch.assign(0, 0)
    three = [Batch(0, 2, bytes(batch.buffer)), stored(2, b"c")]
    assert {0: b"T3", 1: b"a", 2: b"c"} == serve_walks(three, three).records


SERVED: dict[str, tuple[list[Batch], list[Batch], str]] = {
    "an offset twice": ([*TWO, TWO[1]], [*TWO, TWO[1]], "offset 2 is served twice"),
    "less the second time": (
        TWO,
        TWO[:1],
        "up to 3 are served [(0, 2)], not [(0, 2), (2, 3)]",
    ),
    "other bytes the second time": (
        TWO,
        [TWO[0], stored(2, b"x")],
        "up to 3 are served [(0, 2), (2, 3)], not [(0, 2), (2, 3)]",
    ),
}


@pytest.mark.parametrize("what", SERVED)
def test_what_is_served_in_two_ways_is_found(what: str) -> None:
    """Whoever reads again is served the same, and nobody an offset twice."""
    first, later, said = SERVED[what]
    with pytest.raises(AssertionError) as raised:
        serve_walks(first, later)
    assert said == str(raised.value)


class _Fetches(ClientReads):
    """Readers whose fetches are told."""

    def __init__(self, *answers: list[Batch]) -> None:
        super().__init__(Clients(), cast("Any", None), 0)
        self._answers = list(answers)

    def fetch(self, *_: object) -> list[Batch]:
        return self._answers.pop(0) if self._answers else []


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([TWO[:1], TWO[:1]], "a read by  of 2 to 3 goes on at 2"),
        ([[stored(0, b"a", b"b", b"c", b"d")]], "a read by  of 0 to 3 goes on at 4"),
    ],
)
def test_a_walk_goes_on_and_ends_at_its_bound(answers: list[list[Batch]], said: str) -> None:
    """A consumer that is served the same again, or more than there is, says so."""
    log = cast("SegmentedLog", None)
    with pytest.raises(AssertionError) as raised:
        list(_Fetches(*answers).walk(log, 0, 1, 3))
    assert said == str(raised.value)
    assert TWO == list(_Fetches(TWO[:1], TWO[1:]).walk(log, 0, 1, 3))
    assert TWO[:1] == list(_Fetches(TWO[:1]).walk(log, 0, 1, 3))


def test_everything_that_the_model_can_say_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    examples = [said for case in WRONG.values() for said in case.said]
    examples += [said for *_, those in READ.values() for said in those]
    examples += [said for *_, said in SERVED.values()]
    assert [] == unplanted([PartitionModel, serve], examples)
