"""The agent's API as a user runs it, beside a Kafka client: the same records, the same groups."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import confluent_kafka
import grpc
import pytest

from kgw.testing.process import GatewayProcess
from kgw.version import install_command
from tests import patience
from tests.agent.smq_client import RESUME_OR_EARLIEST, M, field_of, value_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SERVICE = "/messaging_pb.SeaweedMessagingAgent/"
TOPIC = M["Topic"](namespace="kafka", name="orders")


class Client:
    """A channel whose calls wait; for tests that talk to a process."""

    def __init__(self, port: int) -> None:
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")

    def start_session(self, partition_count: int) -> int:
        call = self.channel.unary_unary(
            f"{SERVICE}StartPublishSession",
            request_serializer=M["StartPublishSessionRequest"].SerializeToString,
            response_deserializer=M["StartPublishSessionResponse"].FromString,
        )
        answer = call(
            M["StartPublishSessionRequest"](topic=TOPIC, partition_count=partition_count),
            wait_for_ready=True,
            timeout=patience.seconds(30),
        )
        assert not answer.error
        return int(answer.session_id)

    def stream(self, method: str, requests: Iterator[Any]) -> Any:
        return self.channel.stream_stream(
            SERVICE + method,
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=M[f"{method}Response"].FromString,
        )(requests, wait_for_ready=True, timeout=patience.seconds(100))

    def publish(self, values: range, partition_count: int = 2) -> list[Any]:
        """Publish one record for each number, its key the same; return the answers to all."""
        session_id = self.start_session(partition_count)
        requests = (
            M["PublishRecordRequest"](
                session_id=session_id, key=b"%d" % number, value=value_of(v=number)
            )
            for number in values
        )
        return list(self.stream("PublishRecord", requests))


class Subscriber:
    """A stream that acknowledges when it is told to."""

    def __init__(self, client: Client, **init: Any) -> None:
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._requests.put(M["SubscribeRecordRequest"](init=M["Init"](topic=TOPIC, **init)))
        self.stream = client.stream("SubscribeRecord", iter(self._requests.get, None))

    def take(self, count: int, *, acknowledge: bool = True) -> list[Any]:
        records = []
        for _ in range(count):
            record = next(self.stream)
            records.append(record)
            if acknowledge:
                self._requests.put(
                    M["SubscribeRecordRequest"](ack_sequence=record.offset, ack_key=record.key)
                )
        return records

    def close(self) -> None:
        """End the stream in order, so that what was acknowledged is committed."""
        self._requests.put(None)
        for _ in self.stream:
            pass


@contextmanager
def serving(data_dir: Path) -> Iterator[GatewayProcess]:
    """Serve a data directory, with an agent's listener; kill what is left."""
    process = GatewayProcess(data_dir, "kgw.smq.agent.listener=127.0.0.1:0")
    try:
        yield process.start()
    finally:
        if process.running:
            process.kill()


