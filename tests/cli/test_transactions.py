"""`kgw transactions` and `kgw producers`, against a server that says what it is told to say."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec, request_class
from kgw.protocol.framing import peek_request_header
from kgw.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kgw.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kgw.protocol.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kgw.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kgw.protocol.messages.list_transactions import ListTransactionsResponse
from kgw.protocol.messages.list_transactions import TransactionState as ListedTransaction
from kgw.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kgw.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kgw.protocol.request_decoder import RequestDecoder
from tests import patience
from tests.cli.conftest import Commands
from tests.client.test_connection import reply, scripted_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.protocol.schema import Response

NODE = 4
MINUTE_MS = 60_000
SERVED = {
    ApiKey.API_VERSIONS: 4,
    ApiKey.METADATA: 12,
    ApiKey.FIND_COORDINATOR: 6,
    ApiKey.LIST_TRANSACTIONS: 2,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.WRITE_TXN_MARKERS: 1,
}


class ScriptedCluster:
    """One node with topics of two partitions, and whatever producers and transactions it has."""

    def __init__(self) -> None:
        self.served = dict(SERVED)
        self.topics = ["orders", "copies"]
        self.producers: dict[tuple[str, int], list[ProducerState]] = {}
        self.transactions: list[TransactionState] = []
        self.codes: dict[ApiKey, ErrorCode] = {}
        """What is wrong, by API."""
        self.asked: list[Any] = []
        """Every request but those of connections and metadata."""
        self.port = 0
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    def has_open(
        self, topic: str, partition: int, producer: int, offset: int, *, minutes: int = 60
    ) -> None:
        """Let a producer have a transaction open, to which it added something so long ago."""
        state = ProducerState(
            producer_id=producer,
            producer_epoch=3,
            last_sequence=9,
            last_timestamp=int(time.time() * 1000) - minutes * MINUTE_MS,
            coordinator_epoch=-1,
            current_txn_start_offset=offset,
        )
        self.producers.setdefault((topic, partition), []).append(state)

    def has_transaction(
        self,
        name: str,
        producer: int,
        state: str = "Ongoing",
        *,
        start_ms: int = 1_700_000_000_000,
        **partitions: list[int],
    ) -> None:
        """Let the coordinator know of a transactional id."""
        has_begun = state != "Empty"  # the last one, when none is under way
        self.transactions.append(
            TransactionState(
                transactional_id=name,
                transaction_state=state,
                transaction_timeout_ms=MINUTE_MS,
                transaction_start_time_ms=start_ms if has_begun else -1,
                producer_id=producer,
                producer_epoch=3,
                topics=[TopicData(topic=one, partitions=its) for one, its in partitions.items()],
            )
        )

    # --- the server ------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve, in a thread of its own, until `stop`."""
        asyncio.run(self._serve())

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        assert self._started.wait(patience.seconds(10))
        return thread

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with scripted_server(self._answer) as self.port:
            self._started.set()
            await self._stop.wait()

    def _answer(self, frame: bytes) -> bytes:
        key, version, _ = peek_request_header(memoryview(frame))
        api = ApiKey(key)
        request: Any = RequestDecoder().decode(
            memoryview(bytearray(frame)), codec(request_class(api), version)
        )
        if api not in {ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR}:
            self.asked.append(request)
        response: Response = getattr(self, api.name.lower())(request)
        return reply(frame, response, version)

    def api_versions(self, _: Any) -> Response:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=api, min_version=0, max_version=last)
                for api, last in self.served.items()
            ]
        )

    def metadata(self, request: Any) -> Response:
        wanted = self.topics if request.topics is None else [one.name for one in request.topics]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=NODE, host="127.0.0.1", port=self.port)],
            controller_id=NODE,
            topics=[
                MetadataResponseTopic(
                    name=name,
                    error_code=0 if name in self.topics else unknown,
                    partitions=[
                        MetadataResponsePartition(partition_index=index, leader_id=NODE)
                        for index in (0, 1)
                    ],
                )
                for name in wanted
            ],
        )

    def find_coordinator(self, request: Any) -> Response:
        assert 1 == request.key_type
        (key,) = request.coordinator_keys
        found = Coordinator(key=key, node_id=NODE, host="127.0.0.1", port=self.port)
        return FindCoordinatorResponse(coordinators=[found])

    def list_transactions(self, request: Any) -> Response:
        ids = request.producer_id_filters
        return ListTransactionsResponse(
            error_code=self.codes.get(ApiKey.LIST_TRANSACTIONS, 0),
            unknown_state_filters=[one for one in request.state_filters if one == "Sleepy"],
            transaction_states=[
                ListedTransaction(
                    transactional_id=one.transactional_id,
                    producer_id=one.producer_id,
                    transaction_state=one.transaction_state,
                )
                for one in self.transactions
                if not ids or one.producer_id in ids
            ],
        )

    def describe_transactions(self, request: Any) -> Response:
        (name,) = request.transactional_ids
        code = self.codes.get(ApiKey.DESCRIBE_TRANSACTIONS, ErrorCode.NONE)
        found = [one for one in self.transactions if one.transactional_id == name and not code]
        missing = code or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return DescribeTransactionsResponse(
            transaction_states=found
            or [TransactionState(error_code=missing, transactional_id=name, producer_epoch=-1)]
        )

    def describe_producers(self, request: Any) -> Response:
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        PartitionResponse(
                            partition_index=index,
                            error_code=self.codes.get(ApiKey.DESCRIBE_PRODUCERS, 0),
                            active_producers=self.producers.get((topic.name, index), []),
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    def write_txn_markers(self, request: Any) -> Response:
        (marker,) = request.markers
        (topic,) = marker.topics
        (index,) = topic.partition_indexes
        result = WritableTxnMarkerPartitionResult(
            partition_index=index, error_code=self.codes.get(ApiKey.WRITE_TXN_MARKERS, 0)
        )
        told = WritableTxnMarkerTopicResult(name=topic.name, partitions=[result])
        return WriteTxnMarkersResponse(
            markers=[WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[told])]
        )


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    """A server without producers and transactions."""
    scripted = ScriptedCluster()
    thread = scripted.start()
    yield scripted
    scripted.stop()
    thread.join(patience.seconds(10))


