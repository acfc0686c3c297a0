"""What the campaign of transactions holds against a gateway is found, and nothing else is."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kgw.protocol.api_keys import ApiKey
from tests.campaigns.support import Report
from tests.campaigns.transaction_world import TOPIC, Batch, Transaction, World, WrongError
from tests.findings import unplanted
from tests.handlers.support import produce_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

Records = list[tuple[int, int, bytes]]
SEEN: Records = [
    (0, 0, b"plain"),
    (0, 1, b"yes 1"),
    (0, 2, b"yes 2"),
    (1, 0, b"yes 3"),
    (1, 1, b"no 1"),
    (2, 0, b"no 2"),
]
COMMITTED = SEEN[:4]


def world_of_two(fate: bool | None = False) -> World:
    """One plain record, a transaction that is committed and one that is not, each of two batches.

    The last batch of each has no answer.
    """
    world = World(Report("transactions", 1), Random(1))
    world.plain = {b"plain": (0, 0)}
    yes = Transaction("yes", (7, 0), is_commit=True)
    yes.batches = [Batch(7, 0, 0, 0, (b"yes 1", b"yes 2")), Batch(7, 0, 1, 0, (b"yes 3",))]
    yes.answered = {yes.batches[0]: 1}
    yes.offsets = {0: 5}
    yes.fate = True
    no = Transaction("no", (8, 0), is_commit=False)
    no.batches = [Batch(8, 0, 1, 0, (b"no 1",)), Batch(8, 0, 2, 0, (b"no 2",))]
    no.answered = {no.batches[0]: 1}
    no.offsets = {1: 6}
    no.fate = fate
    other = Transaction("other", (9, 0), is_commit=True)
    other.offsets = {0: 9, 1: 9, 2: 9}
    other.fate = True
    world.transactions = [("group", yes), ("group", no), ("other group", other)]
    return world


def without(records: Records, *values: bytes) -> Records:
    """Return records but for some."""
    return [one for one in records if one[2] not in values]


def instead(records: Records, value: bytes, *others: tuple[int, int, bytes]) -> Records:
    """Return records with others instead of one of them."""
    return [*without(records, value), *others]


class Case(NamedTuple):
    """What is seen of all records, and of committed ones, and what is said of that."""

    seen: Records
    committed: Records
    said: list[str]
    world: Callable[[], World] = world_of_two


YES, NO = "<yes of (7, 0), commit>", "<no of (8, 0), abort>"
FINE = {
    "all of it": Case(SEEN, COMMITTED, []),
    "what was aborted without an answer is not there": Case(without(SEEN, b"no 2"), COMMITTED, []),
    "what goes on is not committed": Case(SEEN, COMMITTED, [], lambda: world_of_two(None)),
    "without an answer it may be anywhere": Case(
        instead(SEEN, b"yes 3", (2, 4, b"yes 3")),
        instead(COMMITTED, b"yes 3", (2, 4, b"yes 3")),
        [],
    ),
}
WRONG = {
    "stored twice": Case(
        [*SEEN, (2, 1, b"yes 3")], COMMITTED, ["DUPLICATE: b'yes 3' is stored 2 times"]
    ),
    "aborted records stored twice": Case(
        [*SEEN, (2, 1, b"no 2")], COMMITTED, ["DUPLICATE: b'no 2' is stored 2 times"]
    ),
    "a plain record is lost": Case(
        without(SEEN, b"plain"),
        without(COMMITTED, b"plain"),
        ["LOST: a plain record b'plain' of (0, 0)"],
    ),
    "a plain record is hidden": Case(
        SEEN, without(COMMITTED, b"plain"), ["LOST: a plain record b'plain' of (0, 0)"]
    ),
    "a plain record is moved": Case(
        instead(SEEN, b"plain", (0, 3, b"plain")),
        instead(COMMITTED, b"plain", (0, 3, b"plain")),
        ["MOVED: a plain record b'plain' to (0, 3), not (0, 0)"],
    ),
    "a plain record is in another partition": Case(
        instead(SEEN, b"plain", (2, 0, b"plain")),
        instead(COMMITTED, b"plain", (2, 0, b"plain")),
        ["MOVED: a plain record b'plain' to (2, 0), not (0, 0)"],
    ),
    "a part of it is hidden": Case(
        SEEN, without(COMMITTED, b"yes 2"), [f"TORN: 2 of 3 records of {YES}"]
    ),
    "a part of it without an answer is lost": Case(
        without(SEEN, b"yes 3"), without(COMMITTED, b"yes 3"), [f"TORN: 2 of 3 records of {YES}"]
    ),
    "all of it is hidden": Case(SEEN, COMMITTED[:1], [f"COMMIT LOST: 0 of 3 records of {YES}"]),
    "it is read although it was aborted": Case(
        SEEN, [*COMMITTED, (1, 1, b"no 1")], [f"ABORTED read: 1 of 2 records of {NO}"]
    ),
    "it is read before it is committed": Case(
        SEEN,
        [*COMMITTED, (2, 0, b"no 2")],
        [f"PRECOMMITTED read: 1 of 2 records of {NO}"],
        lambda: world_of_two(None),
    ),
    "it is moved": Case(
        instead(SEEN, b"yes 2", (0, 3, b"yes 2")),
        instead(COMMITTED, b"yes 2", (0, 3, b"yes 2")),
        ["MOVED: b'yes 2' to (0, 3), answered (0, 2)"],
    ),
    "aborted records are in another partition": Case(
        instead(SEEN, b"no 1", (2, 1, b"no 1")),
        COMMITTED,
        ["MOVED: b'no 1' to (2, 1), answered (1, 1)"],
    ),
    "aborted records that were answered are lost": Case(
        without(SEEN, b"no 1"), COMMITTED, ["MOVED: b'no 1' to None, answered (1, 1)"]
    ),
    "nobody has sent it": Case([*SEEN, (2, 1, b"x")], COMMITTED, ["PHANTOM: b'x'"]),
    "committed records are elsewhere": Case(
        SEEN,
        instead(COMMITTED, b"yes 3", (1, 2, b"yes 3")),
        ["COMMITTED ALONE: b'yes 3' at 1/2"],
    ),
}


@pytest.mark.parametrize("what", [*FINE, *WRONG])
def test_what_is_wrong_with_records_is_found_by_its_name(what: str) -> None:
    """Each thing alone; and nothing is said where everything is as it was told."""
    seen, committed, said, world = (FINE | WRONG)[what]
    assert said == list(world().broken_records(seen, committed))


OFFSETS: dict[str, tuple[dict[int, int], list[str]]] = {
    "fine": ({0: 5, 1: -1, 2: -1}, []),
    "not stable": (
        {0: 5, 1: -2, 2: -1},
        ["HANGING: the offset of group/1 is not stable"],
    ),
    "aborted": (
        {0: 5, 1: 6, 2: -1},
        ["COMMIT INVENTED: group/1 is at 6, which was aborted"],
    ),
    "none": ({0: -1, 1: -1, 2: -1}, ["COMMIT LOST: group/0 is at -1, not 5"]),
    "an older one": ({0: 4, 1: -1, 2: -1}, ["COMMIT LOST: group/0 is at 4, not 5"]),
    "another group's": ({0: 5, 1: 9, 2: -1}, ["COMMIT LOST: group/1 is at 9, not -1"]),
}


@pytest.mark.parametrize("what", OFFSETS)
def test_what_is_wrong_with_offsets_is_found_by_its_name(what: str) -> None:
    """Those of the group's last committed transaction count, and no others."""
    found, said = OFFSETS[what]
    assert said == list(world_of_two().broken_offsets("group", found))


