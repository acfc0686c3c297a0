"""SMQ's names for topics and partitions, and SMQ's `topic.conf`. Pure.

`/topics/<namespace>/<topic>/topic.conf` is SMQ's ConfigureTopicResponse as JSON. A generation of
partitions has a directory `vYYYY-MM-DD-HH-MM-SS`, named after the UTC second of its creation. In
it, each partition has a directory named after its range of the ring. Partition N has the range
`[N·32, N·32+31]` for any number of partitions, so partitions can be added without changing existing
ones.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

TOPICS: Final = "/topics"
TOPIC_CONF: Final = "topic.conf"
RANGE: Final = 32
RECORD_TYPE: Final = "kgw.smq.record.type"
"""The topic setting that has a RecordType in base64."""
_RING: Final = 4096
_PARTITION: Final = re.compile(r"(\d{4,})-(\d{4,})")


def topics_directory(namespace: str) -> str:
    """Return the directory of a namespace's topics."""
    return f"{TOPICS}/{namespace}"


def version_name(unix_s: int) -> str:
    """Return the name of the directory of partitions that are created at that second."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("v%Y-%m-%d-%H-%M-%S")


def partition_name(partition: int) -> str:
    """Return the name of a partition's directory."""
    return f"{partition * RANGE:04d}-{partition * RANGE + RANGE - 1:04d}"


def parse_partition_name(name: str) -> int | None:
    """Return the partition with this directory name; None if the name is not kgw's."""
    found = _PARTITION.fullmatch(name)
    if found is None:
        return None
    partition = int(found[1]) // RANGE
    return partition if partition_name(partition) == name else None


class TopicFacts(NamedTuple):
    """The fields of a topic's row that SMQ's tools need."""

    partitions: int
    record_type: Any = None
    """The topic's RecordType as JSON; None if it is missing or unreadable."""


def facts_of_row(row: bytes) -> TopicFacts | None:
    """Return the facts in a topic's row; None if the row is unreadable."""
    try:
        fields = json.loads(row)
        partitions = int(fields["partitions"])
        text = fields["configs"].get(RECORD_TYPE, "")
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return TopicFacts(partitions, record_type_json(text) if text else None)


def record_type_json(text: str) -> Any:
    """Return a RecordType in base64 as JSON, in protobuf's form with every field.

    Returns None if the text is no RecordType.
    """
    # Imported late, because few topics have a RecordType.
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    from kgw.backend.seaweedmq.protos.schema_pb2 import RecordType

    try:
        record_type = RecordType.FromString(b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None
    return MessageToDict(record_type, always_print_fields_with_no_presence=True)


def with_record_type(content: bytes, record_type: Any) -> bytes | None:
    """Return a `topic.conf` with another RecordType; None if it already has this RecordType.

    Other fields are kept, because brokers store the leaders in them. Raises ValueError if the
    content is no `topic.conf`.
    """
    conf = json.loads(content)
    if not isinstance(conf, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - as json does
    if conf.get("messageRecordType") == record_type:
        return None
    return json.dumps({**conf, "messageRecordType": record_type}, indent=2).encode()


def topic_conf(partitions: Iterable[int], unix_s: int, record_type: Any = None) -> bytes:
    """Return a `topic.conf` that describes a topic to SMQ's shell, SQL and agents.

    The JSON has protobuf's form with every field, so 64-bit numbers are strings. No broker leads
    the partitions.
    """
    numbers = sorted(partitions)
    ring = _RING
    while numbers and numbers[-1] * RANGE + RANGE > ring:
        ring *= 2
    conf = {
        "brokerPartitionAssignments": [
            {
                "partition": {
                    "ringSize": ring,
                    "rangeStart": number * RANGE,
                    "rangeStop": number * RANGE + RANGE - 1,
                    "unixTimeNs": str(unix_s * 1_000_000_000),
                },
                "leaderBroker": "",
                "followerBroker": "",
            }
            for number in numbers
        ],
        "retention": None,
        "messageRecordType": record_type,
        "keyColumns": [],
        "schemaFormat": "",
    }
    return json.dumps(conf, indent=2).encode()
