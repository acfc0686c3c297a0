"""Requests that ask something of many partitions: each named once, answered some at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kgw.handlers.encoding_turns import encode_topics
from kgw.turns import Share, shares, take_turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from kgw.handlers.context import RequestContext
    from kgw.protocol.schema import Response
    from kgw.turns import Turns

ENCODED_PER_TURN = 1_000


async def answer_places(
    request: Any,
    context: RequestContext,
    response_type: type[Response],
    topic_type: type[Any],
    partitions_per_turn: int,
    answer: Callable[[str, Sequence[Any], Counter[tuple[str, int]]], Awaitable[list[Any]]],
    *,
    are_side_by_side: bool = False,
) -> Any:
    """Return the topics of a response, with the answers for all partitions that a request names.

    `answer` is given a topic's name, some of its partitions, and how often the request names each
    partition. Of one that is named twice it is given the last. Those of one turn of the loop are
    answered side by side; where `are_side_by_side` says so, those of later turns as well, so that
    these do not wait for what hangs.
    """
    queue = context.gateway.answer_turns
    counts = await take_turns(_count(request.topics, Share(ENCODED_PER_TURN)), queue)
    wanted = request.topics
    places = sum(counts.values())
    if len(counts) < places or len({name for name, _ in counts}) < len(wanted):
        wanted = await take_turns(named_once(wanted, Share(ENCODED_PER_TURN)), queue)
    topics: list[Any] = []
    turns = [*shares((len(one.partitions) for one in wanted), partitions_per_turn)]

    async def answers_of(turn: Sequence[tuple[int, int, int]]) -> list[list[Any]]:
        work = [
            answer(wanted[position].name, wanted[position].partitions[start:end], counts)
            for position, start, end in turn
        ]
        # One topic, the usual request, needs no task.
        return [await work[0]] if len(work) == 1 else await asyncio.gather(*work)

    begun: list[asyncio.Task[list[list[Any]]]] = []
    try:
        if are_side_by_side and len(turns) > 1:
            for turn in turns:
                begun.append(asyncio.create_task(answers_of(turn)))
                await asyncio.sleep(0)
        for number, turn in enumerate(turns):
            if number:
                await asyncio.sleep(0)
            answers = await (begun[number] if begun else answers_of(turn))
            for (position, start, _), found in zip(turn, answers, strict=True):
                if not start:
                    topics.append(topic_type(name=wanted[position].name))
                topics[position].partitions += found
    finally:
        for one in begun:
            one.cancel()
    encoding = encode_topics(
        response_type, topics, "partitions", context.api_version, Share(ENCODED_PER_TURN)
    )
    return await take_turns(encoding, queue)


def named_once(
    topics: Sequence[Any], share: Share, index: str = "partition_index"
) -> Turns[list[Any]]:
    """Return each topic that has partitions once, and each partition of it once, as Kafka does.

    What a request says last of a partition counts. `index` is where a partition has its number; ""
    where it is one. Hardly any request needs it: a client names them once.
    """
    number = attrgetter(index) if index else int
    places: dict[str, dict[int, Any]] = {}
    for topic in topics:
        for place in topic.partitions:
            places.setdefault(topic.name, {})[number(place)] = place
            if share.spend():
                yield
        if share.spend():
            yield
    return [
        type(topics[0])(name=name, partitions=[*found.values()]) for name, found in places.items()
    ]


def _count(topics: Iterable[Any], share: Share) -> Turns[Counter[tuple[str, int]]]:
    """Return how often each partition is named, by topic and index."""
    counts: Counter[tuple[str, int]] = Counter()
    for topic in topics:
        for place in topic.partitions:
            counts[topic.name, place.partition_index] += 1
            if share.spend():
                yield
        if share.spend():
            yield
    return counts
