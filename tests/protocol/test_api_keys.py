"""API keys and the classes behind them."""

from __future__ import annotations

import pytest

from kgw.protocol.api_keys import MESSAGE_KEYS, ApiKey
from kgw.protocol.codec import request_class, response_class


def test_keys_are_kafkas() -> None:
    """All keys from 0 to 94 have a name; 72 of them are for clients."""
    assert list(range(95)) == [int(key) for key in ApiKey]
    assert 72 == len(MESSAGE_KEYS)
    assert (18, 68, 92) == (
        ApiKey.API_VERSIONS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    )


def test_classes_by_key() -> None:
    """Each key leads to its request and response."""
    assert "OffsetForLeaderEpochRequest" == request_class(23).__name__
    assert "OffsetForLeaderEpochResponse" == response_class(ApiKey.OFFSET_FOR_LEADER_EPOCH).__name__


@pytest.mark.parametrize("api_key", [4, 52, 95, -1])
def test_keys_that_are_not_for_clients(api_key: int) -> None:
    """Keys between brokers, and unknown ones, have no classes."""
    with pytest.raises(KeyError):
        request_class(api_key)
    with pytest.raises(KeyError):
        response_class(api_key)
