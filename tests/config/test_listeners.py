from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.config import Config, ConfigError, Listener, parse_address, parse_listener
from kgw.config.listeners import (
    check_listeners,
    check_protocol_map,
    is_loopback,
    parse_admin_listener,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", ("localhost", 9092)),
        (":0", ("", 0)),
        ("[::1]:9092", ("::1", 9092)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    """Host and port lie round the last colon, with brackets round an IPv6 address."""
    assert expected == parse_address(text)


@pytest.mark.parametrize(
    "text",
    ["localhost", "a:65536", "a:-1", "a:b", "::1:9092", "[::1]9092", "::1]:9092", "a b:1", "a/b:1"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """Anything but HOST:PORT is refused with the text in the message."""
    with pytest.raises(ValueError, match=r".+"):
        parse_address(text)


@pytest.mark.parametrize("default_port", [None, 9092])
def test_a_port_alone_is_no_host(default_port: int | None) -> None:
    """A number alone is a port whose host is missing, also where a port may be left out."""
    with pytest.raises(ValueError, match=r"'9093' has no host; .* as '127\.0\.0\.1:9093'"):
        parse_address("9093", default_port=default_port)


def test_a_missing_port_may_have_a_default() -> None:
    """Commands let the port of a server be left out."""
    assert ("localhost", 9092) == parse_address("localhost", default_port=9092)
    assert ("::1", 9092) == parse_address("[::1]", default_port=9092)


@given(st.sampled_from(["", "localhost", "10.0.0.1", "::1", "fe80::1"]), st.integers(0, 65_535))
def test_listeners_survive_their_text_form(host: str, port: int) -> None:
    """Formatting and parsing a listener gives the same listener."""
    listener = Listener("INTERNAL", host, port)
    assert listener == parse_listener(str(listener))


def test_a_nameless_listener_is_plaintext() -> None:
    """HOST:PORT alone is a PLAINTEXT listener, and names are in capitals."""
    assert Listener("PLAINTEXT", "a", 1) == parse_listener("a:1")
    assert Listener("INTERNAL", "a", 1) == parse_listener("internal://a:1")


@pytest.mark.parametrize("name", ["SSL", "SASL_SSL", "SASL_PLAINTEXT", "ssl"])
def test_names_that_promise_protection_are_refused(name: str) -> None:
    """A listener that is called SSL does not serve plain text."""
    with pytest.raises(ValueError, match="not served yet"):
        parse_listener(f"{name}://a:1")


def test_listener_names_are_unique() -> None:
    """Two listeners of one name could not be told apart when one is advertised."""
    with pytest.raises(ValueError, match="two listeners are called A"):
        check_listeners(("A://a:1", "A://a:2"))


def test_only_plaintext_can_be_mapped() -> None:
    """The protocol map is taken when it says what is done."""
    check_protocol_map(("INTERNAL:PLAINTEXT", "B:plaintext"))
    with pytest.raises(ValueError, match="SSL is not served yet"):
        check_protocol_map(("INTERNAL:SSL",))
    with pytest.raises(ValueError, match="NAME:PROTOCOL"):
        check_protocol_map(("INTERNAL",))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.255.0.9", "::1"])
def test_this_machine_alone(host: str) -> None:
    """Names and addresses that no other machine can reach."""
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.example", "::ffff:10.0.0.1"]
)
def test_reachable_from_elsewhere(host: str) -> None:
    """Anything else might be, and is an admin listener only where there is a token."""
    assert not is_loopback(host)
    listener = f"[{host}]:1" if ":" in host else f"{host}:1"
    with pytest.raises(ConfigError, match=r"loopback .* kgw\.admin\.token\.file"):
        Config.of(admin_listeners=(listener,))
    config = Config.of(admin_listeners=(listener,), admin_token_file="token")
    assert [Listener("ADMIN", host, 1)] == config.bound_admin_listeners


def test_admin_listeners() -> None:
    """An address with a port, with or without the scheme that people copy along."""
    expected = Listener("ADMIN", "127.0.0.1", 9644)
    assert expected == parse_admin_listener("127.0.0.1:9644")
    assert expected == parse_admin_listener("http://127.0.0.1:9644")
