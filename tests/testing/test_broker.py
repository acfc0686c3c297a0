from __future__ import annotations

import asyncio
import os
import socket
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest

from kgw.client import CannotConnectError, ConnectionLostError, ServerRefusedError
from kgw.config import SERVER_SETTINGS, ConfigError
from kgw.config.server_settings import SERVER_ALIASES
from kgw.errors import KafkaError, ListenError
from kgw.handlers.config_resources import ConfigResourceType
from kgw.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kgw.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kgw.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kgw.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kgw.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kgw.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kgw.protocol.messages.produce import ProduceResponse
from kgw.testing.asking import Record
from kgw.testing.batches import make_batch
from kgw.testing.broker import Broker
from kgw.testing.loop_thread import LoopThread
from kgw.testing.options import OWN_SETTINGS, topic_specs
from tests.testing.connecting import connected, produce_to

if TYPE_CHECKING:
    from pathlib import Path


FORMS = [
    (("a", "b"), {}, {"a": 1, "b": 1}),
    ((), {"a": 3}, {"a": 3}),
    (("a",), {"b": 2}, {"a": 1, "b": 2}),
    (({"b.c": 4},), {"a": {"partitions": 2, "retention.ms": 1000}}, {"b.c": 4, "a": 2}),
    ((["a", {"b": 2}],), {}, {"a": 1, "b": 2}),
    (({"topics": 2, "self": 3},), {}, {"topics": 2, "self": 3}),
]


@pytest.mark.parametrize(("names", "more", "expected"), FORMS)
def test_topics_are_named_in_the_same_forms_everywhere(
    kgw_broker: Broker, names: tuple[Any, ...], more: dict[str, Any], expected: dict[str, int]
) -> None:
    """By `create_topics`, by the marker, and (without keywords) for a broker of one's own."""
    kgw_broker.create_topics(*names, **more)
    assert expected == kgw_broker.topics()
    marked = topic_specs("kgw_topics", *names, **more)
    assert expected == {name: one.partitions for name, one in marked.items()}
    with Broker(topics=[*names, more]) as broker:
        assert expected == broker.topics()


@pytest.mark.kgw_topics("orders", small={"max.message.bytes": 1000})
def test_many_records_are_as_many_batches_as_it_takes(kgw_broker: Broker) -> None:
    """No batch is larger than its topic takes, and every record has the offset that is told."""
    many = [f"{number:0100}" for number in range(20_000)]
    assert [*range(20_000)] == kgw_broker.produce("orders", many)
    assert many[-1].encode() == kgw_broker.values("orders")[-1]
    few = ["a" * 100] * 30
    assert [*range(30)] == kgw_broker.produce("small", few, headers={"n": "v"})
    assert [*range(30)] == [one.offset for one in kgw_broker.records("small")]
    with pytest.raises(ServerRefusedError, match="MESSAGE_TOO_LARGE"):
        kgw_broker.produce("small", ["a" * 2000])


@pytest.mark.kgw_topics("orders")
def test_data_in_other_forms(kgw_broker: Broker) -> None:
    """Whatever holds bytes, headers as pairs or a dict, values out of a generator."""
    kgw_broker.produce(
        "orders", (one for one in (bytearray(b"a"), memoryview(b"b"))), headers={"h": "text"}
    )
    kgw_broker.produce("orders", ["c"], headers=[("h", None)])
    assert [(b"a", b"text"), (b"b", b"text"), (b"c", None)] == [
        (one.value, one.headers[0][1]) for one in kgw_broker.records("orders")
    ]


