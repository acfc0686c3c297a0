"""Each problem that level 4 names, planted alone: the audit names it, and only it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.cli.pipeline.audit_live import COUNTS
from kgw.client import NewRecord, Producer, TransactionalClient
from kgw.pipeline.archive.findings import AuditProblem
from kgw.records.batch import read_batch
from kgw.records.builder import BatchBuilder, encode_batch
from tests.cli.conftest import Commands
from tests.cli.test_pipeline_audit_problems import audited
from tests.pipeline.planted_damage import PLANTINGS
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Only whoever commits can meet it: in a log that is read, a path that is there twice covers the
# same offsets twice.
_NEVER_READ = {AuditProblem.DUPLICATE_PATH}
_PARTITION = 1
_END = 10


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory; topics are told apart by name."""
    with ServedTopics() as topics:
        yield topics


class Said:
    """A topic of ten records, what its server has said of it, and what is made of both.

    They are in partition 1. Partition 0 and another topic, which come before it, stay as they are.
    """

    def __init__(self, served: ServedTopics, topic: str, directory: Path) -> None:
        self.served = served
        self.topic = topic
        self.kgw = Commands(served.address)
        self.journal = directory / "journal"
        self.state = directory / "state"
        self.earlier = f"earlier-than-{topic}"
        served.create(topic, 2)
        for name, partition, count in (
            (topic, _PARTITION, _END),
            (topic, 0, 3),
            (self.earlier, 0, 2),
        ):
            self.store(name, partition, count, "--ack-journal", str(self.journal))
        assert [] == self.audited()

    def store(self, topic: str, partition: int, count: int, *options: str) -> None:
        """Store so many records."""
        data = "".join(f"{one}\n" for one in range(count))
        self.kgw.succeed("produce", topic, "-p", str(partition), *options, data=data)

    def audited(self) -> list[tuple[int, str]]:
        """Return what level 4 finds, by journal and state."""
        topics = ("-t", self.earlier, "-t", self.topic)
        more = (*topics, "--journal", str(self.journal), "--state", str(self.state))
        return audited(self.kgw, 4, *more)

    def rows(self) -> list[dict[str, Any]]:
        """Return what became of the acknowledged records, by partition."""
        more = ("--journal", str(self.journal), "--json")
        told = json.loads(self.kgw.run("pipeline", "audit", "--level", "4", *more).stdout)
        rows: list[dict[str, Any]] = told["acknowledged"]
        return rows

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What the journal says."""
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    def tell(self, *lines: dict[str, Any]) -> None:
        """Let the journal say this."""
        self.journal.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def acknowledge(self, **fields: object) -> None:
        """Let the journal have one line more: as that of the last record, with other fields."""
        self.tell(*self.lines, self.lines[_END - 1] | fields)

    def alter(self, number: int, **fields: object) -> None:
        """Let one line of the journal say something else."""
        lines = self.lines
        lines[number] |= fields
        self.tell(*lines)

    def exchange(self, one: int, other: int) -> None:
        """Let the journal say that two records were stored in each other's place."""
        crcs = [line["crc"] for line in self.lines]
        self.alter(one, crc=crcs[other])
        self.alter(other, crc=crcs[one])

    def see(self, partition: int, log_start_offset: int, end_offset: int) -> None:
        """Let the audit before have seen a partition like this."""
        seen = json.loads(self.state.read_text())
        seen["topics"][self.topic]["partitions"][str(partition)] = [log_start_offset, end_offset]
        self.state.write_text(json.dumps(seen))

    def go_on(self) -> None:
        """Store more records, and remove the first ones."""
        self.served.number(self.topic, {_PARTITION: 5})
        self.served.wire.call(self.served.admin.delete_records(self.topic, {_PARTITION: 3}))

    def begin_with_marker(self) -> None:
        """Abort a transaction, remove all that is before its marker, and acknowledge that."""
        transactions = TransactionalClient(self.served.wire.client)

        async def produce() -> None:
            transaction = await transactions.begin(self.topic, timeout_ms=60_000)
            async with Producer(self.served.wire.client, transaction=transaction) as producer:
                record = NewRecord(None, b"aborted", 0)
                await (await producer.send(self.topic, _PARTITION, [record]))
            await transactions.end(transaction, is_commit=False)

        self.served.wire.call(produce())
        before = {_PARTITION: _END + 1}
        self.served.wire.call(self.served.admin.delete_records(self.topic, before))
        self.acknowledge(offset=_END + 1)

    def delete(self) -> None:
        """Delete the topic; whoever has its journal alone goes by that."""
        self.served.wire.call(self.served.admin.delete_topic(self.topic))

    def create_again(self) -> None:
        """Delete the topic, and store the same in another one of the name."""
        self.delete()
        self.served.create(self.topic, 2)
        self.store(self.topic, _PARTITION, _END)
        self.store(self.topic, 0, 3)

    def spoil(self) -> None:
        """Store a batch that is longer than it says, and acknowledge a record of it."""
        builder = BatchBuilder()
        builder.add(value=b"v")
        spoilt = encode_batch(
            bytes(read_batch(builder.build()).records) + b"x",
            base_offset=0,
            leader_epoch=-1,
            last_offset_delta=0,
            record_count=1,
        )
        self.served.wire.call(self.served.wire.client.produce(self.topic, _PARTITION, spoilt))
        self.acknowledge(offset=_END)