@pytest.fixture
def kgw(cluster: ScriptedCluster) -> Commands:
    """Commands that talk to it."""
    return Commands(f"127.0.0.1:{cluster.port}")


def test_transactions_are_listed(kgw: Commands, cluster: ScriptedCluster) -> None:
    """With what narrows the list down sent to the server."""
    assert "There are no such transactions." in kgw.run("transactions", "list").stderr
    cluster.has_transaction("b", 8, "Empty")
    cluster.has_transaction("a\x1b[0m", 7, orders=[0])
    listed = kgw.json("transactions", "list", "--state", "Ongoing", "--producer-id", "7")
    assert [
        {
            "transactional_id": "a\x1b[0m",
            "coordinator": NODE,
            "producer_id": 7,
            "state": "Ongoing",
        }
    ] == listed
    assert (["Ongoing"], [7]) == (
        cluster.asked[-1].state_filters,
        cluster.asked[-1].producer_id_filters,
    )
    text = kgw.succeed("transactions", "list", "--longer-than", "PT2M", "--pattern", "a.*")
    assert "\x1b" not in text
    assert ["ID", "STATE", "PRODUCER", "COORDINATOR"] == text.split("\n")[0].split()
    assert (2 * MINUTE_MS, "a.*", ["Ongoing", "PrepareCommit", "PrepareAbort"]) == (
        cluster.asked[-1].duration_filter,
        cluster.asked[-1].transactional_id_pattern,
        cluster.asked[-1].state_filters,
    )
    kgw.succeed("transactions", "list", "--longer-than", "PT2M", "--state", "CompleteAbort")
    assert ["CompleteAbort"] == cluster.asked[-1].state_filters


def test_what_a_server_cannot_list_is_said(kgw: Commands, cluster: ScriptedCluster) -> None:
    """A filter that it does not know is not left out."""
    arguments = ("transactions", "list")
    assert "no transactions in state Sleepy" in kgw.fail(1, *arguments, "--state", "Sleepy")
    assert "PT15M" in kgw.fail(ExitCode.USAGE, *arguments, "--longer-than", "15")
    cluster.served[ApiKey.LIST_TRANSACTIONS] = 0
    told = kgw.fail(1, *arguments, "--longer-than", "PT1M")
    assert "serves ListTransactions in versions 0 to 0" in told
    assert "versions 0 to 0" in kgw.fail(1, *arguments, "--pattern", "a")
    cluster.codes[ApiKey.LIST_TRANSACTIONS] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "CLUSTER_AUTHORIZATION_FAILED" in kgw.fail(1, *arguments)


