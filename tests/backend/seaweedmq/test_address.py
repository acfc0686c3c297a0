from __future__ import annotations

import pytest

from kgw.backend.seaweedmq.address import SeaweedMqAddress, parse_address
from kgw.backend.seaweedmq.channel.options import grpc_target
from kgw.config import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seaweedmq://filer:8888/kafka", SeaweedMqAddress("filer", 8888, "kafka")),
        ("seaweedmq://filer/kafka/", SeaweedMqAddress("filer", 8888, "kafka")),
        ("seaweedmq://[::1]:18888/a_b.c-d", SeaweedMqAddress("::1", 18888, "a_b.c-d")),
        ("seaweedmq://[FE80::1]/kafka", SeaweedMqAddress("fe80::1", 8888, "kafka")),
        ("seaweedmq://filer:8888.18888/kafka", SeaweedMqAddress("filer", 8888, "kafka")),
    ],
)
def test_addresses(text: str, expected: SeaweedMqAddress) -> None:
    """One filer, its port unless it is the usual one, and a namespace."""
    assert expected == parse_address(text)
    assert expected == parse_address(str(expected))
    assert str(expected.port + 10_000) == grpc_target(expected.filer).rpartition(":")[2]


@pytest.mark.parametrize(
    ("text", "expected", "target"),
    [
        (
            "seaweedmq://filer:8888.9999/kafka",
            SeaweedMqAddress("filer", 8888, "kafka", 9999),
            "filer:9999",
        ),
        (
            "seaweedmq://10.0.0.1:60000.7/kafka",
            SeaweedMqAddress("10.0.0.1", 60000, "kafka", 7),
            "10.0.0.1:7",
        ),
        (
            "seaweedmq://[::1]:8888.9999/kafka",
            SeaweedMqAddress("::1", 8888, "kafka", 9999),
            "[::1]:9999",
        ),
    ],
)
def test_an_address_may_name_the_port_of_grpc(
    text: str, expected: SeaweedMqAddress, target: str
) -> None:
    """As SeaweedFS writes it, for a filer that was told another one than it derives."""
    assert expected == parse_address(text)
    assert text == str(parse_address(text))
    assert target == grpc_target(expected.filer)


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
        ("seaweedmq://filer:60000/kafka", r"FILER:PORT\.GRPCPORT"),
        ("seaweedmq://filer:8888./kafka", r"'8888\.' is not PORT\.GRPCPORT"),
        ("seaweedmq://filer:8888.x/kafka", r"is not PORT\.GRPCPORT"),
        ("seaweedmq://filer:.18888/kafka", r"is not PORT\.GRPCPORT"),
        ("seaweedmq://filer:8888.0/kafka", r"is not PORT\.GRPCPORT"),
        ("seaweedmq://filer:8888.65536/kafka", r"is not PORT\.GRPCPORT"),
        ("seaweedmq://filer:65536.18888/kafka", r"is not PORT\.GRPCPORT"),
        ("seaweedmq://filer:8888.1.2/kafka", r"is not PORT\.GRPCPORT"),
        ("seaweedmq://filer:-1/kafka", "1 to 55535"),
        ("seaweedmq://::1:8888/kafka", "needs brackets"),
        ("seaweedmq://[]:8888/kafka", "."),
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
