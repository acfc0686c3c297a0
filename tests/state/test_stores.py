"""What every state store does, in memory or in a database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.state.base import Change, ConflictError, Row
from kgw.state.memory import MemoryStateStore
from tests.state.support import ServerDatabase, SqliteDatabase, opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.state.base import StateStore
    from tests.state.servers import DatabaseServer
    from tests.state.support import Database


async def test_nothing_is_loaded_from_an_empty_store(store: StateStore) -> None:
    """A kind that was never written has no rows."""
    assert await store.load("topic") == {}


async def test_what_was_applied_is_loaded_by_kind(store: StateStore) -> None:
    """Rows come back with their bytes; another kind's are apart."""
    await store.apply(
        [Change("topic", "a", b"1"), Change("topic", "b", b""), Change("id", "a", b"\0")]
    )

    assert {"a": Row(b"1", 1), "b": Row(b"", 1)} == await store.load("topic")
    assert {"a": Row(b"\0", 1)} == await store.load("id")


async def test_kinds_are_those_that_have_rows(store: StateStore) -> None:
    """In order, and without one whose last row was deleted."""
    assert await store.kinds() == []
    await store.apply([Change("topic", "a", b"1"), Change("group", "a", b"1")])
    assert ["group", "topic"] == await store.kinds()
    await store.apply([Change("group", "a", None)])
    assert ["topic"] == await store.kinds()


async def test_each_write_raises_the_version(store: StateStore) -> None:
    """A row that was deleted begins again at 1."""
    for value in (b"1", b"2", b"2"):
        await store.apply([Change("topic", "a", value)])
    assert {"a": Row(b"2", 3)} == await store.load("topic")

    await store.apply([Change("topic", "a", None)])
    assert await store.load("topic") == {}

    await store.apply([Change("topic", "a", b"3")])
    assert {"a": Row(b"3", 1)} == await store.load("topic")


async def test_an_empty_set_changes_nothing(store: StateStore) -> None:
    """Nothing to write is no error; nor is deleting what is not there."""
    await store.apply([])
    await store.apply([Change("topic", "a", None)])

    assert await store.load("topic") == {}


@pytest.mark.parametrize("expected_version", [0, 2, 3])
async def test_a_conflict_writes_nothing_of_its_set(
    store: StateStore, expected_version: int
) -> None:
    """All or none, and the error says where the key stands."""
    await store.apply([Change("topic", "a", b"1")])

    with pytest.raises(ConflictError, match="stands at version 1") as caught:
        await store.apply(
            [Change("topic", "b", b"2"), Change("topic", "a", b"2", expected_version)]
        )

    assert caught.value.version == 1
    assert caught.value.change.key == "a"
    assert {"a": Row(b"1", 1)} == await store.load("topic")


async def test_compare_and_set_goes_through_at_the_version(store: StateStore) -> None:
    """0 stands for a key that must not exist; deleting compares too."""
    await store.apply([Change("topic", "a", b"1", 0)])
    await store.apply([Change("topic", "a", b"2", 1)])
    with pytest.raises(ConflictError):
        await store.apply([Change("topic", "a", None, 1)])
    await store.apply([Change("topic", "a", None, 2)])

    with pytest.raises(ConflictError):
        await store.apply([Change("topic", "a", b"3", 2)])
    assert await store.load("topic") == {}


async def test_a_key_may_occur_twice_in_a_set(store: StateStore) -> None:
    """Changes count in their order, each seeing the one before it."""
    await store.apply(
        [
            Change("topic", "a", b"1", 0),
            Change("topic", "a", b"2", 1),
            Change("topic", "b", b"1"),
            Change("topic", "b", None, 1),
            Change("topic", "c", None),
            Change("topic", "c", b"3", 0),
        ]
    )

    assert {"a": Row(b"2", 2), "c": Row(b"3", 1)} == await store.load("topic")


async def test_concurrent_sets_do_not_fail_each_other(store: StateStore) -> None:
    """Of many that want to create one key exactly one does; the others' rows are written."""
    outcomes = await asyncio.gather(
        *(
            store.apply([Change("mine", str(index), b"x"), Change("topic", "a", b"%d" % index, 0)])
            if index % 2
            else store.apply([Change("mine", str(index), b"x")])
            for index in range(20)
        ),
        return_exceptions=True,
    )

    assert 9 == [type(outcome) for outcome in outcomes].count(ConflictError)
    assert {"1"} | {str(index) for index in range(0, 20, 2)} == set(await store.load("mine"))
    assert {"a": Row(b"1", 1)} == await store.load("topic")


