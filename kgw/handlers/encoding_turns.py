"""Makes and encodes answers with many structures, in several turns of the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kgw.errors import ProtocolError
from kgw.protocol.codec import encode_items
from kgw.protocol.error_codes import error_codes_finder
from kgw.protocol.schema import EncodedItems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kgw.protocol.schema import Response, Struct
    from kgw.turns import StepBudget, Turns
    from kgw.types import Buffer

Item: TypeAlias = "Struct | Inner | EncodedItems | int | Any"
"""A structure; a structure with a long array; encoded structures; or the weight of other work."""

MAX_ANSWER_BYTES: Final = 100_000_000
"""The largest answer that librdkafka accepts by default (its `receive.message.max.bytes`)."""


class Inner(NamedTuple):
    """A structure with an array that may be long: the array is encoded item by item, too."""

    item: Any
    array: str
    items: Iterable[Item]


class AnswerSize:
    """The size of an answer so far: a short request can repeat a large group or topic."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0

    def add(self, pieces: Iterable[Buffer]) -> None:
        """Count encoded bytes. Raises ProtocolError when the answer is too large to send."""
        self.size_bytes += sum(map(len, pieces))
        if self.size_bytes > MAX_ANSWER_BYTES:
            message = f"the answer would be larger than {MAX_ANSWER_BYTES:,} bytes"
            raise ProtocolError(message)


def encode_topics(
    response: type[Response],
    topics: Sequence[Struct],
    partitions_field: str,
    version: int,
    budget: StepBudget,
    size: AnswerSize | None = None,
) -> Turns[Any]:
    """Return topics as an array of a response; the partitions of a topic are encoded first.

    Both arrays must be declared with `may_be_encoded`. `size` counts the partitions.
    """
    for topic in topics:
        partitions = getattr(topic, partitions_field)
        if not isinstance(partitions, EncodedItems):
            encoded = yield from encode_in_turns(response, partitions, version, budget, size=size)
            setattr(topic, partitions_field, encoded)
        if budget.spend():
            yield
    topics_encoded = yield from encode_in_turns(response, topics, version, budget)
    return topics_encoded


def encode_in_turns(
    response: type[Response],
    items: Iterable[Item],
    version: int,
    budget: StepBudget,
    weigh: Callable[[Any], int] = lambda _: 1,
    size: AnswerSize | None = None,
) -> Turns[Any]:
    """Return `items` as an array of a response, which must be declared with `may_be_encoded`.

    The items are taken from the iterator, and so made, one by one. A turn of the loop ends when
    their weights have used up `budget`. A number is the weight of work that made no item. Raises
    EncodeError and any other error of encoding; with a `size`, errors of `AnswerSize.add`.
    """
    count = 0
    pieces: list[Buffer] = []
    codes: list[int] = []
    some: list[Any] = []
    size_bytes = 0 if size is None else size.size_bytes

    def encode() -> None:
        nonlocal count, size_bytes
        if not some:
            return
        item_type: type[Struct] = type(some[0])
        encoded = encode_items(response, item_type, version)(some)
        if size is not None:
            # The arrays inside them have been counted already; these bytes contain them, too.
            size.size_bytes = size_bytes
            size.add(encoded)
            size_bytes = size.size_bytes
        pieces.extend(encoded)
        codes.extend(error_codes_finder(item_type, version)(some))
        count += len(some)
        some.clear()

    for item in items:
        if item.__class__ is int:
            weight = item
        elif item.__class__ is EncodedItems:
            encode()
            if size is not None:
                size.add(item.pieces)
                size_bytes = size.size_bytes
            pieces.extend(item.pieces)
            codes.extend(item.error_codes)
            count += len(item)
            weight = weigh(item)
        else:
            if item.__class__ is Inner:
                item, array, inner = item  # noqa: PLW2901 - what it stands for
                encoded = yield from encode_in_turns(response, inner, version, budget, size=size)
                setattr(item, array, encoded)
            some.append(item)
            weight = weigh(item)
        if budget.spend(weight):
            encode()
            yield
    encode()
    return EncodedItems(count, pieces, codes)