def test_transactions_are_described(kgw: Commands, cluster: ScriptedCluster) -> None:
    """What is under way, since when, and which partitions wait for its end."""
    cluster.has_transaction("copier", 7, orders=[1, 0], copies=[0])
    cluster.has_transaction("idle", 8, "CompleteCommit")
    copier, idle = kgw.json("transactions", "describe", "copier", "idle")
    assert ("Ongoing", 7, 3, MINUTE_MS) == (
        copier["state"],
        copier["producer_id"],
        copier["producer_epoch"],
        copier["timeout_ms"],
    )
    assert copier["age_ms"] > MINUTE_MS
    places = [(one["topic"], one["partition"]) for one in copier["partitions"]]
    assert [("copies", 0), ("orders", 0), ("orders", 1)] == places
    assert (None, None, []) == (idle["start_ms"], idle["age_ms"], idle["partitions"])
    text = kgw.succeed("transactions", "describe", "copier", "idle")
    assert "under way for" in text
    assert "is aborted now, as its time of 1 min is over" in text
    assert "idle  CompleteCommit  none under way" in text
    assert "a transaction may take 1 min" in text
    cluster.has_transaction("ending", 9, "PrepareCommit", orders=[0])
    assert "its end is decided" in kgw.succeed("transactions", "describe", "ending")
    cluster.has_transaction("young", 10, start_ms=int(time.time() * 1000), orders=[0])
    assert "is aborted by itself in" in kgw.succeed("transactions", "describe", "young")
    told = kgw.fail(1, "transactions", "describe", "nobody")
    assert "cannot describe transactional id nobody: TRANSACTIONAL_ID_NOT_FOUND" == told


def test_producers_are_shown(kgw: Commands, cluster: ScriptedCluster) -> None:
    """Of all partitions, or some; what is not known is null."""
    assert "There are no such producers." in kgw.run("producers", "orders").stderr
    cluster.has_open("orders", 1, 7, 40)
    cluster.producers["orders", 0] = [
        ProducerState(producer_id=5, producer_epoch=0, coordinator_epoch=2)
    ]
    first, second = kgw.json("producers", "orders")
    assert {
        "topic": "orders",
        "partition": 0,
        "producer_id": 5,
        "producer_epoch": 0,
        "last_sequence": None,
        "last_timestamp_ms": None,
        "coordinator_epoch": 2,
        "transaction_start_offset": None,
    } == first
    assert (1, 40, None) == (
        second["partition"],
        second["transaction_start_offset"],
        second["coordinator_epoch"],
    )
    assert [second] == kgw.json("producers", "orders", "--open")
    assert [first] == kgw.json("producers", "orders", "-p", "0")
    text = kgw.succeed("producers", "orders")
    assert text.splitlines()[0].endswith("COORDINATOR EPOCH  OPEN")
    assert "has no partition 9" in kgw.fail(1, "producers", "orders", "-p", "9")
    assert "there is no such topic" in kgw.fail(1, "producers", "nothing")
    cluster.codes[ApiKey.DESCRIBE_PRODUCERS] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    told = kgw.fail(1, "producers", "orders", "-p", "0")
    assert "cannot describe the producers of orders-0: TOPIC_AUTHORIZATION_FAILED" == told


