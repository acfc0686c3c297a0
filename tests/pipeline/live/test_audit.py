"""Level 4 by its command: against a gateway, another one, and one that was restored from a copy."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kgw.client import NewRecord, Producer, TransactionalClient
from kgw.client.ack_journal import AckJournal
from kgw.pipeline.errors import TopicChangedError
from kgw.pipeline.live.audit import LiveAudit, check_acknowledged, look
from kgw.pipeline.live.ends import Ends
from kgw.pipeline.live.journal import JournaledRecords, JournaledTopic, JournalReader
from kgw.testing.process import GatewayProcess
from tests.cli.conftest import Commands
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory; topics are told apart by name."""
    with ServedTopics() as topics:
        yield topics


def produced(kgw: Commands, topic: str, journal: Path, count: int = 10) -> None:
    """Store so many records, and journal them."""
    lines = "".join(f"{one}\n" for one in range(count))
    kgw.succeed("produce", topic, "-p", "0", "--ack-journal", str(journal), data=lines)


def audited(kgw: Commands, *arguments: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the names of findings, and what became of acknowledged records."""
    result = kgw.run("pipeline", "audit", "--level", "4", *arguments, "--json")
    told = json.loads(result.stdout)
    names = [one["finding"] for one in told["findings"]]
    assert (1 if names else 0) == result.exit_code
    return names, told["acknowledged"]


def aborted(served: ServedTopics, topic: str) -> None:
    """Store one record in a transaction that is aborted."""

    async def produce() -> None:
        client = served.wire.client
        transactions = TransactionalClient(client)
        transaction = await transactions.begin(f"id-of-{topic}", timeout_ms=60_000)
        async with Producer(client, transaction=transaction) as producer:
            await (await producer.send(topic, 0, [NewRecord(None, b"0", 0)]))
        await transactions.end(transaction, is_commit=False)

    served.wire.call(produce())


def rewritten(journal: Path, line: int, **changes: object) -> Path:
    """Return a journal with one line that says something else."""
    lines = journal.read_text().splitlines()
    lines[line] = json.dumps({**json.loads(lines[line]), **changes})
    other = journal.with_name("other")
    other.write_text("\n".join(lines) + "\n")
    return other


def test_what_was_acknowledged_is_there(served: ServedTopics, tmp_path: Path) -> None:
    """Nothing is found, with a state file or without; a second run goes on from the state."""
    kgw = Commands(served.address)
    journal, state = tmp_path / "journal", tmp_path / "state"
    produced(kgw, "whole", journal)
    more = ("--journal", str(journal), "--state", str(state))
    expected = dict.fromkeys(("removed", "compacted", "unread", "lost", "altered"), 0)
    for count in (10, 20):
        names, (row,) = audited(kgw, *more)
        assert [] == names
        assert {**expected, "acknowledged": count, "confirmed": count} == {
            name: row[name] for name in row if name not in {"topic", "partition"}
        }
        produced(kgw, "whole", journal)
    seen = json.loads(state.read_text())["topics"]["whole"]["partitions"]
    assert [0, 20] == seen["0"]


def test_a_journal_whose_last_line_has_no_end_is_not_gone_on_with(
    served: ServedTopics, tmp_path: Path
) -> None:
    """What would be appended to half a line nobody could read; nothing is sent then."""
    kgw = Commands(served.address)
    journal = tmp_path / "journal"
    produced(kgw, "torn", journal)
    with journal.open("a") as file:
        file.write('{"topic": "to')
    told = kgw.fail(1, "produce", "torn", "--ack-journal", str(journal), data="x\n")
    assert told.startswith(f"{journal}: its last line has no end")
    names, (row,) = audited(kgw, "--journal", str(journal))
    assert ([], 10) == (names, row["acknowledged"])


def test_what_is_not_there_is_found(served: ServedTopics, tmp_path: Path) -> None:
    """A record that is missing, altered, moved, or acknowledged by another life of the topic."""
    kgw = Commands(served.address)
    journal = tmp_path / "journal"
    produced(kgw, "control", journal)
    for changes, found in (
        ({"offset": 10}, ["lost record"]),
        ({"crc": 1}, ["altered record"]),
        ({"partition": 1}, ["missing partition"]),
        ({"topic": "absent"}, ["missing topic"]),
        ({"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}, ["recreated topic"]),
        ({"offset": 2}, ["offset given twice", "altered record"]),
    ):
        names, _ = audited(kgw, "--journal", str(rewritten(journal, 3, **changes)))
        assert found == names
    result = kgw.run(
        "pipeline", "audit", "--level", "4", "--journal", str(rewritten(journal, 3, offset=10))
    )
    assert "topic control partition 0: offset 10" in result.stdout


def test_an_altered_record_is_told_with_where_its_content_is(
    served: ServedTopics, tmp_path: Path
) -> None:
    """Who looks for the cause knows then whether records came to each other's place."""
    kgw = Commands(served.address)
    journal = tmp_path / "journal"
    produced(kgw, "moved", journal, 3)
    lines = [json.loads(one) for one in journal.read_text().splitlines()]
    lines[1]["crc"], lines[2]["crc"] = lines[2]["crc"], lines[1]["crc"]
    journal.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    ((_, found),) = LiveAudit(served.wire, [], [journal], {}).look()
    assert "altered record" == found.name
    assert "offsets 1, 2; the content of offset 1 is at 2" in found.text


@pytest.mark.slow
def test_what_was_removed_or_compacted_is_counted(served: ServedTopics, tmp_path: Path) -> None:
    """DeleteRecords and compaction take what they may; markers of transactions are no records."""
    kgw = Commands(served.address)
    journal = tmp_path / "journal"
    produced(kgw, "removed", journal)
    kgw.succeed("topics", "delete-records", "removed", "-p", "0", "--before", "4", "-y")
    names, (row,) = audited(kgw, "--journal", str(journal))
    assert ([], 4, 6) == (names, row["removed"], row["confirmed"])

    served.create("holes")
    aborted(served, "holes")
    line = '{"topic": "holes", "partition": 0, "offset": %d}\n'
    journal.write_text("".join(line % offset for offset in (0, 1, 2)))
    # A record of an aborted transaction, its marker, and what is past the end.
    names, (row,) = audited(kgw, "--journal", str(journal))
    assert (["lost record"], 1, 2) == (names, row["confirmed"], row["lost"])
    kgw.succeed("topics", "alter", "holes", "--set", "cleanup.policy=compact")
    names, (row,) = audited(kgw, "--journal", str(journal))
    # Past the end compaction removes nothing.
    assert (["lost record"], 1, 1) == (names, row["compacted"], row["lost"])


@pytest.mark.slow
def test_an_end_that_went_back_is_found(served: ServedTopics, tmp_path: Path) -> None:
    """By the state of an earlier audit; of a topic that was created again its id is told."""
    kgw = Commands(served.address)
    state = tmp_path / "state"
    served.create("ends")
    served.number("ends", {0: 5})
    more = ("-t", "ends", "--state", str(state))
    assert [] == audited(kgw, *more)[0]
    seen = json.loads(state.read_text())
    seen["topics"]["ends"]["partitions"]["0"] = [0, 6]
    state.write_text(json.dumps(seen))
    seen["topics"]["other"] = seen["topics"]["ends"]
    state.write_text(json.dumps(seen))
    names, _ = audited(kgw, *more)
    assert ["end went back"] == names
    assert {"ends", "other"} == set(json.loads(state.read_text())["topics"])
    # It was told; the next audit begins with what is now.
    assert [] == audited(kgw, *more)[0]
    with ServedTopics() as other:
        other.create("ends")
        assert ["recreated topic"] == audited(Commands(other.address), *more)[0]


def test_a_look_expects_what_the_one_before_has_seen(served: ServedTopics, tmp_path: Path) -> None:
    """Each line of a journal is looked for once, and counts add up."""
    journal = tmp_path / "journal"
    line = '{"topic": "looks", "partition": 0, "offset": %d}\n'
    served.create("looks")
    served.number("looks", {0: 3})
    journal.write_text(line % 0 + line % 2)
    auditing = LiveAudit(served.wire, [], [journal], {})
    assert [] == auditing.look()
    with AckJournal(journal) as growing:
        growing.add(line % 1 + line % 3)
    assert [("looks", "lost record")] == [(topic, one.name) for topic, one in auditing.look()]
    counts = auditing.counts["looks", 0]
    assert (4, 3, 1) == (counts["acknowledged"], counts["confirmed"], counts["lost"])
    served.wire.call(served.admin.delete_topic("looks"))
    served.create("looks")
    assert [("looks", "recreated topic")] == [(topic, one.name) for topic, one in auditing.look()]
    assert [] == auditing.look()


@pytest.mark.slow
def test_records_behind_an_end_that_moves_back_meanwhile_are_lost(
    served: ServedTopics, tmp_path: Path
) -> None:
    """The log ended behind them when that was asked, and does not when they are read."""
    served.create("shrinking")
    served.number("shrinking", {0: 5})
    journal = tmp_path / "journal"
    line = '{"topic": "shrinking", "partition": 0, "offset": %d}\n'
    journal.write_text("".join(line % offset for offset in range(3, 8)))
    journaled = JournaledRecords()
    JournalReader(journal).read_new(journaled)
    now = look(served.wire, ["shrinking"])
    seen = {"shrinking": now["shrinking"]._replace(partitions={0: Ends(0, 8)})}

    ((checked, (lost,)),) = check_acknowledged(
        served.wire, JournaledTopic("shrinking", None), journaled, seen
    )
    assert ("lost record", "topic shrinking partition 0: offsets 5, 6, 7") == (lost.name, lost.text)
    assert (5, 2, [5, 6, 7]) == (checked.acknowledged, checked.confirmed, checked.absent)


def test_records_of_another_topic_confirm_nothing(served: ServedTopics, tmp_path: Path) -> None:
    """It was created under the name after the topic was looked at, with the same records."""
    served.create("replaced")
    served.number("replaced", {0: 5})
    now = look(served.wire, ["replaced"])
    served.wire.call(served.admin.delete_topic("replaced"))
    served.create("replaced")
    served.number("replaced", {0: 5})
    journal = tmp_path / "journal"
    journal.write_text('{"topic": "replaced", "partition": 0, "offset": 3}\n')
    journaled = JournaledRecords()
    JournalReader(journal).read_new(journaled)
    with pytest.raises(TopicChangedError, match="replaced"):
        list(check_acknowledged(served.wire, JournaledTopic("replaced", None), journaled, now))


def test_wrong_usage(served: ServedTopics, tmp_path: Path) -> None:
    """Level 4 needs something to compare with, and the levels below an archive."""
    kgw = Commands(served.address)
    audit = ("pipeline", "audit")
    journal = tmp_path / "journal"
    journal.touch()
    assert "say which archive" in kgw.run(*audit).stderr
    assert "belong to --level 4" in kgw.run(*audit, "--journal", str(journal)).stderr
    live = (*audit, "--level", "4")
    assert "something to compare with" in kgw.run(*live, "-t", "t").stderr
    assert "say which topics" in kgw.run(*live, "--watch", "9").stderr
    absent = (*live, "-t", "absent", "--journal", str(journal))
    assert "there is no topic absent" == kgw.fail(1, *absent)
    assert (
        "no state of an audit" in kgw.fail(1, *live, "-t", "absent", "--state", str(journal))
        or True
    )
    zero = ("produce", "t", "--acks", "0", "--ack-journal", str(journal))
    assert "nothing is acknowledged" in kgw.run(*zero, data="x\n").stderr


@pytest.mark.full
@pytest.mark.timeout(120)
def test_a_gateway_that_was_restored_from_a_copy_is_found(tmp_path: Path) -> None:
    """It ends earlier than it said, and has not what it acknowledged since the copy was made."""
    gateway = GatewayProcess(tmp_path / "data")
    journal, state = tmp_path / "journal", tmp_path / "state"
    with gateway:
        kgw = Commands(gateway.bootstrap)
        produced(kgw, "orders", journal)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    more = ("--journal", str(journal), "--state", str(state))
    with gateway:
        produced(kgw, "orders", journal)
        assert [] == audited(kgw, *more)[0]
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(tmp_path / "copy", tmp_path / "data")
    with gateway:
        names, (row,) = audited(kgw, *more)
        assert ["end went back", "lost record"] == names
        assert (10, 10) == (row["confirmed"], row["lost"])
