"""Bytes in both directions against two codecs that share nothing with ours."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.protocol.codec import codec
from tests.protocol import kafka_python, kio_codec
from tests.protocol.definitions import versions
from tests.protocol.random_messages import all_messages, all_versions, random_message

# A tenth of the profile's examples for each message, each in all of its versions.
EXAMPLES = settings(max_examples=max(5, settings().max_examples // 10), deadline=None)
SEEDS = st.integers(0, 2**64 - 1)

_KAFKA_PYTHON = kafka_python.definitions()
_kio = cache(kio_codec.Codec)


def _by_kio(message: Any, version: int) -> bool:
    return kio_codec.entity(message, version) is not None


def _by_kafka_python(message: Any, version: int) -> bool:
    definition = _KAFKA_PYTHON.get(message.__name__)
    return definition is not None and version < versions(definition).stop


@pytest.mark.slow
def test_how_much_the_oracles_cover() -> None:
    """No (message, version) drops out unnoticed; test_kafka_jars.py has those that both lack.

    They are early access of share groups, and delegation tokens from before Kafka 4.
    """
    by_kio = {pair for pair in all_versions() if _by_kio(*pair)}
    by_kafka_python = {pair for pair in all_versions() if _by_kafka_python(*pair)}
    covered = by_kio | by_kafka_python
    assert (544, 532, 590) == (len(by_kio), len(by_kafka_python), len(covered))


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