@pytest.mark.parametrize(
    ("method", "given", "options", "text"),
    [
        ("produce", (5, ["a"]), {}, "topic is a string, not 5"),
        ("produce", ("orders", "text"), {}, r"values is a list of records, not one: \['text'\]"),
        ("produce", ("orders", b"text"), {}, r"values is a list of records, not one: \[b'text'\]"),
        ("produce", ("orders", 5), {}, "values is a list, not 5"),
        ("produce", ("orders", None), {}, "values is a list, not None"),
        ("produce", ("orders", {"a": 1}), {}, "values is a list, not {'a': 1}"),
        ("produce", ("orders", ["a", 5]), {}, r"values\[1\] is bytes, a string or None, not 5"),
        ("produce", ("orders", ["\ud800"]), {}, r"values\[0\] cannot be written in UTF-8"),
        ("produce", ("orders", ["a"]), {"key": 5}, "key is bytes, a string or None, not 5"),
        ("produce", ("orders", ["a"]), {"partition": "0"}, "partition is a whole number, not '0'"),
        ("produce", ("orders", ["a"]), {"partition": True}, "partition is a whole number"),
        ("produce", ("orders", ["a"]), {"partition": -1}, "partition is 0 or more, not -1"),
        ("produce", ("orders", ["a"]), {"timestamp_ms": 1.5}, "timestamp_ms is a whole number"),
        ("produce", ("orders", ["a"]), {"headers": "h"}, "headers is a list, not 'h'"),
        ("produce", ("orders", ["a"]), {"headers": [("h",)]}, r"headers\[0\] is a pair"),
        ("produce", ("orders", ["a"]), {"headers": ["ab"]}, r"headers\[0\] is a pair"),
        ("produce", ("orders", ["a"]), {"headers": [(b"h", b"v")]}, r"name in headers\[0\] is a s"),
        ("produce", ("orders", ["a"]), {"headers": {"h": 5}}, r"value in headers\[0\] is bytes"),
        ("records", (None,), {}, "topic is a string, not None"),
        ("records", ("orders", "0"), {}, "partition is a whole number, not '0'"),
        ("values", (["orders"],), {}, r"topic is a string, not \['orders'\]"),
        ("delete_topic", (5,), {}, "topic is a string, not 5"),
        ("create_topics", (5,), {}, "topics: 5 is no name of a topic"),
        ("create_topics", (), {"a": "3"}, "topics: a: '3' is neither a number of partitions"),
        ("committed", (5,), {}, "group_id is a string, not 5"),
        ("members", (b"g",), {}, "group_id is a string, not b'g'"),
        ("costume", (2.8,), {}, "costume is a string, not 2.8"),
        ("clock.advance", ("1",), {}, "seconds is a number of seconds, not '1'"),
        ("clock.advance", (float("nan"),), {}, "seconds is 0 or more, not nan"),
        ("faults.delay", ("Fetch", "1"), {}, "seconds is a number of seconds, not '1'"),
        ("faults.drop", (5,), {}, "api is a list, not 5"),
        ("faults.drop", (["Fetch", 5],), {}, "api is a string, not 5"),
        ("faults.drop", ("Fetch",), {"times": "1"}, "times is a whole number, not '1'"),
        ("faults.drop", ("Fetch",), {"topic": 5}, "topic is a string, not 5"),
        (
            "faults.drop",
            ("Fetch",),
            {"topic": "a", "partition": "0"},
            "partition is a whole number",
        ),
        ("faults.drop", ("Fetch",), {"client_id": 5}, "client_id is a string, not 5"),
        ("faults.refuse", ("Fetch", 6), {}, "error is a string, not 6"),
    ],
)
@pytest.mark.kgw_topics("orders")
def test_wrong_arguments_are_named(
    kgw_broker: Broker, method: str, given: tuple[Any, ...], options: dict[str, Any], text: str
) -> None:
    """What is of the wrong type, or cannot be, is an error that names the argument."""
    with pytest.raises(ValueError, match=text):
        attrgetter(method)(kgw_broker)(*given, **options)
    assert [] == kgw_broker.records("orders")


@pytest.mark.kgw_topics(orders=3)
def test_records_are_where_kafkas_clients_would_put_them(kgw_broker: Broker) -> None:
    """By key, or where they are told; what is read is what was written."""
    headers = [("trace", b"1"), ("empty", None)]
    assert [0, 1] == kgw_broker.produce("orders", ["a", b"b"], partition=2, timestamp_ms=5)
    assert [2] == kgw_broker.produce("orders", [None], key="k", headers=headers, timestamp_ms=6)
    assert [] == kgw_broker.produce("orders", [])
    expected = [
        Record("orders", 2, 0, 5, None, b"a"),
        Record("orders", 2, 1, 5, None, b"b"),
        Record("orders", 2, 2, 6, b"k", None, tuple(headers)),
    ]
    assert expected == kgw_broker.records("orders")
    assert ([], [b"a", b"b", None]) == (
        kgw_broker.records("orders", 0),
        kgw_broker.values("orders"),
    )