def test_the_last_commit_of_a_partition_counts() -> None:
    """Not the one before it."""
    world = world_of_two()
    later = Transaction("later", (7, 1), is_commit=True)
    later.offsets, later.fate = {0: 8}, True
    world.transactions.append(("group", later))
    assert [] == list(world.broken_offsets("group", {0: 8, 1: -1, 2: -1}))
    assert ["COMMIT LOST: group/0 is at 5, not 8"] == list(
        world.broken_offsets("group", {0: 5, 1: -1, 2: -1})
    )


class WorldOfReaders(World):
    """One in which it is told what readers of committed records get."""

    committed: Records = COMMITTED

    async def read(self, partition: int, isolation: int) -> list[tuple[int, bytes]]:
        assert 1 == isolation
        return [(offset, value) for number, offset, value in self.committed if number == partition]


@pytest.mark.parametrize(
    ("committed", "fate", "is_commit", "is_end_asked", "said"),
    [
        (COMMITTED, False, False, True, []),
        (SEEN[:5], True, True, True, []),
        (SEEN[:5], None, True, True, []),
        (SEEN[:5], False, False, True, ["ABORTED read of {}: b'no 1' at 1/1"]),
        (SEEN[:5], None, False, True, ["ABORTED read of {}: b'no 1' at 1/1"]),
        (SEEN[:5], None, True, False, ["PRECOMMITTED read of {}: b'no 1' at 1/1"]),
        (SEEN[:5], None, False, False, ["PRECOMMITTED read of {}: b'no 1' at 1/1"]),
    ],
)
async def test_a_reader_in_the_middle_of_it_gets_what_may_be_committed(
    committed: Records, fate: bool | None, *, is_commit: bool, is_end_asked: bool, said: list[str]
) -> None:
    """Nothing of a transaction that is aborted, is to be, or of which nobody has asked the end."""
    world = WorldOfReaders(Report("transactions", 1), Random(1))
    world.transactions = world_of_two().transactions
    world.committed = committed
    no = world.transactions[1][1]
    no.fate, no.is_commit, no.is_end_asked = fate, is_commit, is_end_asked
    await world.look()
    assert [one.format(no) for one in said] == world.report.failures


