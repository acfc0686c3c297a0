from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.config import Config, ConfigError, Listener, parse_address, parse_listener
from kgw.config.listeners import (
    SecurityProtocol,
    check_listeners,
    http_address,
    is_https,
    is_loopback,
    parse_admin_listener,
    parse_agent_listener,
    parse_protocol_map,
    security_protocol,
)

if TYPE_CHECKING:
    from collections.abc import Callable


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


def test_listener_names_are_unique() -> None:
    """Two listeners of one name could not be told apart when one is advertised."""
    with pytest.raises(ValueError, match="two listeners are called A"):
        check_listeners(("A://a:1", "A://a:2"))


def test_a_protocol_map() -> None:
    """Names and protocols may be in small letters; each name has one protocol."""
    assert {
        "INTERNAL": SecurityProtocol.PLAINTEXT,
        "B": SecurityProtocol.SASL_SSL,
    } == parse_protocol_map(("INTERNAL:PLAINTEXT", "b: sasl_ssl"))


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("INTERNAL", "NAME:PROTOCOL"),
        (":SSL", "NAME:PROTOCOL"),
        ("A:TLS", "'TLS' is no security protocol"),
    ],
)
def test_a_wrong_item_of_a_protocol_map(item: str, problem: str) -> None:
    """An item is NAME:PROTOCOL, with a protocol of Kafka."""
    with pytest.raises(ConfigError, match=problem):
        Config.of(listener_security_protocol_map=(item,))


def test_a_name_is_mapped_once() -> None:
    """Of two protocols for one listener neither would be certain."""
    with pytest.raises(ConfigError, match="A is mapped twice"):
        Config.of(listener_security_protocol_map=("A:SSL", "a:PLAINTEXT"))


@pytest.mark.parametrize("protocol", SecurityProtocol)
def test_a_listener_speaks_what_its_name_says(protocol: SecurityProtocol) -> None:
    """A listener that is named as a protocol needs no map."""
    assert protocol is security_protocol(protocol.value, {})


def test_a_map_goes_before_a_name() -> None:
    """As in Kafka, where the map has the four protocols by default and may say otherwise."""
    mapped = {"SSL": SecurityProtocol.SASL_SSL, "INTERNAL": SecurityProtocol.SSL}
    assert SecurityProtocol.SASL_SSL is security_protocol("SSL", mapped)
    assert SecurityProtocol.SSL is security_protocol("INTERNAL", mapped)


def test_beside_a_mapped_name_every_name_is_mapped() -> None:
    """As in Kafka; with an empty map a name such as HOST is plain text."""
    with pytest.raises(ValueError, match="listener OTHER is no security protocol"):
        security_protocol("OTHER", {"INTERNAL": SecurityProtocol.SSL})
    assert SecurityProtocol.PLAINTEXT is security_protocol("OTHER", {})
    assert SecurityProtocol.PLAINTEXT is security_protocol(
        "PLAINTEXT_2", {"INTERNAL": SecurityProtocol.SSL}
    )


def test_a_mapped_name_is_a_listener() -> None:
    """A slip in the map does not leave its listener open; Kafka's own names are taken."""
    with pytest.raises(ConfigError, match=r"INTERNL is mapped.*did you mean INTERNAL\?"):
        Config.of(
            listeners=("INTERNAL://127.0.0.1:1",),
            listener_security_protocol_map=("INTERNL:SASL_SSL", "INTERNAL:PLAINTEXT"),
        )
    Config.of(listener_security_protocol_map=("CONTROLLER:PLAINTEXT", "SSL:SSL"))


@pytest.mark.parametrize(
    "name",
    ["SASLSSL", "MY_SSL", "TLS", "SASL", "SALS_PLAINTEXT", "SAS_PLAINTEXT", "SECURE", "SSSL"],
)
def test_a_name_that_promises_protection_is_mapped(name: str) -> None:
    """A mistyped protocol does not become plain text."""
    with pytest.raises(ConfigError, match=rf"{name} is no security protocol.*as in {name}:"):
        Config.of(listeners=(f"{name}://127.0.0.1:1",))
    Config.of(
        listeners=(f"{name}://127.0.0.1:1",), listener_security_protocol_map=(f"{name}:PLAINTEXT",)
    )


