"""Kafka's own kafka-transactions against kgw, and beside `kgw transactions`."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kgw.client import AsyncClient
from kgw.errors import ErrorCode
from kgw.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kgw.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kgw.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kgw.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kgw.protocol.messages.produce import ProduceResponse
from kgw.testing.process import GatewayProcess
from tests.handlers.support import batch, produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.protocol.schema import Request, Response

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]

VERSIONS = ("3.9.1", "4.4.0")
"""Those since 4.1 filter by pattern and end the transaction of an id."""
OLDEST = VERSIONS[0]
TOOL = "org.apache.kafka.tools.TransactionsCommand"
KGW = (sys.executable, "-m", "kgw")
SCRIPT = Path(__file__).with_name("kafka-tool.sh")
TOPIC = "orders"
PARTITIONS = 3
TIMEOUT_MS = 600_000
LATEST = -1
Row = dict[str, str]


class Producer:
    """A producer of bare frames, by a transactional id, which can be left in any state."""

    def __init__(self, gateway: GatewayProcess, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._gateway = gateway
        self._sequences: dict[int, int] = {}
        answer = self._ask(
            InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
            ),
            4,
        )
        assert isinstance(answer, InitProducerIdResponse)
        assert ErrorCode.NONE == answer.error_code
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

    def write(self, partition: int) -> int:
        """Write a record in the transaction, which begins if none is open; gives its offset."""
        answer = self._ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
            ),
            3,
        )
        assert isinstance(answer, AddPartitionsToTxnResponse)
        (added,) = answer.results_by_topic_v3_and_below
        assert [ErrorCode.NONE] == [one.partition_error_code for one in added.results_by_partition]
        records = batch(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self._sequences.get(partition, 0),
            is_transactional=True,
        )
        self._sequences[partition] = self._sequences.get(partition, 0) + 1
        request = produce_request(
            records, name=TOPIC, index=partition, transactional_id=self.transactional_id
        )
        answer = self._ask(request, 11)
        assert isinstance(answer, ProduceResponse)
        (written,) = answer.responses[0].partition_responses
        assert ErrorCode.NONE == written.error_code
        return written.base_offset

    def end(self, *, commit: bool) -> ErrorCode:
        """Commit or abort."""
        answer = self._ask(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                committed=commit,
            ),
            4,
        )
        assert isinstance(answer, EndTxnResponse)
        return ErrorCode(answer.error_code)

    def _ask(self, request: Request, version: int) -> Response:
        async def ask() -> Response:
            async with AsyncClient([(self._gateway.host, self._gateway.port)]) as client:
                return await client.request(request, version=version)

        return asyncio.run(ask())


class Tools:
    """Both tools and one gateway."""

    def __init__(self, version: str, gateway: GatewayProcess) -> None:
        self.version = version
        self.gateway = gateway

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What becomes of a command of kafka-transactions."""
        return _run(str(SCRIPT), self.version, TOOL, *self._bootstrap("-server"), *arguments)

    def table(self, *arguments: str) -> list[Row]:
        """The rows of the table that it prints, by the names of its columns."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        # A tab ends each line, too.
        header, *rows = [
            [cell.strip() for cell in line.split("\t")[:-1]] for line in done.stdout.splitlines()
        ]
        return [dict(zip(header, row, strict=True)) for row in rows]

    def kgw(self, *arguments: str, status: int = 0) -> Any:
        """What a command of kgw says as JSON."""
        done = _run(*KGW, *arguments, *self._bootstrap(), "--json")
        assert status == done.returncode, done.stdout + done.stderr
        return json.loads(done.stdout or done.stderr)

    def consumed(self, isolation: str) -> list[tuple[int, int]]:
        """Partition and offset of the records that `kgw consume` prints."""
        arguments = (*self._bootstrap(), "--json", "--isolation", isolation)
        done = _run(*KGW, "consume", TOPIC, *arguments)
        assert done.returncode == 0, done.stderr
        records = [json.loads(line) for line in done.stdout.splitlines()]
        return sorted((one["partition"], one["offset"]) for one in records)

    def _bootstrap(self, server: str = "") -> tuple[str, str]:
        return f"--bootstrap{server}", self.gateway.bootstrap


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(params=VERSIONS)
def tools(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tools]:
    """Both tools, and a gateway with an empty topic, whose state is in one file."""
    with GatewayProcess(tmp_path / "data") as gateway:
        tools = Tools(request.param, gateway)
        tools.kgw("topics", "create", TOPIC, "--partitions", str(PARTITIONS))
        yield tools


def check_lists(tools: Tools) -> None:
    """Every filter that a version has leaves the ids that `kgw transactions list` leaves.

    But for the age: Kafka also lists ids whose transaction has ended, and ids without one.
    """

    def check(
        expected: set[str],
        ours: tuple[str, ...],
        theirs: tuple[str, ...],
        *,
        listed_by_kafka: frozenset[str] = frozenset(),
    ) -> None:
        listed = tools.kgw("transactions", "list", *ours)
        assert expected == {one["transactional_id"] for one in listed}
        every = tools.kgw("transactions", "list")
        listed += [one for one in every if one["transactional_id"] in listed_by_kafka]
        assert {
            (one["transactional_id"], one["coordinator"], one["producer_id"], one["state"])
            for one in listed
        } == {
            (
                row["TransactionalId"],
                int(row["Coordinator"]),
                int(row["ProducerId"]),
                row["TransactionState"],
            )
            for row in tools.table("list", *theirs)
        }

    check({"done", "open", "restored"}, (), ())
    ended = frozenset({"done", "restored"})
    check({"open"}, ("--longer-than", "PT0S"), ("--duration-filter", "0"), listed_by_kafka=ended)
    without = frozenset({"restored"})
    aged = ("--duration-filter", "600000")
    check(set(), ("--longer-than", "PT10M"), aged, listed_by_kafka=without)
    if tools.version != OLDEST:
        check({"done", "open"}, ("--pattern", "do.*|.?pen"), _pattern("do.*|.?pen"))
        check(set(), ("--pattern", "ope"), _pattern("ope"))
        done = tools.run("list", *_pattern("("))
        assert (1, True) == (done.returncode, "ListTransactions" in done.stderr), done
        error = tools.kgw("transactions", "list", "--pattern", "(", status=1)
        assert "INVALID_REGULAR_EXPRESSION" == error["kafka_error"]


def _pattern(pattern: str) -> tuple[str, str]:
    return "--transactional-id-pattern", pattern


def check_descriptions(tools: Tools) -> None:
    """Of ids with and without an open transaction; one that nobody has is said to be unknown."""
    for name, places in (("open", [(TOPIC, 0), (TOPIC, 1)]), ("done", [])):
        (ours,) = tools.kgw("transactions", "describe", name)
        (theirs,) = tools.table("describe", "--transactional-id", name)
        assert places == [(one["topic"], one["partition"]) for one in ours["partitions"]]
        began = theirs.pop("CurrentTransactionStartTimeMs")
        age = theirs.pop("TransactionDurationMs")
        assert {
            "CoordinatorId": str(ours["coordinator"]),
            "TransactionalId": name,
            "ProducerId": str(ours["producer_id"]),
            "ProducerEpoch": str(ours["producer_epoch"]),
            "TransactionState": ours["state"],
            "TransactionTimeoutMs": str(TIMEOUT_MS),
            "TopicPartitions": ",".join(f"{topic}-{index}" for topic, index in places),
        } == theirs
        assert age.isdigit()
        # Kafka's tool goes on saying when the last one began.
        if ours["start_ms"] is not None:
            assert str(ours["start_ms"]) == began
    done = tools.run("describe", "--transactional-id", "nobody")
    assert (1, True) == (done.returncode, "could not be found" in done.stderr), done
    error = tools.kgw("transactions", "describe", "nobody", status=1)
    assert "TRANSACTIONAL_ID_NOT_FOUND" == error["kafka_error"]


def check_producers(tools: Tools, partition: int) -> None:
    """They say the same of every producer of a partition."""
    where = ("--topic", TOPIC, "--partition", str(partition))
    ours = tools.kgw("producers", TOPIC, "-p", str(partition))
    columns = {
        "ProducerId": "producer_id",
        "ProducerEpoch": "producer_epoch",
        "LatestCoordinatorEpoch": "coordinator_epoch",
        "LastSequence": "last_sequence",
        "LastTimestamp": "last_timestamp_ms",
        "CurrentTransactionStartOffset": "transaction_start_offset",
    }
    unknown = {"LatestCoordinatorEpoch": "-1", "CurrentTransactionStartOffset": "None"}
    expected = [
        {
            column: unknown[column] if one[name] is None else str(one[name])
            for column, name in columns.items()
        }
        for one in ours
    ]
    assert expected
    found = tools.table("describe-producers", *where)
    assert expected == sorted(found, key=lambda row: int(row["ProducerId"]))


def check_hanging(tools: Tools, expected: set[tuple[int, int, int]]) -> None:
    """Both tools find these: partition, producer id and where it begins."""
    ours = tools.kgw(
        *("transactions", "find-hanging", "--older-than", "PT0S"), status=1 if expected else 0
    )
    assert expected == {(one["partition"], one["producer_id"], one["start_offset"]) for one in ours}
    for where in (("--topic", TOPIC), ("--broker-id", "0")):
        theirs = tools.table("find-hanging", *where, "--max-transaction-timeout", "0")
        assert all(row["Topic"] == TOPIC for row in theirs)
        assert expected == {
            (int(row["Partition"]), int(row["ProducerId"]), int(row["StartOffset"]))
            for row in theirs
        }
    # None of them is as old as a transaction may become.
    assert [] == tools.kgw("transactions", "find-hanging")
    assert [] == tools.table("find-hanging", "--topic", TOPIC)


def stable_ends(tools: Tools) -> list[int]:
    """How far readers of committed records get in each partition."""

    async def ask() -> list[int]:
        host, port = tools.gateway.host, tools.gateway.port
        async with AsyncClient([(host, port)]) as client:
            answer = await client.request(
                ListOffsetsRequest(
                    isolation_level=1,
                    topics=[
                        ListOffsetsTopic(
                            name=TOPIC,
                            partitions=[
                                ListOffsetsPartition(partition_index=index, timestamp=LATEST)
                                for index in range(PARTITIONS)
                            ],
                        )
                    ],
                )
            )
        assert isinstance(answer, ListOffsetsResponse)
        found = {one.partition_index: one.offset for one in answer.topics[0].partitions}
        return [found[index] for index in range(PARTITIONS)]

    return asyncio.run(ask())


def check_aborting(tools: Tools, lost: Producer) -> None:
    """Either tool ends what hangs, in the partition that it is told and nowhere else."""
    done = tools.run("abort", *_place(0), "--start-offset", "77")
    assert (1, True) == (done.returncode, "77" in done.stderr), done
    assert [2, 0, 0] == stable_ends(tools)
    done = tools.run("abort", *_place(1), "--start-offset", "0")
    assert 0 == done.returncode, done
    assert [2, 1, 0] == stable_ends(tools)
    # As one did before brokers could say which producers they know.
    owner = ("--producer-id", str(lost.producer_id), "--producer-epoch", str(lost.producer_epoch))
    done = tools.run("abort", *_place(2), *owner, "--coordinator-epoch", "0")
    assert 0 == done.returncode, done
    assert [2, 1, 2] == stable_ends(tools)
    check_hanging(tools, {(0, lost.producer_id, 2)})
    tools.kgw("transactions", "abort", TOPIC, "-p", "0", "--start-offset", "2", "--yes")
    assert [3, 1, 2] == stable_ends(tools)
    check_hanging(tools, set())


def _place(partition: int) -> tuple[str, ...]:
    return "--topic", TOPIC, "--partition", str(partition)


def check_termination(tools: Tools, going_on: Producer) -> None:
    """The transaction of an id is aborted everywhere, and its producer fenced."""
    if tools.version == OLDEST:
        assert ErrorCode.NONE == going_on.end(commit=False)
    else:
        done = tools.run("forceTerminateTransaction", "--transactionalId", "open")
        assert 0 == done.returncode, done
        assert ErrorCode.PRODUCER_FENCED == going_on.end(commit=True)
        (row,) = tools.table("describe", "--transactional-id", "open")
        assert "Empty" == row["TransactionState"]
    assert [] == tools.kgw("transactions", "list", "--longer-than", "PT0S")
    assert [6, 4, 2] == stable_ends(tools)


def test_kafka_transactions(tools: Tools, tmp_path: Path) -> None:
    """It lists, describes, finds and ends as `kgw transactions` does.

    Transactions hang where the state store was restored from a copy from before they began.
    """
    gateway = tools.gateway
    settled = Producer(gateway, "done")
    settled.write(0)
    assert ErrorCode.NONE == settled.end(commit=True)
    restored = Producer(gateway, "restored")
    gateway.stop()
    state, copy = gateway.data_dir / "meta.sqlite", tmp_path / "copy.sqlite"
    shutil.copy(state, copy)
    gateway.start()
    lost = Producer(gateway, "lost")
    restored.write(1)
    lost.write(0)
    lost.write(2)
    gateway.stop()
    shutil.copy(copy, state)
    gateway.start()
    going_on = Producer(gateway, "open")
    going_on.write(0)
    going_on.write(1)

    check_lists(tools)
    check_descriptions(tools)
    for partition in range(PARTITIONS):
        check_producers(tools, partition)
    check_hanging(
        tools,
        {(1, restored.producer_id, 0), (0, lost.producer_id, 2), (2, lost.producer_id, 0)},
    )
    check_aborting(tools, lost)
    assert [(0, 0)] == tools.consumed("read_committed")
    check_termination(tools, going_on)
    assert [(0, 0)] == tools.consumed("read_committed")
    assert [(0, 0), (0, 2), (0, 3), (1, 0), (1, 1), (2, 0)] == tools.consumed("read_uncommitted")