class Planting(NamedTuple):
    """What is done, and everything that the audit says then."""

    plant: Callable[[Said], object]
    found: tuple[AuditProblem, ...]
    has_state: bool = True
    """Whether there is a state of an earlier audit, which says of a topic what the journal does."""


P = AuditProblem
LIVE_PLANTINGS: dict[str, Planting] = {
    "nothing": Planting(lambda _: None, ()),
    "records that come, and those that were removed": Planting(Said.go_on, ()),
    "a record past the end": Planting(lambda said: said.acknowledge(offset=_END), (P.LOST_RECORD,)),
    "a record where the log begins with a marker": Planting(
        Said.begin_with_marker, (P.LOST_RECORD,)
    ),
    "another content": Planting(lambda said: said.alter(3, crc=1), (P.ALTERED_RECORD,)),
    "two records in each other's place": Planting(
        lambda said: said.exchange(3, 4), (P.ALTERED_RECORD,)
    ),
    "two far records in each other's place": Planting(
        lambda said: said.exchange(0, _END - 1), (P.ALTERED_RECORD,)
    ),
    "a record that is there once, and was stored twice": Planting(
        lambda said: said.alter(3, crc=said.lines[4]["crc"]), (P.ALTERED_RECORD,)
    ),
    # The later one is what is stored.
    "two records of one offset": Planting(
        lambda said: said.tell(said.lines[3] | {"crc": 1}, *said.lines), (P.OFFSET_GIVEN_TWICE,)
    ),
    "a batch that cannot be read": Planting(Said.spoil, (P.DAMAGED_RECORDS,)),
    "a partition that is not there": Planting(
        lambda said: said.acknowledge(partition=2), (P.MISSING_PARTITION,)
    ),
    "a partition that was seen": Planting(lambda said: said.see(2, 0, 0), (P.MISSING_PARTITION,)),
    # The journal names two partitions of it.
    "a topic that is no more, by its journal": Planting(
        Said.delete, (P.MISSING_TOPIC,) * 2, has_state=False
    ),
    "a topic that is no more": Planting(Said.delete, (P.MISSING_TOPIC,) * 3),
    "another topic of the name, by the journal": Planting(
        Said.create_again, (P.RECREATED_TOPIC,) * 2, has_state=False
    ),
    "another topic of the name": Planting(Said.create_again, (P.RECREATED_TOPIC,) * 3),
    "an end one lower": Planting(
        lambda said: said.see(_PARTITION, 0, _END + 1), (P.END_WENT_BACK,)
    ),
    "a start one lower": Planting(lambda said: said.see(_PARTITION, 1, _END), (P.START_WENT_BACK,)),
}


@pytest.mark.parametrize("name", LIVE_PLANTINGS)
def test_each_thing_that_a_server_has_said_is_looked_for(
    served: ServedTopics, tmp_path: Path, name: str
) -> None:
    """What is not as it was said is named, and what may come and go is not.

    Whatever is found, each acknowledged record is counted as one thing.
    """
    planting = LIVE_PLANTINGS[name]
    said = Said(served, f"topic-{[*LIVE_PLANTINGS].index(name)}", tmp_path)
    if not planting.has_state:
        said.state.unlink()
    planting.plant(said)
    assert [(4, one) for one in planting.found] == said.audited()
    for row in said.rows():
        counts = [row[name] for name in COUNTS]
        assert (counts[0], True) == (sum(counts[1:]), counts[0] > 0)


def test_what_was_seen_is_kept_while_an_audit_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is killed between two looks, or finds no server at the next, has seen the first."""
    state = tmp_path / "state"
    looked: list[dict[str, Any]] = []

    with ServedTopics() as served:
        served.create("watched")

        def pause(_: float) -> None:
            looked.append(json.loads(state.read_text())["topics"]["watched"]["partitions"])
            if len(looked) == 3:
                raise KeyboardInterrupt
            served.number("watched", {0: 5})

        monkeypatch.setattr("kgw.cli.pipeline.audit_live.time", SimpleNamespace(sleep=pause))
        watch = ("-t", "watched", "--state", str(state), "--watch", "1")
        result = Commands(served.address).run("pipeline", "audit", "--level", "4", *watch)
    assert 0 == result.exit_code, result.output
    assert [{"0": [0, 0]}, {"0": [0, 5]}, {"0": [0, 10]}] == looked


def test_everything_that_an_audit_can_name_is_planted() -> None:
    """A name that is added to an audit needs a damage that it is found by."""
    planted = {found for one in PLANTINGS.values() for _, found in one.expected}
    planted |= {found for one in LIVE_PLANTINGS.values() for found in one.found}
    assert {*AuditProblem} - _NEVER_READ == planted


@pytest.mark.parametrize("problem", AuditProblem)
def test_everything_that_an_audit_can_name_is_explained(problem: AuditProblem) -> None:
    """In the tables of the guide."""
    page = Path(__file__).parents[2] / "docs" / "archive.md"
    assert f"`{problem}`" in page.read_text(encoding="utf-8")