@pytest.fixture
async def living() -> AsyncIterator[World]:
    """A world in its first life, with some records of nobody's transaction."""
    world = World(Report("transactions", 1), Random(1))
    async with world.living():
        await world.start()
        for _ in range(20):
            await world.write_plain()
        yield world


@pytest.mark.slow
async def test_a_world_is_judged_by_what_its_gateway_serves(living: World) -> None:
    """All records are read by both kinds of readers, and the offsets of every group."""
    await living.until_stable(1.0)
    await living.judge()
    living.report.conclude()
    assert {partition for partition, _ in living.plain.values()} == set(range(3))
    assert 2 * len(living.plain) == living.report.counts["records_looked_at"]
    value, (partition, offset) = living.plain.popitem()
    living.plain[b"lost"] = (0, 7)
    one = Transaction("yes", (7, 0), is_commit=True)
    one.offsets, one.fate = {0: 5}, True
    living.transactions = [("group", one)]
    await living.judge()
    assert [
        "LOST: a plain record b'lost' of (0, 7)",
        f"PHANTOM: {value[:20]!r}",
        "COMMIT LOST: group/0 is at -1, not 5",
    ] == living.report.failures
    assert offset < (await living.ends(0))[partition]


@pytest.mark.slow
async def test_what_goes_on_for_too_long_hangs(living: World) -> None:
    """A transaction that nobody ends holds readers back, who get nothing of it meanwhile."""
    answer = await living.call(
        ApiKey.INIT_PRODUCER_ID, 4, transactional_id="t", transaction_timeout_ms=30_000
    )
    one = Batch(answer.producer_id, answer.producer_epoch, 1, 0, (b"one", b"two"))
    request = produce_request(one.records(), name=TOPIC, index=1, transactional_id="t")
    response = await living.ask(request, 12)
    offset = response.responses[0].partition_responses[0].base_offset
    assert [(offset, b"one"), (offset + 1, b"two")] == (await living.read(1, 0))[-2:]
    assert offset == (await living.ends(1))[1] == len(await living.read(1, 1))
    with pytest.raises(WrongError, match=r"HANGING: stable up to .*, without \[\], after 1 s"):
        await living.until_stable(1.0)


@pytest.mark.slow
async def test_offsets_that_are_held_open_for_too_long_hang(living: World) -> None:
    """A commit of a transaction that goes on is not stable, and its group is named."""
    answer = await living.call(
        ApiKey.INIT_PRODUCER_ID, 4, transactional_id="t", transaction_timeout_ms=30_000
    )
    who = {
        "transactional_id": "t",
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
        "group_id": "group",
    }
    await living.call(ApiKey.ADD_OFFSETS_TO_TXN, 3, **who)
    partitions = [{"partition_index": 1, "committed_offset": 7}]
    topics = [{"name": TOPIC, "partitions": partitions}]
    await living.call(ApiKey.TXN_OFFSET_COMMIT, 2, **who, topics=topics)
    assert {0: -1, 1: -2, 2: -1} == await living.offsets("group")
    living.transactions = [("group", Transaction("t", (answer.producer_id, 0), is_commit=True))]
    with pytest.raises(WrongError, match=r"HANGING: .* without \['group'\], after 1 s"):
        await living.until_stable(1.0)


async def test_what_cannot_be_read_is_a_finding(living: World) -> None:
    """It is not taken for an empty partition."""
    with pytest.raises(WrongError, match="UNKNOWN_TOPIC_OR_PARTITION for a fetch at 0"):
        await living.read(99, 0)


def test_nobody_is_given_what_another_one_has() -> None:
    """An id with an epoch is told once; the same id with another epoch is another producer."""
    world = world_of_two()
    for producer in ((7, 0), (7, 1), (8, 0)):
        world.give(producer)
    assert [] == world.report.failures
    world.give((7, 1))
    world.give((-1, -1))
    said = ["HANDED OUT TWICE: (7, 1)", "HANDED OUT TWICE: (-1, -1)"]
    assert said == world.report.failures


def test_everything_that_is_said_of_transactions_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    examples = [said for case in WRONG.values() for said in case.said]
    assert [] == unplanted([World.broken_records], examples)
    examples = [said for _, those in OFFSETS.values() for said in those]
    assert [] == unplanted([World.broken_offsets], examples)
