"""What Kafka's clients have written, read by SeaweedFS's own tools and by the format's numbers.

SeaweedMQ's SQL (`weed-sql`, `weed-db`) is in programs of its own, which the package of `weed` does
not have, and shows no offsets. Its rows are the entries that are read here.
"""

from __future__ import annotations

import json
import struct
import subprocess
from typing import TYPE_CHECKING, NamedTuple
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.testing.process import GatewayProcess
from tests import patience
from tests.seaweedfs.binary import weed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.seaweedfs.cluster import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

TIMEOUT_S = 30.0
TOPIC = "orders"
RECORDS = [(b"k%d" % number, b"value %d" % number) for number in range(100)]
VARINT, BYTES = 0, 2
TS_NS, DATA, KEY, OFFSET = 1, 3, 4, 5
"""Of a LogEntry (reference: filer.proto)."""


class Row(NamedTuple):
    """What SeaweedMQ knows of a message."""

    offset: int
    key: bytes
    value: bytes


def rows(file: bytes) -> Iterator[Row]:
    """Read a log file: `[u32 length][LogEntry]` again and again, unknown fields left aside."""
    place = 0
    last_ts_ns = 0
    while place < len(file):
        (size,) = struct.unpack_from(">I", file, place)
        place += 4
        numbers, texts = _fields(file[place : place + size])
        place += size
        assert numbers[TS_NS] > last_ts_ns
        last_ts_ns = numbers[TS_NS]
        # What is 0 or empty is left out.
        yield Row(numbers.get(OFFSET, 0), texts.get(KEY, b""), texts.get(DATA, b""))


def _fields(message: bytes) -> tuple[dict[int, int], dict[int, bytes]]:
    """Return the fields of a message, by their numbers."""
    numbers: dict[int, int] = {}
    texts: dict[int, bytes] = {}
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(message):
        number, kind = divmod(varint(), 8)
        if kind == VARINT:
            numbers[number] = varint()
            continue
        assert kind == BYTES
        size = varint()
        texts[number] = message[place : place + size]
        place += size
    return numbers, texts


@pytest.fixture
def gateway(seaweedfs: Cluster, tmp_path: Path) -> Iterator[tuple[GatewayProcess, str]]:
    """Yield a gateway with records one by one, and the directory of its topics."""
    namespace = seaweedfs.new_namespace()
    process = GatewayProcess(
        tmp_path / "gateway", "kgw.seaweedmq.layout=records", backend=seaweedfs.url(namespace)
    )
    with process:
        yield process, f"/topics/{namespace}"


def listed(seaweedfs: Cluster, directory: str) -> list[str]:
    """Return the paths in a directory, from the filer's HTTP API."""
    url = f"http://{seaweedfs.address('filer')}{directory}/?limit=1000"
    with urlopen(Request(url, headers={"Accept": "application/json"})) as answer:
        return [entry["FullPath"] for entry in json.load(answer)["Entries"] or ()]


def test_smq_readers_see_keys_values_and_offsets(
    seaweedfs: Cluster, gateway: tuple[GatewayProcess, str]
) -> None:
    """Files that `weed filer.cat` prints hold each record of a Kafka client as SeaweedMQ's own."""
    process, topics = gateway
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(patience.seconds(TIMEOUT_S))
    producer = Producer({"bootstrap.servers": process.bootstrap, "compression.type": "zstd"})
    for key, value in RECORDS:
        producer.produce(TOPIC, value, key, headers={"source": b"test"})
    assert 0 == producer.flush(TIMEOUT_S)
    conf, version = sorted(listed(seaweedfs, f"{topics}/{TOPIC}"), key=lambda path: "/v" in path)
    assert f"{topics}/{TOPIC}/topic.conf" == conf
    (partition,) = listed(seaweedfs, version)
    found: list[Row] = []
    for path in sorted(listed(seaweedfs, partition)):
        if not path.endswith((".offset", "/leader")):
            command = [str(weed()), "filer.cat", f"http://{seaweedfs.address('filer')}{path}"]
            found += rows(subprocess.run(command, check=True, capture_output=True).stdout)
    expected = [Row(offset, *record) for offset, record in enumerate(RECORDS)]
    assert expected == found


def test_weed_shell_lists_the_topics(
    seaweedfs: Cluster, seaweedfs_broker: Cluster, gateway: tuple[GatewayProcess, str]
) -> None:
    """`mq.topic.list` of `weed shell`, which asks SeaweedMQ's broker, names Kafka's topics."""
    process, topics = gateway
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(patience.seconds(TIMEOUT_S))
    # Kafka's topics are there, and SeaweedMQ's broker knows them as its own.
    assert f"{TOPIC}\n" in shell(seaweedfs, f"fs.ls {topics}")
    namespace = topics.rpartition("/")[2]
    said = shell(seaweedfs, "mq.topic.list")
    assert any(namespace in line and TOPIC in line for line in said.splitlines()), said


def shell(seaweedfs: Cluster, command: str) -> str:
    """Return what `weed shell` prints for a command."""
    arguments = [
        *(str(weed()), "shell"),
        f"-master={seaweedfs.address('master')}",
        f"-filer={seaweedfs.address('filer')}",
    ]
    done = subprocess.run(
        arguments, input=f"{command}\n", check=True, capture_output=True, text=True
    )
    return done.stdout