def consume(bootstrap: str, group: str, count: int) -> list[Any]:
    """Return so many records that a Kafka consumer gets, and commit them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    got: list[Any] = []
    while len(got) < count:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        got.append(message)
    consumer.commit(asynchronous=False)
    consumer.close()
    return got


def test_both_worlds_have_the_same_records_and_groups(tmp_path: Path) -> None:
    """Each reads what the other wrote at the same offsets, and resumes where the other stopped."""
    with serving(tmp_path / "data") as gateway:
        client = Client(gateway.agent_port)
        answers = client.publish(range(100), partition_count=2)
        offsets = {one.ack_sequence - 1: one.base_offset for one in answers}
        got = consume(gateway.bootstrap, "kafka-first", 60)
        for message in got:
            number = int(message.key())
            assert offsets[number] == message.offset()
            assert value_of(v=number).SerializeToString() == message.value()

        rest = Subscriber(client, consumer_group="kafka-first", sliding_window_size=50)
        keys = {int(one.key) for one in rest.take(40)}
        assert set(range(100)) == keys | {int(one.key()) for one in got}
        rest.close()

        producer = confluent_kafka.Producer({"bootstrap.servers": gateway.bootstrap})
        places: dict[bytes, int] = {}
        for number in range(10):
            producer.produce(
                "orders",
                key=f"k{number}",
                value=f"text {number}",
                on_delivery=lambda _, one: places.__setitem__(one.key(), one.offset()),
            )
        producer.flush()
        agent = Subscriber(client, consumer_group="kafka-first", sliding_window_size=50)
        records = agent.take(10)
        assert places == {one.key: one.offset for one in records}
        texts = {field_of(one.value, "_value") for one in records}
        assert {b"text %d" % number for number in range(10)} == texts
        agent.close()
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": gateway.bootstrap, "group.id": "kafka-first"}
        )
        partitions = [confluent_kafka.TopicPartition("orders", index) for index in range(2)]
        committed = consumer.committed(partitions, timeout=patience.seconds(30))
        assert 110 == sum(one.offset for one in committed)
        consumer.close()


def test_a_kill_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    """10,000 records in one stream, kill -9, and a group that goes on where it had acknowledged."""
    with serving(tmp_path / "data") as gateway:
        client = Client(gateway.agent_port)
        answers = client.publish(range(10_000), partition_count=1)
        assert [*range(10_000)] == [one.base_offset for one in answers]
        assert [*range(1, 10_001)] == [one.ack_sequence for one in answers]
        subscriber = Subscriber(client, consumer_group="g", sliding_window_size=100)
        subscriber.take(400)
        subscriber.close()
        open_one = Subscriber(client, consumer_group="g", sliding_window_size=100)
        first = open_one.take(1, acknowledge=False)
        assert 400 == first[0].offset
        gateway.kill()
        with pytest.raises(grpc.RpcError):
            open_one.take(10_000)
        gateway.start()
        client = Client(gateway.agent_port)
        resumed = Subscriber(
            client, consumer_group="g", sliding_window_size=1000, offset_type=RESUME_OR_EARLIEST
        )
        records = resumed.take(9_600)
        assert [*range(400, 10_000)] == [one.offset for one in records]
        assert [*range(400, 10_000)] == [field_of(one.value) for one in records]
        resumed.close()
        assert 0 == gateway.stop()


@pytest.mark.full
def test_clients_that_read_no_answers_are_served(tmp_path: Path) -> None:
    """SMQ's own publisher reads none: what it sends is stored, and it is not held up."""
    with serving(tmp_path / "data") as gateway:
        client = Client(gateway.agent_port)
        session_id = client.start_session(1)
        requests: SimpleQueue[Any] = SimpleQueue()
        stream = client.stream("PublishRecord", iter(requests.get, None))
        for number in range(12_000):
            requests.put(M["PublishRecordRequest"](session_id=session_id, value=value_of(v=number)))
        subscriber = Subscriber(client)
        assert [*range(12_000)] == [
            one.offset for one in subscriber.take(12_000, acknowledge=False)
        ]
        requests.put(None)
        sequences = [one.ack_sequence for one in stream]
        assert sorted(sequences) == sequences
        assert 12_000 == sequences[-1]


def test_the_ready_line_and_what_stands_in_the_way(tmp_path: Path) -> None:
    """Its port is said; a port in use, or gRPC that is not installed, ends the start by name."""
    with serving(tmp_path / "data") as gateway:
        assert gateway.agent_port
        command = ["serve", "--data-dir", str(tmp_path / "other"), "--listen", "127.0.0.1:0"]
        command += ["--smq-agent", f"127.0.0.1:{gateway.agent_port}", "--json"]
        used = run("-m", "kgw", *command)
        assert "cannot listen at SMQ_AGENT" in used
    without = "import sys; sys.modules['grpc'] = None; from kgw.cli.main import main; main()"
    assert install_command("seaweedmq") in run("-c", without, *command)


def run(*arguments: str) -> str:
    """Run Python with arguments; return what it says of why it fails, which is no traceback."""
    ran = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=patience.seconds(60),
        check=False,
    )
    assert 0 != ran.returncode
    assert "Traceback" not in ran.stderr
    return ran.stderr


def test_a_drain_ends_streams_and_the_process(tmp_path: Path) -> None:
    """SIGTERM: a subscriber that waits is told to go elsewhere, and the exit code is 0."""
    with serving(tmp_path / "data") as gateway:
        client = Client(gateway.agent_port)
        client.publish(range(1))
        subscriber = Subscriber(client, consumer_group="g", sliding_window_size=1)
        subscriber.take(1)
        assert 0 == gateway.stop()
        with pytest.raises(grpc.RpcError) as told:
            subscriber.take(1)
        assert grpc.StatusCode.UNAVAILABLE is told.value.code()
        events = [json.loads(line)["event"] for line in gateway.log().splitlines()]
        assert ["ready", "stopping", "stopped"] == events