@pytest.mark.parametrize("name", ["SSL", "SASL_SSL"])
def test_tls_needs_a_key(name: str) -> None:
    """A listener with TLS and without a key is refused before the start."""
    with pytest.raises(ConfigError, match=rf"{name} is {name}: ssl\.keystore\.location"):
        Config.of(listeners=(f"{name}://127.0.0.1:1",))


def test_plain_needs_tls_or_a_word() -> None:
    """Nobody sends passwords in the clear without having said so."""
    listeners = ("SASL_PLAINTEXT://127.0.0.1:1",)
    with pytest.raises(ConfigError, match=r"kgw\.sasl\.plain\.without\.tls=true"):
        Config.of(listeners=listeners, sasl_enabled_mechanisms=("PLAIN",))
    Config.of(listeners=listeners, sasl_enabled_mechanisms=("PLAIN",), sasl_plain_without_tls=True)
    Config.of(listeners=listeners)


ELSEWHERE = ["", "0.0.0.0", "::", "10.0.0.1", "example.org"]


@pytest.mark.parametrize("host", ELSEWHERE)
def test_a_listener_without_a_login_needs_a_word(host: str) -> None:
    """A listener that serves everybody is reached by this machine alone, or somebody said so."""
    address = f"[{host}]:9092" if ":" in host else f"{host}:9092"
    for listeners in (
        (f"PLAINTEXT://{address}",),
        (f"NETWORK://{address}",),
        ("HOST://127.0.0.1:1", f"NETWORK://{address}"),
        (f"SASL_PLAINTEXT://{address}", f"PLAINTEXT_2://{address}"),
    ):
        named = re.escape(listeners[-1])
        with pytest.raises(ConfigError, match=rf"{named}: .*kgw\.listeners\.without\.login=true"):
            Config.of(listeners=listeners)
        Config.of(listeners=listeners, listeners_without_login=True)


@pytest.mark.parametrize("host", ELSEWHERE)
@pytest.mark.parametrize("client_auth", ["none", "requested", "required"])
def test_tls_alone_asks_nobody(host: str, client_auth: str) -> None:
    """Encryption is no login: a client must show a certificate, or somebody said otherwise."""
    address = f"[{host}]:9093" if ":" in host else f"{host}:9093"
    settings: dict[str, Any] = {
        "listeners": (f"SSL://{address}",),
        "ssl_keystore_location": "server.pem",
        "ssl_client_auth": client_auth,
    }
    if client_auth == "required":
        Config.of(**settings)
        return
    with pytest.raises(ConfigError, match=r"kgw\.listeners\.without\.login=true"):
        Config.of(**settings)
    Config.of(**settings, listeners_without_login=True)


@pytest.mark.parametrize(
    "settings",
    [
        {"listeners": ("PLAINTEXT://:9092",), "super_users": "User:admin"},
        {"listeners": ("SASL_PLAINTEXT://:9092",)},
        {"listeners": ("SASL_SSL://:9092",), "ssl_keystore_location": "server.pem"},
        {"listeners": ("PLAINTEXT://127.0.0.1:1", "A://[::1]:2", "B://localhost:3")},
    ],
)
def test_a_listener_that_asks_needs_no_word(settings: dict[str, Any]) -> None:
    """A login or access rules protect a listener; nobody else reaches a loopback address."""
    Config.of(**settings)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "oauthbearer", "scram-sha-256", "CRAM"])
def test_a_mechanism_that_is_not_served_is_refused_by_name(mechanism: str) -> None:
    """Kerberos is refused by its name, as is a mechanism that does not exist."""
    with pytest.raises(ConfigError, match=f"{mechanism} is refused: "):
        Config.of(sasl_enabled_mechanisms=(mechanism,))


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
    assert not is_https(expected)


@pytest.mark.parametrize("parse", [parse_admin_listener, parse_agent_listener])
def test_listeners_with_tls(parse: Callable[[str], Listener]) -> None:
    """`https://` asks for TLS; nothing that only looks like it is plain text by accident."""
    listener = parse("https://[::1]:9644")
    assert ("::1", 9644, True) == (*listener[1:], is_https(listener))
    assert "https://[::1]:9644" == http_address(listener, "")
    everywhere = parse("https://:0")
    assert "https://0.0.0.0:0" == http_address(everywhere, "0.0.0.0")
    for text in ("HTTPS://h:1", "https:/h:1", "https//h:1", "tls://h:1", "https://https://h:1"):
        with pytest.raises(ValueError, match="h:1"):
            parse(text)
