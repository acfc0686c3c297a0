from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import request_class, response_class
from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kgw.testing.topic_fields import TOPIC_FIELDS, merge, places, split

OFFSET_COMMIT = TOPIC_FIELDS[ApiKey.OFFSET_COMMIT]


def commit_of(**topics: list[int]) -> OffsetCommitRequest:
    """Return a request that commits in these partitions; topics without a name go by their id."""
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[OffsetCommitRequestPartition(partition_index=one) for one in indexes],
            )
            for name, indexes in topics.items()
        ],
    )


def answer_of(code: int, **topics: list[int]) -> OffsetCommitResponse:
    """Return a response that says the same of these partitions."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=one, error_code=code)
                    for one in indexes
                ],
            )
            for name, indexes in topics.items()
        ]
    )


def test_a_request_is_parted_by_what_is_meant() -> None:
    """Each part is a request of its own; the whole one stays as it was."""
    request = commit_of(a=[0, 1], b=[0])
    meant, rest = split(
        request, OFFSET_COMMIT, lambda _: "", lambda topic, index: (topic, index) == ("a", 1)
    )
    assert (commit_of(a=[1]), commit_of(a=[0], b=[0])) == (meant, rest)
    assert commit_of(a=[0, 1], b=[0]) == request


def test_an_answer_is_completed_by_what_was_refused() -> None:
    """Within the topic where it is there, else as another one."""
    merged = merge(answer_of(0, a=[0]), answer_of(16, a=[1], b=[0]), OFFSET_COMMIT)
    found = {
        (topic.name, one.partition_index): one.error_code
        for topic in merged.topics
        for one in topic.partitions
    }
    assert {("a", 0): 0, ("a", 1): 16, ("b", 0): 16} == found
    assert ["a", "b"] == [topic.name for topic in merged.topics]


def test_topics_are_known_by_name_and_by_id() -> None:
    """And with their partitions where a request names those."""
    by_id = OffsetCommitRequest(
        topics=[
            OffsetCommitRequestTopic(
                topic_id=b"1" * 16, partitions=[OffsetCommitRequestPartition(partition_index=3)]
            )
        ]
    )
    names = {b"1" * 16: "orders"}
    assert [("orders", 3)] == list(places(by_id, OFFSET_COMMIT, names.__getitem__))
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    found = places(metadata, TOPIC_FIELDS[ApiKey.METADATA], names.__getitem__)
    assert [("orders", None)] == list(found)
    assert [] == list(places(MetadataRequest(topics=None), TOPIC_FIELDS[ApiKey.METADATA], str))


def test_every_field_that_is_named_is_one() -> None:
    """Of the request, and of its answer."""
    for key, fields in TOPIC_FIELDS.items():
        topics = request_class(key).field_table[fields.topics].item.field_table
        assert fields.name in topics
        answered = response_class(key).field_table[fields.answered_topics].item.field_table
        if fields.partitions:
            assert fields.partition in topics[fields.partitions].item.field_table
            assert fields.answered_partitions in answered
