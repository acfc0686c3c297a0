"""Reports changes that other programs make in the directories of kgw's topics.

SMQ's broker also sees these topics. It writes records that are published through it into files in
the same directories. A chain reads only the files in its leader entry, so these records are not in
the topic, although their publishers believe it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.chain.marks import IDENTITY
from kgw.backend.seaweedmq.native.files import is_log_file_name
from kgw.backend.seaweedmq.topics.topic_conf import TOPIC_CONF, topic_conf

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.backend.seaweedmq.chain import Chain
    from kgw.backend.seaweedmq.filer import Filer
    from kgw.backend.seaweedmq.topics.directories import TopicPlace


async def look_at_partition(filer: Filer, chain: Chain) -> list[str]:
    """Return the problems of the directory of a partition's chain. Raises FilerError."""
    directory = chain.directory
    before = _sealed_names(chain)
    found: set[str] = set()
    theirs: list[str] = []
    async for entry in filer.list_entries(directory, chunks=False):
        found.add(entry.name)
        if is_log_file_name(entry.name) and IDENTITY not in entry.extended:
            theirs.append(entry.name)
    # Ignore files that retention has dropped meanwhile.
    gone = sorted((before & _sealed_names(chain)) - found)
    problems = []
    if LEADER not in found:
        problems.append(
            f"{directory}/{LEADER} is gone: nothing else says which files are the partition's log, "
            "and the next start does not open it. Bring it back from a backup of the filer's "
            "metadata while this gateway is stopped"
        )
    if gone:
        problems.append(f"{directory}: {_some(gone)} gone: the records in there cannot be read")
    if theirs:
        problems.append(
            f"{directory}: {_some(theirs)} not written by kgw, and not read: somebody publishes to "
            "the topic through SeaweedMQ's broker; Kafka clients do not see that"
        )
    return problems


def _sealed_names(chain: Chain) -> set[str]:
    """Return the names of the files that must exist at this moment."""
    return {file.name for file in chain.files[:-1]}


async def look_at_conf(filer: Filer, place: TopicPlace, partitions: Iterable[int]) -> list[str]:
    """Return the problems of a topic's `topic.conf`. Raises FilerError."""
    found = await filer.look_up(place.parent, TOPIC_CONF)
    where = f"{place.parent}/{TOPIC_CONF}"
    if found is None:
        return [f"{where} is gone: SeaweedMQ's tools do not see the topic. Kafka clients do"]
    if _partitions(found.content) == _partitions(topic_conf(partitions, place.created_s)):
        return []
    problem = "names other partitions than those of kgw: SeaweedMQ's tools see another topic"
    return [f"{where} {problem}. Kafka clients do not"]


def _partitions(content: bytes) -> list[tuple[int, int]] | None:
    """Return ranges and times of the partitions, without the leaders that the broker enters."""
    try:
        rows = [row["partition"] for row in json.loads(content)["brokerPartitionAssignments"]]
        return sorted((int(row["rangeStart"]), int(row["unixTimeNs"])) for row in rows)
    except (KeyError, TypeError, ValueError):
        return None


def _some(names: list[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} is"
    return f"{names[0]} and {len(names) - 1} more are"