async def test_concurrent_writes_of_a_key_all_count(store: StateStore) -> None:
    """The version rises by as many as wrote; the last one to come wins."""
    await asyncio.gather(
        *(store.apply([Change("topic", "a", b"%d" % index)]) for index in range(50))
    )

    assert {"a": Row(b"49", 50)} == await store.load("topic")


async def test_nothing_is_loaded_before_it_is_committed(store: StateStore) -> None:
    """Who asks meanwhile sees a set whole, or not at all: half of it may never become durable."""
    await store.apply([Change("topic", "before", b"1")])
    applying = asyncio.ensure_future(
        store.apply([Change("topic", "after", b"1"), Change("topic", "before", None)])
    )
    seen = [set(await store.load("topic"))]
    while not applying.done():
        await asyncio.sleep(0)
        seen.append(set(await store.load("topic")))
    await applying

    assert all(keys in ({"before"}, {"after"}) for keys in seen), seen
    assert {"after"} == set(await store.load("topic"))


async def test_a_caller_that_gives_up_stops_nobody(store: StateStore) -> None:
    """Cancelling one of several that share a commit leaves the others theirs."""
    first = asyncio.ensure_future(store.apply([Change("topic", "a", b"1")]))
    second = asyncio.ensure_future(store.apply([Change("topic", "b", b"1")]))
    await asyncio.sleep(0)
    first.cancel()

    await second

    assert "b" in await store.load("topic")


@pytest.mark.parametrize("key", ["", "\0", "a\0b", "ключ", "\U0001f511", "a" * 5_000, "'; --"])
async def test_any_text_is_a_key(store: StateStore, key: str) -> None:
    """Group ids and names are clients' texts; none of them is special."""
    await store.apply([Change("group", key, b"1", 0)])
    await store.apply([Change("group", key, b"2", 1)])

    assert {key: Row(b"2", 2)} == await store.load("group")


async def test_large_sets_and_values_go_through(store: StateStore) -> None:
    """More keys than one statement takes, and a value of a megabyte."""
    await store.apply([Change("many", str(index), b"x") for index in range(1_500)])
    await store.apply([Change("large", "a", bytes(1 << 20))])

    await store.apply([Change("many", str(index), b"y", 1) for index in range(1_500)])

    await store.apply([Change("other", str(index), b"x") for index in range(1_500)])
    await store.apply([Change("other", str(index), None, 1) for index in range(1, 1_500)])
    assert {"0": Row(b"x", 1)} == await store.load("other")
    rows = await store.load("many")
    assert 1_500 == len(rows)
    assert {Row(b"y", 2)} == set(rows.values())
    assert {"a": Row(bytes(1 << 20), 1)} == await store.load("large")


changes = st.lists(
    st.lists(
        st.builds(
            Change,
            st.sampled_from(["one", "two"]),
            st.sampled_from(["a", "b", "c"]),
            st.none() | st.binary(max_size=3),
            st.none() | st.integers(0, 3),
        ),
        max_size=4,
    ),
    max_size=12,
)


async def outcome_of(store: StateStore, sets: list[list[Change]]) -> tuple[list[bool], object]:
    """Apply the sets at the same time; return which went through and what stands in the end."""
    outcomes = await asyncio.gather(*map(store.apply, sets), return_exceptions=True)
    assert all(outcome is None or type(outcome) is ConflictError for outcome in outcomes)
    rows = [await store.load(kind) for kind in ("one", "two")]
    return [outcome is None for outcome in outcomes], rows


def as_one_after_the_other(make: Callable[[], Database], examples: int) -> None:
    """Check that stores of a kind do what the memory store does in order."""

    @settings(max_examples=examples)
    @given(sets=changes)
    def check(sets: list[list[Change]]) -> None:
        async def run() -> None:
            async with opened(make().store()) as store:
                assert await outcome_of(MemoryStateStore(), sets) == await outcome_of(store, sets)

        asyncio.run(run())

    check()


@pytest.mark.slow
def test_a_shared_commit_is_as_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """SQLite with its shared commits does what the memory store does in order."""
    as_one_after_the_other(
        lambda: SqliteDatabase(tmp_path_factory.mktemp("state") / "meta.sqlite"), 40
    )


@pytest.mark.slow
def test_a_shared_commit_on_a_server_is_as_one_after_the_other(server: DatabaseServer) -> None:
    """A database server does, too."""
    as_one_after_the_other(lambda: ServerDatabase(server), 20)
