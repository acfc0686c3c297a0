"""Answers of many parts, made and encoded a turn at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.protocol.codec import encode_items
from kgw.protocol.schema import EncodedItems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kgw.protocol.schema import Response, Struct
    from kgw.turns import Share, Turns
    from kgw.types import Buffer


def encode_topics(
    response: type[Response],
    topics: Sequence[Struct],
    partitions_field: str,
    version: int,
    share: Share,
) -> Turns[Any]:
    """Return topics as an array of a response, the partitions of each encoded before it.

    Both arrays were declared with `may_be_encoded`.
    """
    for topic in topics:
        partitions = getattr(topic, partitions_field)
        if not isinstance(partitions, EncodedItems):
            encoded = yield from encode_in_turns(response, partitions, version, share)
            setattr(topic, partitions_field, encoded)
        if share.spend():
            yield
    topics_encoded = yield from encode_in_turns(response, topics, version, share)
    return topics_encoded


def encode_in_turns(
    response: type[Response],
    items: Iterable[Struct],
    version: int,
    share: Share,
    weigh: Callable[[Any], int] = lambda _: 1,
) -> Turns[Any]:
    """Return `items` as an array of a response that was declared with `may_be_encoded`.

    They are taken, and so made, one by one; a turn ends when their weights have used the share up.
    Raises EncodeError and what else encoding raises.
    """
    count = 0
    pieces: list[Buffer] = []
    some: list[Struct] = []
    for item in items:
        some.append(item)
        if share.spend(weigh(item)):
            pieces += encode_items(response, type(item), version)(some)
            count += len(some)
            some.clear()
            yield
    if some:
        pieces += encode_items(response, type(some[0]), version)(some)
    return EncodedItems(count + len(some), pieces)