def test_topics_are_made_and_deleted(kgw_broker: Broker) -> None:
    """With settings; what cannot be is refused as Kafka does."""
    kgw_broker.create_topics("a", "b")
    kgw_broker.create_topics({"c": 3, "d": {"partitions": 2, "cleanup.policy": "compact"}})
    kgw_broker.delete_topic("b")
    assert {"a": 1, "c": 3, "d": 2} == kgw_broker.topics()
    with pytest.raises(KafkaError, match="topic 'a' already exists"):
        kgw_broker.create_topics("a")
    with pytest.raises(ServerRefusedError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        kgw_broker.records("b")


@pytest.mark.kgw_topics("orders")
async def test_groups_are_told(kgw_broker: Broker) -> None:
    """Who is in them, what they have committed; a session that is over ends a membership."""
    assert ((), {}, []) == (kgw_broker.members("g"), kgw_broker.committed("g"), kgw_broker.groups())
    async with connected(kgw_broker, "worker") as connection:
        joined = await connection.ask(
            JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            ),
            JoinGroupResponse,
            version=2,
        )
        assert ["worker"] == [member.client_id for member in kgw_broker.members("g")]
        kgw_broker.clock.advance(11)
        assert () == kgw_broker.members("g")
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        assert 25 == (await connection.ask(heartbeat, HeartbeatResponse)).error_code
        topic = OffsetCommitRequestTopic(
            name="orders",
            partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
        )
        commit = OffsetCommitRequest(group_id="g", topics=[topic])
        await connection.ask(commit, OffsetCommitResponse, version=8)
    assert ({("orders", 0): 7}, ["g"]) == (kgw_broker.committed("g"), kgw_broker.groups())


@pytest.mark.kgw_topics(orders={"retention.ms": 60_000})
def test_retention_goes_by_the_moved_clock(kgw_broker: Broker) -> None:
    """What is too old is gone when `advance` returns."""
    kgw_broker.produce("orders", ["old"])
    kgw_broker.clock.advance(30)
    assert [b"old"] == kgw_broker.values("orders")
    kgw_broker.clock.advance(600)
    assert ([], 630) == (kgw_broker.values("orders"), kgw_broker.clock.ahead_s)
    kgw_broker.produce("orders", ["new"])
    assert [b"new"] == kgw_broker.values("orders")
    with pytest.raises(ValueError, match="seconds is 0 or more, not -1: time does not go back"):
        kgw_broker.clock.advance(-1)


def test_a_broker_knows_nothing_of_the_one_before(kgw_broker: Broker) -> None:
    """Nor has it its port: clients that were left behind do not find it."""
    kgw_broker.create_topics("orders")
    kgw_broker.produce("orders", ["a"])
    port = kgw_broker.port
    kgw_broker.close()
    with Broker() as broker:
        assert ({}, []) == (broker.topics(), broker.groups())
        assert port != broker.port


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("backend", ["memory", "embedded"])
async def test_a_restart_keeps_records_and_port(tmp_path: Path, backend: str, kill: bool) -> None:
    """In memory and on disk, after a stop and after a kill; connections end with it."""
    data_dir = tmp_path / "data" if backend == "embedded" else None
    with Broker(topics={"orders": 1}, data_dir=data_dir) as broker:
        before = broker.bootstrap
        async with connected(broker) as connection:
            await connection.ask(produce_to(("orders", 0)), ProduceResponse, version=9)
            broker.restart(kill=kill)
            with pytest.raises(ConnectionLostError):
                await connection.ask(HeartbeatRequest(), HeartbeatResponse)
        assert (before, [b"x"]) == (broker.bootstrap, broker.values("orders"))
        assert (data_dir is not None) == any(tmp_path.iterdir())
        broker.stop()
        assert not broker.is_running
        with pytest.raises(CannotConnectError, match="connection refused"):
            async with connected(broker):
                pass
        with pytest.raises(RuntimeError, match="the broker does not run"):
            broker.topics()


async def test_a_limit_of_connections_changes_live_and_outlives_a_restart() -> None:
    """The broker of a test has the settings of a server, and obeys them as it does."""
    change = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=ConfigResourceType.BROKER,
                resource_name="0",
                configs=[AlterableConfig(name="max.connections", value="1")],
            )
        ]
    )
    with Broker() as broker:
        async with connected(broker) as connection:
            await connection.ask(change, IncrementalAlterConfigsResponse, version=1)
            await refuses(broker)
        broker.restart(kill=True)
        async with connected(broker) as connection:
            await connection.ask(HeartbeatRequest(), HeartbeatResponse)
            await refuses(broker)


