from __future__ import annotations

import pytest

from kgw.backend.seaweedmq.address import SeaweedMqAddress, parse_address
from kgw.config import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seaweedmq://filer:8888/kafka", SeaweedMqAddress("filer", 8888, "kafka")),
        ("seaweedmq://filer/kafka/", SeaweedMqAddress("filer", 8888, "kafka")),
        ("seaweedmq://[::1]:18888/a_b.c-d", SeaweedMqAddress("::1", 18888, "a_b.c-d")),
    ],
)
def test_addresses(text: str, expected: SeaweedMqAddress) -> None:
    """One filer, its port unless it is the usual one, and a namespace."""
    assert expected == parse_address(text)
    assert expected == parse_address(str(expected))
    assert expected.port + 10_000 == expected.grpc_port


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("seaweedmq://a:8888,b:8888/kafka", "more than one filer"),
        ("seaweedmq://filer:8888", "namespace is missing"),
        ("seaweedmq://filer:8888/", "namespace is missing"),
        ("seaweedmq:///kafka", "host is missing"),
        ("seaweedmq:filer", "host is missing"),
        ("seaweedmq://filer:x/kafka", "[Pp]ort"),
        ("seaweedmq://filer:60000/kafka", "1 to 55535"),
        ("seaweedmq://filer:0/kafka", "1 to 55535"),
        ("seaweedmq://filer:8888/.kgw", "begin with a dot"),
        ("seaweedmq://filer:8888/.system", "begin with a dot"),
        ("seaweedmq://filer:8888/a/b", "directory's name"),
        ("seaweedmq://filer:8888/..", "begin with a dot"),
        ("seaweedmq://filer:8888/a%20b", "directory's name"),
        ("seaweedmq://me@filer:8888/kafka", "neither a user"),
        ("seaweedmq://filer:8888/kafka?x=1", "neither a user"),
        ("http://filer:8888/kafka", "is expected"),
        ("seaweedmq://[::1/kafka", "is expected"),
    ],
)
def test_what_is_no_address_is_refused(text: str, complaint: str) -> None:
    """With the setting, what was given, and what is wrong with it."""
    with pytest.raises(ConfigError, match=complaint) as refused:
        parse_address(text)
    assert f"kgw.backend={text}: " in str(refused.value)