def test_transactions_that_nobody_will_end_are_found(
    kgw: Commands, cluster: ScriptedCluster
) -> None:
    """Those whose producer no coordinator knows, or whose partition it does not wait for."""
    assert "No transaction hangs." in kgw.run("transactions", "find-hanging").stderr
    cluster.has_open("orders", 0, 7, 40)
    cluster.has_open("orders", 1, 8, 50)
    cluster.has_open("copies", 0, 8, 60)
    cluster.has_open("copies", 1, 9, 70, minutes=10)
    cluster.has_transaction("copier", 8, orders=[1])
    result = kgw.run("transactions", "find-hanging", "--json")
    assert ExitCode.FAILED == result.exit_code
    command = "kgw transactions abort copies -p 0 --start-offset 60"
    assert f"End one with: {command}\n" == result.stderr
    found = json.loads(result.stdout)
    assert [("copies", 0, 60, "copier"), ("orders", 0, 40, None)] == [
        (one["topic"], one["partition"], one["start_offset"], one["transactional_id"])
        for one in found
    ]
    assert (-1, 3) == (found[0]["coordinator_epoch"], found[0]["producer_epoch"])
    assert found[0]["age_ms"] >= 60 * MINUTE_MS
    text = kgw.run("transactions", "find-hanging", "-t", "orders:0,1").stdout
    assert ["orders", "0", "40", "7", "3", "1", "h", "ago", "-"] == text.split("\n")[1].split()
    young = kgw.run("transactions", "find-hanging", "--older-than", "PT5M", "--json").stdout
    assert 3 == len(json.loads(young))
    # Between the list and the description the id has gone.
    cluster.codes[ApiKey.DESCRIBE_TRANSACTIONS] = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    gone = kgw.run("transactions", "find-hanging", "--json").stdout
    assert 3 == len(json.loads(gone))
    cluster.codes[ApiKey.DESCRIBE_TRANSACTIONS] = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    told = kgw.fail(1, "transactions", "find-hanging")
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in told


ABORT = ("transactions", "abort", "orders", "-p", "0", "--start-offset", "40")


@pytest.mark.parametrize(("known", "sent"), [(-1, 0), (5, 5)])
def test_a_transaction_that_hangs_is_aborted(
    kgw: Commands, cluster: ScriptedCluster, known: int, sent: int
) -> None:
    """By a marker of its producer; where none has come yet, of the lowest coordinator epoch."""
    cluster.has_open("orders", 0, 7, 40)
    cluster.producers["orders", 0][0].coordinator_epoch = known
    assert {
        "topic": "orders",
        "partition": 0,
        "producer_id": 7,
        "producer_epoch": 3,
        "start_offset": 40,
        "aborted": True,
    } == kgw.json(*ABORT)
    (marker,) = cluster.asked[-1].markers
    assert (7, 3, False, sent) == (
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
    )
    assert [("orders", [0])] == [(one.name, one.partition_indexes) for one in marker.topics]
    assert "Aborted the transaction of producer 7 in orders-0.\n" == kgw.succeed(*ABORT)


def test_what_is_not_open_is_not_aborted(kgw: Commands, cluster: ScriptedCluster) -> None:
    """The error says what is open there."""
    assert "none is open there" in kgw.fail(1, *ABORT)
    cluster.has_open("orders", 0, 7, 30)
    cluster.has_open("orders", 0, 8, 50)
    told = kgw.fail(1, *ABORT)
    assert "begins at offset 40; those that are open begin at 30, 50" in told


def test_a_transaction_with_a_coordinator_is_left_to_it(
    kgw: Commands, cluster: ScriptedCluster
) -> None:
    """A marker in one partition would tear it; whoever insists may do so."""
    cluster.has_open("orders", 0, 7, 40)
    cluster.has_transaction("copier", 7, "PrepareCommit", orders=[0, 1])
    told = kgw.fail(1, *ABORT)
    assert "belongs to copier, which is PrepareCommit" in told
    assert "--force" in told
    kgw.succeed(*ABORT, "--force")
    assert cluster.asked[-1].markers


@pytest.mark.parametrize(
    ("code", "help_"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, "newer epoch"),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, "newer coordinator"),
    ],
)
def test_a_marker_that_is_refused_says_what_helps(
    kgw: Commands, cluster: ScriptedCluster, code: ErrorCode, help_: str
) -> None:
    """Something has happened there since it was looked at."""
    cluster.has_open("orders", 0, 7, 40)
    cluster.codes[ApiKey.WRITE_TXN_MARKERS] = code
    told = kgw.fail(1, *ABORT)
    assert f"cannot abort in orders-0: {code.name}" in told
    assert help_ in told
    assert "`kgw producers orders -p 0` shows what is open now" in told
    error = json.loads(kgw.run(*ABORT, "--json").stderr)
    assert code.name == error["kafka_error"]


def test_who_may_not_abort_is_told(kgw: Commands, cluster: ScriptedCluster) -> None:
    """Any other refusal stands as the server gave it."""
    cluster.has_open("orders", 0, 7, 40)
    cluster.codes[ApiKey.WRITE_TXN_MARKERS] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "cannot abort in orders-0: CLUSTER_AUTHORIZATION_FAILED" == kgw.fail(1, *ABORT)
