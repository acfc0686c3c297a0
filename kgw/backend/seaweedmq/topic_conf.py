"""SMQ's names for topics and partitions, and `topic.conf` as SMQ writes it. Pure.

`/topics/<namespace>/<topic>/topic.conf` is the JSON form of SMQ's ConfigureTopicResponse; a
generation of partitions has a directory `vYYYY-MM-DD-HH-MM-SS`, the UTC second of its creation, and
each partition one in there, named by its range of the ring. Partition N has the range
`[N·32, N·32+31]`, which does not depend on how many there are: a topic grows without touching what
is there.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

TOPICS: Final = "/topics"
TOPIC_CONF: Final = "topic.conf"
RANGE: Final = 32
_RING: Final = 4096
_PARTITION: Final = re.compile(r"(\d{4,})-(\d{4,})")


def topics_directory(namespace: str) -> str:
    """Return where the topics of a namespace are."""
    return f"{TOPICS}/{namespace}"


def version_name(unix_s: int) -> str:
    """Return the name of the directory of partitions that are created at that second."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("v%Y-%m-%d-%H-%M-%S")


def partition_name(partition: int) -> str:
    """Return the name of a partition's directory."""
    return f"{partition * RANGE:04d}-{partition * RANGE + RANGE - 1:04d}"


def parse_partition_name(name: str) -> int | None:
    """Return the partition whose directory has that name; None when it is none of ours."""
    found = _PARTITION.fullmatch(name)
    if found is None:
        return None
    partition = int(found[1]) // RANGE
    return partition if partition_name(partition) == name else None


def topic_conf(partitions: Iterable[int], unix_s: int) -> bytes:
    """Return what SMQ's shell, SQL and agents are to know of a topic.

    As protobuf writes JSON, with every field: 64-bit numbers are strings. No broker leads the
    partitions.
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
        "messageRecordType": None,
        "keyColumns": [],
        "schemaFormat": "",
    }
    return json.dumps(conf, indent=2).encode()