async def refuses(broker: Broker) -> None:
    """Fail unless a further connection is refused."""
    with pytest.raises((CannotConnectError, ConnectionLostError)):
        async with connected(broker) as connection:
            await connection.ask(HeartbeatRequest(), HeartbeatResponse)


@pytest.mark.kgw_topics("orders")
async def test_records_of_transactions_are_seen_as_consumers_see_them(kgw_broker: Broker) -> None:
    """All of them, or with read_committed what was committed below the first that is open."""
    async with connected(kgw_broker) as connection:
        begin = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        producer = await connection.ask(begin, InitProducerIdResponse, version=4)
        producer_id, epoch = producer.producer_id, producer.producer_epoch
        for value, is_commit in ((b"aborted", False), (b"committed", True), (b"open", None)):
            request = produce_to(("orders", 0))
            request.transactional_id = "t"
            request.topic_data[0].partition_data[0].records = make_batch(
                [value],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=0,
                is_transactional=True,
            ).buffer
            await connection.ask(request, ProduceResponse, version=12)
            if is_commit is not None:
                end = EndTxnRequest(
                    transactional_id="t",
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    committed=is_commit,
                )
                epoch = (await connection.ask(end, EndTxnResponse, version=5)).producer_epoch
    kgw_broker.produce("orders", ["plain"])
    every = [record.value for record in kgw_broker.records("orders")]
    committed = [record.value for record in kgw_broker.records("orders", read_committed=True)]
    assert ([b"aborted", b"committed", b"open", b"plain"], [b"committed"]) == (every, committed)


async def leader_epoch(broker: Broker) -> int:
    """Return the leader epoch that clients are told of partition 0 of "orders"."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    async with connected(broker) as connection:
        answered = await connection.ask(request, MetadataResponse, version=9)
    return answered.topics[0].partitions[0].leader_epoch


@pytest.mark.parametrize("backend", ["memory", "embedded"])
async def test_a_kill_is_no_stop(tmp_path: Path, backend: str) -> None:
    """Nothing says that it ended in order, so that the next leader epoch begins."""
    data_dir = tmp_path / "data" if backend == "embedded" else None
    marker = tmp_path / "data" / "clean.json"
    with Broker(topics={"orders": 1}, data_dir=data_dir) as broker:
        broker.produce("orders", ["a"])
        broker.stop()
        assert (data_dir is not None) == marker.exists()
        broker.start()
        first = await leader_epoch(broker)
        broker.kill()
        assert not marker.exists()
        broker.start()
        assert first + 1 == await leader_epoch(broker)
        # Or nothing of this epoch need be known to the next start.
        broker.produce("orders", ["b"])
        broker.restart(kill=True)
        assert first + 2 == await leader_epoch(broker)
        broker.restart()
        assert first + 2 == await leader_epoch(broker)


def test_ports_do_not_run_out() -> None:
    """A run has more tests than there are ports; those of the last brokers are not taken again."""
    thread = LoopThread()
    thread.ports_used.extend(range(1 << 16))
    ports = []
    for _ in range(3):
        with Broker(thread=thread) as broker:
            ports.append(broker.port)
    thread.close()
    assert ports == list(thread.ports_used)[-3:]
    assert 3 == len(set(ports))


def test_a_thread_that_has_ended_can_be_closed_again() -> None:
    """That does nothing; who gives it work is told that it has ended."""
    thread = LoopThread()
    thread.close()
    thread.close()
    with pytest.raises(RuntimeError, match="the broker's thread has ended"):
        thread.call(asyncio.sleep, 0)


def test_a_broker_does_not_wait_for_itself(kgw_broker: Broker) -> None:
    """What runs in its loop is told that it cannot use methods that wait for the loop."""

    async def ask() -> object:
        return kgw_broker.topics()

    with pytest.raises(RuntimeError, match="event loop cannot wait for itself"):
        kgw_broker.run(ask)


def test_each_setting_that_is_not_given_is_one() -> None:
    """Refused by its name, or by the other one that it has."""
    assert set() == OWN_SETTINGS - SERVER_SETTINGS.keys() - SERVER_ALIASES.keys()


# Python 3.12 and newer warn of any fork beside threads; tests that fork know what they do.
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@FORKS
def test_nothing_is_done_by_a_process_that_was_forked(kgw_broker: Broker) -> None:
    """It says so at once, rather than to wait for a thread that is not there."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            kgw_broker.topics()
        except RuntimeError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    os.waitpid(child, 0)
    assert text.startswith(f"the broker runs in process {os.getpid()}, from which this one")


