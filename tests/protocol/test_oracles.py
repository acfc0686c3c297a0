"""Bytes in both directions against two codecs that share nothing with ours."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.protocol.codec import codec
from kgw.protocol.messages import share_fetch
from tests.protocol import kafka_python, kio_codec
from tests.protocol.definitions import versions
from tests.protocol.random_messages import all_messages, all_versions, random_message

# A tenth of the profile's examples for each message, each in all of its versions.
EXAMPLES = settings(max_examples=max(5, settings().max_examples // 10), deadline=None)
SEEDS = st.integers(0, 2**64 - 1)

_KAFKA_PYTHON = kafka_python.definitions()

# Neither oracle has early access of share groups, nor delegation tokens from before Kafka 4; these
# versions have the layout of the one after them (test_kafka_jars.py knows the definitions).
_SAME_LAYOUT_AS_VERSION_1 = frozenset(
    f"{name}{suffix}"
    for name in (
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
        "ShareGroupHeartbeat",
        "ShareGroupDescribe",
        "ShareAcknowledge",
    )
    for suffix in ("Request", "Response")
)
_GOLDEN = frozenset({("ShareFetchRequest", 0), ("ShareFetchResponse", 0)})


def _by_kio(message: Any, version: int) -> bool:
    return kio_codec.entity(message, version) is not None


def _by_kafka_python(message: Any, version: int) -> bool:
    definition = _KAFKA_PYTHON.get(message.__name__)
    return definition is not None and version < versions(definition).stop


@pytest.mark.slow
def test_every_message_and_version_is_covered() -> None:
    """Each (message, version) is compared with kio, kafka-python or a golden frame."""
    pairs = list(all_versions())
    by_kio = {
        (message.__name__, version) for message, version in pairs if _by_kio(message, version)
    }
    by_kafka_python = {
        (message.__name__, version)
        for message, version in pairs
        if _by_kafka_python(message, version)
    }
    assert (614, 552, 532) == (len(pairs), len(by_kio), len(by_kafka_python))
    rest = {(message.__name__, version) for message, version in pairs} - by_kio - by_kafka_python
    assert rest - _GOLDEN == {(name, 0) for name in _SAME_LAYOUT_AS_VERSION_1}
    assert rest >= _GOLDEN


@pytest.mark.slow
@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.__name__)
@EXAMPLES
@given(seed=SEEDS)
def test_bytes_agree_with_kio(message: Any, seed: int) -> None:
    """Kio decodes what we encode, to the same values, and encodes them to the same bytes."""
    first, last = message.valid_versions
    for version in range(first, last + 1):
        entity = kio_codec.entity(message, version)
        if entity is None:
            continue
        theirs = _kio(entity)
        value = random_message(message, version, Random(seed))
        kio_codec.limit_times(value, entity, version)
        encoded = codec(message, version).encode(value)
        decoded, left = theirs.decode(encoded)
        assert 0 == left
        assert kio_codec.plain_message(value, entity, version) == kio_codec.plain(decoded)
        assert encoded == theirs.encode(decoded)


@pytest.mark.slow
@pytest.mark.parametrize(
    "message",
    [message for message in all_messages() if _by_kafka_python(message, 0)],
    ids=lambda message: message.__name__,
)
@EXAMPLES
@given(seed=SEEDS)
def test_bytes_agree_with_kafka_python(message: Any, seed: int) -> None:
    """kafka-python encodes the same values to the same bytes, and decodes them to the same."""
    theirs = kafka_python.Codec(_KAFKA_PYTHON[message.__name__])
    first, last = message.valid_versions
    for version in range(first, last + 1):
        if not _by_kafka_python(message, version):
            continue
        ours = codec(message, version)
        value = random_message(message, version, Random(seed))
        encoded = theirs.encode(value, version)
        assert encoded == ours.encode(value)
        assert value == ours.decode(encoded)
        assert (theirs.as_dictionary(value, version), 0) == theirs.decode(encoded, version)


@pytest.mark.parametrize(
    "message",
    [message for message in all_messages() if message.__name__ in _SAME_LAYOUT_AS_VERSION_1],
    ids=lambda message: message.__name__,
)
@EXAMPLES
@given(seed=SEEDS)
def test_first_versions_that_equal_the_second(message: Any, seed: int) -> None:
    """Version 0 of what neither oracle has in that version is encoded like version 1."""
    value = random_message(message, 0, Random(seed))
    assert codec(message, 1).encode(value) == codec(message, 0).encode(value)


def test_share_fetch_request_of_early_access() -> None:
    """ShareFetch version 0 has a byte limit for each partition and no limits in records."""
    request = share_fetch.ShareFetchRequest(
        group_id="g",
        member_id=None,
        share_session_epoch=1,
        max_wait_ms=2,
        min_bytes=3,
        max_bytes=4,
        topics=[
            share_fetch.FetchTopic(
                topic_id=b"t" * 16,
                partitions=[share_fetch.FetchPartition(partition_index=5, partition_max_bytes=6)],
            )
        ],
    )
    expected = (
        b"\x02g\x00"
        b"\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04"
        b"\x02" + b"t" * 16 + b"\x02\x00\x00\x00\x05\x00\x00\x00\x06\x01\x00\x00\x01\x00"
    )
    assert expected == codec(share_fetch.ShareFetchRequest, 0).encode(request)
    assert request == codec(share_fetch.ShareFetchRequest, 0).decode(expected)


def test_share_fetch_response_of_early_access() -> None:
    """ShareFetch version 0 answers without the duration of locks."""
    response = share_fetch.ShareFetchResponse(
        throttle_time_ms=1,
        error_code=2,
        responses=[
            share_fetch.ShareFetchableTopicResponse(
                topic_id=b"t" * 16,
                partitions=[
                    share_fetch.PartitionData(
                        partition_index=3,
                        current_leader=share_fetch.LeaderIdAndEpoch(leader_id=4, leader_epoch=5),
                        records=b"rr",
                    )
                ],
            )
        ],
    )
    expected = (
        b"\x00\x00\x00\x01\x00\x02\x00\x02"
        + b"t" * 16
        + b"\x02\x00\x00\x00\x03\x00\x00\x00\x00\x00"
        b"\x00\x00\x00\x00\x04\x00\x00\x00\x05\x00\x03rr\x01\x00\x00\x01\x00"
    )
    assert expected == codec(share_fetch.ShareFetchResponse, 0).encode(response)
    assert response == codec(share_fetch.ShareFetchResponse, 0).decode(expected)


_KIO_CODECS: dict[Any, kio_codec.Codec] = {}


def _kio(entity: Any) -> kio_codec.Codec:
    if entity not in _KIO_CODECS:
        _KIO_CODECS[entity] = kio_codec.Codec(entity)
    return _KIO_CODECS[entity]
