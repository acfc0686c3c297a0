"""The topics and partitions in requests, and responses in which some of them are refused.

Pure: makes new messages from given ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class TopicFields(NamedTuple):
    """The names of the fields with topics and partitions, in one API.

    An empty name means that the API has no such field.
    """

    topics: str
    name: str
    partitions: str = ""
    partition: str = ""
    answered_topics: str = "topics"
    answered_partitions: str = "partitions"


TOPIC_FIELDS = {
    ApiKey.PRODUCE: TopicFields(
        "topic_data", "name", "partition_data", "index", "responses", "partition_responses"
    ),
    ApiKey.FETCH: TopicFields("topics", "topic", "partitions", "partition", "responses"),
    ApiKey.LIST_OFFSETS: TopicFields("topics", "name", "partitions", "partition_index"),
    ApiKey.METADATA: TopicFields("topics", "name"),
    ApiKey.OFFSET_COMMIT: TopicFields("topics", "name", "partitions", "partition_index"),
    ApiKey.CREATE_TOPICS: TopicFields("topics", "name"),
    ApiKey.DELETE_RECORDS: TopicFields("topics", "name", "partitions", "partition_index"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: TopicFields("topics", "topic", "partitions", "partition"),
    ApiKey.TXN_OFFSET_COMMIT: TopicFields("topics", "name", "partitions", "partition_index"),
    ApiKey.CREATE_PARTITIONS: TopicFields("topics", "name", answered_topics="results"),
}
"""The APIs with faults for single topics: a request that also names other topics is handled for
those."""


def places(
    request: Any, fields: TopicFields, name_of: Callable[[bytes], str]
) -> Iterator[tuple[str, int | None]]:
    """Yield each topic of a request, with each of its partitions if the request names partitions.

    `name_of` returns a topic's name for its id.
    """
    for topic in getattr(request, fields.topics) or ():
        name = topic_name(topic, fields, name_of)
        if not fields.partitions:
            yield name, None
            continue
        for place in getattr(topic, fields.partitions):
            yield name, getattr(place, fields.partition)


def topic_name(topic: Any, fields: TopicFields, name_of: Callable[[bytes], str]) -> str:
    """Return the name of a topic in a request."""
    return getattr(topic, fields.name) or name_of(getattr(topic, "topic_id", b""))


def split(
    request: Any,
    fields: TopicFields,
    name_of: Callable[[bytes], str],
    is_meant: Callable[[str, int | None], bool],
) -> tuple[Any, Any]:
    """Divide a request: return the part that `is_meant` selects, and the other part."""
    meant: list[Any] = []
    rest: list[Any] = []
    for topic in getattr(request, fields.topics) or ():
        name = topic_name(topic, fields, name_of)
        if not fields.partitions:
            (meant if is_meant(name, None) else rest).append(topic)
            continue
        inside: list[Any] = []
        outside: list[Any] = []
        for place in getattr(topic, fields.partitions):
            (inside if is_meant(name, getattr(place, fields.partition)) else outside).append(place)
        if inside:
            meant.append(with_changes(topic, **{fields.partitions: inside}))
        if outside:
            rest.append(with_changes(topic, **{fields.partitions: outside}))
    return with_changes(request, **{fields.topics: meant}), with_changes(
        request, **{fields.topics: rest}
    )


def merge(answer: Any, refusal: Any, fields: TopicFields) -> Any:
    """Add the refused topics and partitions to a response."""
    topics = getattr(answer, fields.answered_topics)
    for refused in getattr(refusal, fields.answered_topics):
        same = [one for one in topics if _identity(one) == _identity(refused)]
        if same and fields.partitions:
            own = getattr(same[0], fields.answered_partitions)
            own.extend(getattr(refused, fields.answered_partitions))
        else:
            topics.append(refused)
    return answer


def _identity(topic: Any) -> tuple[object, ...]:
    return tuple(getattr(topic, name, None) for name in ("name", "topic", "topic_id"))


def with_changes(message: Any, **changes: Any) -> Any:
    """Return a copy of a message, or of a part of a message, with some fields changed."""
    own = {name: getattr(message, name) for name in type(message).field_table}
    return type(message)(**{**own, **changes})