@FORKS
@pytest.mark.parametrize("security", [None, {"protocol": "SSL"}], ids=["plain", "TLS"])
async def test_a_forked_process_keeps_no_socket_open(security: dict[str, Any] | None) -> None:
    """A client of a broker that has ended is refused, though a child lives on."""
    waiting, ended = os.pipe()
    begun, begins = os.pipe()
    with await asyncio.to_thread(Broker, security=security) as broker:
        async with connected(broker) as connection:
            child = os.fork()
            if not child:
                os.close(ended)
                os.write(begins, b"x")
                os.read(waiting, 1)
                os._exit(0)
            # It has let go of the sockets by then, not yet when the fork returns here.
            await asyncio.to_thread(os.read, begun, 1)
            assert {} == broker.topics()
            broker.stop()
            with pytest.raises(ConnectionLostError):
                await connection.ask(HeartbeatRequest(), HeartbeatResponse)
        with pytest.raises(CannotConnectError, match="connection refused"):
            async with connected(broker):
                pass
    for descriptor in (ended, waiting, begun, begins):
        os.close(descriptor)
    await asyncio.to_thread(os.waitpid, child, 0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topics": {"a": 0}}, "a topic has one partition or more, not 0"),
        ({"topics": {"a": True}}, "a topic has one partition or more, not True"),
        ({"topics": {"a": "3"}}, "topics: a: '3' is neither a number of partitions nor settings"),
        ({"topics": {"a": {5: 1}}}, "topics: a: 5 is no name of a setting"),
        ({"topics": {7: 1}}, "topics: 7 is no name of a topic"),
        ({"topics": 7}, "topics: 7 is no name of a topic, and no dict as {'orders': 3}"),
        ({"topics": ["a", None]}, "topics: None is no name of a topic"),
        ({"topics": {"a": {"retention.mss": 3}}}, "retention.mss"),
        ({"settings": "a"}, """settings are a dict, as {"num.partitions": 3}, not 'a'"""),
        ({"settings": 0}, """settings are a dict, as {"num.partitions": 3}, not 0"""),
        ({"settings": {3: 4}}, "settings: 3 is no name of a setting"),
        ({"data_dir": 3}, "data_dir is a path, not 3"),
        ({"costume": 2.8}, "costume is a string, not 2.8"),
        ({"settings": {"num.partitionss": 3}}, "did you mean num.partitions"),
        ({"settings": {"num.partitions": "many"}}, "num.partitions"),
        *(
            ({"settings": {name: "x"}}, f"{name} is not for a broker")
            for name in sorted(OWN_SETTINGS)
        ),
        ({"costume": "2.99"}, "no costume for Kafka '2.99'; there are 0.10.0"),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], text: str) -> None:
    """Before anything is started, in one line."""
    with pytest.raises((ValueError, ConfigError), match=text):
        Broker(**options)


def test_a_start_that_fails_leaves_nothing() -> None:
    """Neither a thread nor a socket: warnings of either are errors here."""
    with pytest.raises(KafkaError, match="a topic name is made of letters"):
        Broker(topics={"no name": 1}).start()
    broker = Broker().start()
    with pytest.raises(RuntimeError, match="the broker runs already"):
        broker.start()
    broker.close()
    broker.close()
    assert not broker.is_running


def test_a_port_that_somebody_else_has_taken_is_an_error() -> None:
    """The broker is closed then; nothing of it is left."""
    broker = Broker().start()
    broker.stop()
    taken = socket.create_server(("127.0.0.1", broker.port))
    with taken, pytest.raises(ListenError, match="cannot listen at"):
        broker.start()
    assert not broker.is_running
    assert f"<Broker {broker.bootstrap}, stopped>" == repr(broker)
