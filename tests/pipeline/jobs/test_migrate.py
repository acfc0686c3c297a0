"""The plan that is made in parts is that of one process, byte by byte."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.client import GroupClient, NewRecord
from kgw.migrate.errors import MigrationError
from kgw.migrate.ledger import LedgerEntry
from kgw.migrate.plan import make_plan
from kgw.migrate.sources import (
    OldScheme,
    read_committed_positions,
    read_ledger_files,
    read_ledger_topic,
    read_position_paths,
)
from kgw.pipeline.jobs.migrate import MigrationPlanner, OldSources, file_units
from tests.cli.lying import send
from tests.migrate.old_scheme import entry_value, json_line, log_file, old_topic, topic_partition
from tests.pipeline.jobs.runners import Backwards, ResultT, UnitT
from tests.pipeline.serving import ServedTopics
from tests.records.lies import LIES, batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from kgw.client import AsyncClient
    from kgw.migrate.plan import MigrationPlan


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory; topics are told apart by name."""
    with ServedTopics() as topics:
        yield topics


class Twice(Backwards):
    """Does all work a second time, as Spark does with a task whose answer was lost."""

    def run(
        self, units: Iterable[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Do it; the answer of the second attempt counts."""

        def again(unit: UnitT) -> ResultT:
            work(unit)
            return work(unit)

        return super().run(units, again)


def whole(served: ServedTopics, old: OldSources, *, is_strict: bool = False) -> MigrationPlan:
    """Plan as `kgw migrate offsets` does."""
    scheme = OldScheme(is_strict=is_strict)
    read_ledger_files(scheme, old.ledgers, lambda _: None)
    read_position_paths(scheme, old.positions)

    async def plan(client: AsyncClient) -> MigrationPlan:
        if old.ledger_topic is not None:
            await read_ledger_topic(scheme, client, old.ledger_topic)
        if old.positions_cluster is not None:
            await read_committed_positions(scheme, client)
        scheme.require_entries()
        return await make_plan(client, scheme, {"of": "a test"}, 17, lambda _: None)

    return served.wire.call(plan(served.wire.client))


def parts(
    served: ServedTopics,
    old: OldSources,
    scratch: Path,
    *,
    is_strict: bool = False,
    unit_bytes: int = 1000,
) -> MigrationPlan:
    """Plan in small parts, the last of which are done first, and each twice."""
    planner = MigrationPlanner(
        served.cluster,
        Twice(),
        scratch,
        is_strict=is_strict,
        unit_bytes=unit_bytes,
        unit_offsets=40,
    )
    return planner.plan(old, {"of": "a test"}, 17)


def moved(served: ServedTopics, name: str, tmp_path: Path) -> tuple[OldSources, list[LedgerEntry]]:
    """Make an old topic with an anomaly of every kind; its records are in the gateway."""
    topic = old_topic(name)
    served.create(name, len(topic.records))
    served.produce(
        name,
        {
            partition: [NewRecord(None, value, time_ms) for time_ms, value in records]
            for partition, records in topic.records.items()
        },
    )
    ledger, positions = topic.write(tmp_path / "filer")
    return OldSources(ledgers=(ledger,), positions=(positions,)), topic.entries


def publish(served: ServedTopics, name: str, entries: list[LedgerEntry]) -> None:
    """Send entries to a ledger topic, as the old gateway did."""
    records = [NewRecord(topic_partition(one).encode(), entry_value(one), 0) for one in entries]
    served.produce(name, {0: records})


@pytest.mark.slow
def test_log_files_and_an_export_give_the_plan_of_one_process(
    served: ServedTopics, tmp_path: Path
) -> None:
    """With damage, an absent topic, and lines that are cut anywhere."""
    old, entries = moved(served, "orders-eu", tmp_path)
    expected = whole(served, old)
    assert (2, 1) == (len(expected["partitions"]), expected["damage"]["count"])
    assert json.dumps(expected) == json.dumps(parts(served, old, tmp_path))
    export = tmp_path / "export.jsonl"
    lines = [json_line(one) for one in entries]
    export.write_text("\n".join([lines[0], "{}", "", *lines[1:], "{"]))
    old = old._replace(ledgers=(*old.ledgers, export))
    expected = whole(served, old)
    assert [f"{export}:2", f"{export}:{len(lines) + 3}"] == [
        one["place"] for one in expected["damage"]["first"][1:]
    ]
    for unit_bytes in (50, 333, 1 << 20):
        planned = parts(served, old, tmp_path, unit_bytes=unit_bytes)
        assert json.dumps(expected) == json.dumps(planned)


@pytest.mark.slow
def test_a_ledger_topic_gives_the_plan_of_one_process(served: ServedTopics, tmp_path: Path) -> None:
    """Messages that are no entries are named by their offsets, damaged batches by their ranges."""
    old, entries = moved(served, "orders-us", tmp_path)
    served.create("ledger-us", 2)
    publish(served, "ledger-us", entries[:7])
    served.produce("ledger-us", {0: [NewRecord(b"orders-us-0", b"no entry", 0)]})
    publish(served, "ledger-us", entries[7:])
    old = old._replace(ledgers=(), ledger_topic="ledger-us", ledger_cluster=served.cluster)
    expected = whole(served, old)
    assert ["ledger-us-0@7"] == [one["place"] for one in expected["damage"]["first"]]
    assert json.dumps(expected) == json.dumps(parts(served, old, tmp_path))
    lie = batch(*LIES["three records claimed, one there"]())
    send(served.address, "ledger-us", [lie])
    publish(served, "ledger-us", entries[:2])
    expected = whole(served, old)
    assert 2 == expected["damage"]["count"]
    assert json.dumps(expected) == json.dumps(parts(served, old, tmp_path))


@pytest.mark.slow
def test_random_histories_give_the_plan_of_one_process(
    served: ServedTopics, tmp_path: Path
) -> None:
    """Lost entries and records, equal times, clocks that go back, offsets that were used twice."""
    chance = Random(20261128)
    entries = []
    for number in range(6):
        name = f"random-{number}"
        served.create(name)
        time_ms, records = 1_700_000_000_000, []
        for old_offset in range(chance.choice((0, 30, 120))):
            time_ms += chance.choice((0, 0, 1, 2, 9, -1))
            size = chance.choice((3, 3, 4, 5))
            if chance.random() < 0.85:
                used = max(0, old_offset - (chance.random() < 0.05))
                time_ns = time_ms * 1_000_000 + chance.randrange(1_000_000)
                entries.append(LedgerEntry(name, 0, used, time_ns, size))
            if chance.random() < 0.85:
                key = chance.choice((None, b"key"))
                records.append(NewRecord(key, b"x" * size, time_ms))
        records.append(NewRecord(b"the last", None, time_ms + 10))
        served.produce(name, {0: records})
    chance.shuffle(entries)
    ledgers = (tmp_path / "export", tmp_path / "log")
    ledgers[0].write_text("".join(json_line(one) + "\n" for one in entries[::2]))
    ledgers[1].write_bytes(log_file(entries[1::2]))
    positions = tmp_path / "positions"
    line = '{"group": "g%d", "topic": "random-%d", "partition": 0, "offset": %d}\n'
    positions.write_text(
        "".join(line % (group, chance.randrange(7), group * 7) for group in range(20))
    )
    old = OldSources(ledgers=ledgers, positions=(positions,))
    expected = whole(served, old)
    assert {"matched", "equal-times", "ambiguous", "non-monotonic", "hole"} <= {
        name for one in expected["partitions"] for name in one["classes"]
    }
    assert json.dumps(expected) == json.dumps(parts(served, old, tmp_path))


def test_what_one_process_refuses_is_refused(served: ServedTopics, tmp_path: Path) -> None:
    """The same line for the first damage, for no entry, for a JSON array, for one's own groups."""
    old, entries = moved(served, "orders-ca", tmp_path)
    export, array, nothing = tmp_path / "export", tmp_path / "array", tmp_path / "nothing"
    lines = [json_line(one) for one in entries]
    export.write_text("\n".join([*lines, "{}", "{"]))
    array.write_text("[\n]")
    nothing.write_text("{}\n")
    places = {("orders-ca", 0): 1}
    served.wire.call(GroupClient(served.wire.client).commit("readers", places))
    for refused, is_strict in (
        (old._replace(ledgers=(export,)), True),
        (old._replace(ledgers=(array,)), False),
        (old._replace(ledgers=(nothing,)), False),
        (old._replace(positions_cluster=served.cluster), False),
    ):
        with pytest.raises(MigrationError) as expected:
            whole(served, refused, is_strict=is_strict)
        with pytest.raises(MigrationError) as found:
            parts(served, refused, tmp_path, is_strict=is_strict)
        assert str(expected.value) == str(found.value)


def test_small_files_are_read_together(tmp_path: Path) -> None:
    """A unit has enough to do; an export is cut, a log file is not."""
    small = [tmp_path / f"small-{one}" for one in range(5)]
    for one in small:
        one.write_bytes(b"\0" * 40)
    export = tmp_path / "export"
    export.write_bytes(b"{" + b" " * 249)
    units = file_units([*small, export], 100)
    assert [[40, 40, 40], [40, 40, 100], [100], [50]] == [
        [part.stop - part.start for part in unit.parts] for unit in units
    ]
    assert f"{export} from byte 200" == str(units[-1])
    assert f"{small[0]} from byte 0 and 2 more" == str(units[0])
