"""The rules of the verdict: each takes what was noted and returns what is wrong, in words."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from e2e.system.evidence import Content, Place, Stored

LOST = "lost"


def wrong_records(
    acknowledged: Iterable[tuple[str, Place, Content]],
    sent: Collection[bytes],
    stored: Sequence[Stored],
) -> list[str]:
    """Each acknowledged record is at its offset with its bytes; nothing is there twice, or new."""
    found = {one.place: one.content for one in stored}
    wrong = []
    givers: dict[Place, str] = {}
    for who, place, content in acknowledged:
        if place in givers:
            wrong.append(f"{place} was given to {givers[place]} and to {who}")
        givers[place] = who
        if place not in found:
            wrong.append(f"{LOST}: {_name(content)} of {who}, acknowledged at {place}")
        elif found[place] != content:
            wrong.append(
                f"{LOST}: {_name(content)} of {who}, acknowledged at {place}, where"
                f" {_name(found[place])} is"
            )
    times = Counter(one.content for one in stored)
    wrong += [f"{times[one]} times there: {_name(one)}" for one in times if times[one] > 1]
    wrong += [f"nobody has sent {_name(one)}" for one in times if one.value not in sent]
    return wrong


def _name(content: Content) -> str:
    """What tells a record from others: the producer and the number with which its value begins."""
    return repr(b":".join(content.value.split(b":", 2)[:2]))


def wrong_order(acknowledged: Iterable[tuple[str, Place, Content]]) -> list[str]:
    """The records of one producer and one key were acknowledged at rising offsets."""
    last: dict[tuple[str, bytes], Place] = {}
    wrong = []
    for who, place, content in acknowledged:
        before = last.get((who, content.key))
        if before is not None and (
            before.partition != place.partition or before.offset >= place.offset
        ):
            wrong.append(f"{who}, key {content.key!r}: {place} came behind {before}")
        last[who, content.key] = place
    return wrong


def wrong_offsets(stored: Iterable[Stored], ends: Mapping[int, int]) -> list[str]:
    """A topic without transactions has a record at every offset from 0 to its end."""
    by_partition: defaultdict[int, list[int]] = defaultdict(list)
    for one in stored:
        by_partition[one.place.partition].append(one.place.offset)
    return [
        f"partition {partition}: {len(by_partition[partition])} records, and its end is {end}"
        for partition, end in ends.items()
        if by_partition[partition] != list(range(end))
    ]


def not_seen(seen: Mapping[str, Collection[Place]], stored: Iterable[Stored]) -> list[str]:
    """The consumers of all languages together were given everything, and each was given some."""
    together = set().union(*seen.values())
    wrong = [f"nobody was given {one.place}" for one in stored if one.place not in together]
    return wrong + [f"the consumer in {who} was given nothing" for who in seen if not seen[who]]


def wrong_commits(looks: Sequence[Mapping[int, int]], ends: Mapping[int, int]) -> list[str]:
    """What the group has committed never went back, and is where the topic ends in the end."""
    wrong = [
        f"partition {partition}: {before[partition]} was committed, and later"
        f" {after.get(partition, 'nothing')}"
        for before, after in pairwise(looks)
        for partition in before
        if after.get(partition, -1) < before[partition]
    ]
    last = dict(looks[-1]) if looks else {}
    if last != {partition: end for partition, end in ends.items() if end}:
        wrong.append(f"committed in the end: {last}, and the topic ends at {dict(ends)}")
    return wrong


def wrong_copies(copies: Iterable[Stored], stored: Iterable[Stored]) -> list[str]:
    """Each record of the source was copied once, with its bytes."""
    source = {one.place: one.content for one in stored}
    wrong = []
    copied: Counter[Place] = Counter()
    for one in copies:
        if one.source is None or one.source not in source:
            wrong.append(f"{one.place} is a copy of nothing: {one.source}")
            continue
        copied[one.source] += 1
        if source[one.source] != one.content:
            wrong.append(f"{one.place} is not what it is a copy of: {one.source}")
    wrong += [f"{place} was copied {copied[place]} times" for place in source if copied[place] != 1]
    return wrong


def too_few_rebalances(assignments: Mapping[str, Sequence[Sequence[int]]]) -> list[str]:
    """Every member had partitions, and those of most have changed."""
    wrong = [f"{who} never had a partition" for who in assignments if not any(assignments[who])]
    changed = sum(len(had) > 1 for had in assignments.values())
    if changed < min(3, len(assignments)):
        wrong.append(f"only {changed} members have seen a rebalance")
    return wrong
