"""Campaign A3: set-ups in which anybody could make a token do not start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.config import Config, ConfigError
from kgw.config.config import server_setting

if TYPE_CHECKING:
    from kgw.config import Value

URL = "https://issuer.example/keys"
GOOD: dict[str, Value] = {
    "listeners": ("SASL_SSL://127.0.0.1:9093",),
    "ssl_keystore_location": "server.pem",
    "sasl_enabled_mechanisms": ("OAUTHBEARER",),
    "sasl_oauthbearer_jwks_endpoint_url": URL,
    "sasl_oauthbearer_expected_audience": ("kafka",),
    "sasl_oauthbearer_expected_issuer": "https://issuer.example",
}
IN_CLEAR = {"listeners": ("SASL_PLAINTEXT://127.0.0.1:9093",)}
LOOPBACK = {"sasl_oauthbearer_jwks_endpoint_url": "http://127.0.0.1:8080/keys"}


def test_a_good_set_up() -> None:
    """Each of the others differs from it in one setting."""
    assert ("OAUTHBEARER",) == Config.of(**GOOD).sasl_enabled_mechanisms


@pytest.mark.parametrize(
    "changed",
    [
        {"sasl_enabled_mechanisms": ("SCRAM-SHA-512", "OAUTHBEARER", "PLAIN")},
        {"sasl_oauthbearer_jwks_endpoint_url": "", "sasl_oauthbearer_jwks_file": "keys.json"},
        {**IN_CLEAR, "sasl_oauthbearer_without_tls": True},
        {**LOOPBACK, "sasl_oauthbearer_jwks_over_http": True},
        {"sasl_oauthbearer_jwks_over_http": True},
        {"sasl_oauthbearer_clock_skew_seconds": 0},
    ],
)
def test_other_good_set_ups(changed: dict[str, Value]) -> None:
    """A file in place of a URL, and what an operator has decided in words."""
    Config.of(**{**GOOD, **changed})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sasl_oauthbearer_jwks_endpoint_url": ""}, "sasl.oauthbearer.jwks.endpoint.url must"),
        ({"sasl_oauthbearer_jwks_file": "keys.json"}, "exclude each other"),
        ({"sasl_oauthbearer_expected_audience": ()}, "sasl.oauthbearer.expected.audience must"),
        ({"sasl_oauthbearer_expected_audience": ("", " ")}, "expected.audience must"),
        ({"sasl_oauthbearer_expected_issuer": ""}, "sasl.oauthbearer.expected.issuer must"),
        ({"sasl_oauthbearer_expected_issuer": "  "}, "expected.issuer must"),
        (IN_CLEAR, "kgw.sasl.oauthbearer.without.tls"),
        ({**IN_CLEAR, "sasl_plain_without_tls": True}, "kgw.sasl.oauthbearer.without.tls"),
        (LOOPBACK, "kgw.sasl.oauthbearer.jwks.over.http"),
        (
            {
                "sasl_oauthbearer_jwks_endpoint_url": "http://issuer.example/keys",
                "sasl_oauthbearer_jwks_over_http": True,
            },
            "this machine alone",
        ),
        ({"sasl_oauthbearer_jwks_endpoint_url": "file:///etc/keys.json"}, "https://"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "https://a:b@issuer.example/"}, "password"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "issuer.example/keys"}, "https://"),
        ({"sasl_oauthbearer_sub_claim_name": " "}, "name of a claim"),
        ({"sasl_oauthbearer_scope_claim_name": ""}, "name of a claim"),
        ({"sasl_oauthbearer_clock_skew_seconds": -1}, "below the minimum"),
        ({"sasl_oauthbearer_clock_skew_seconds": 3_600}, "above the maximum"),
        ({"sasl_oauthbearer_jwks_endpoint_refresh_ms": 0}, "below the minimum"),
        ({"sasl_oauthbearer_jwks_endpoint_retry_backoff_ms": 0}, "below the minimum"),
    ],
)
def test_an_unsafe_set_up_is_refused(changed: dict[str, Value], said: str) -> None:
    """The message names the setting."""
    with pytest.raises(ConfigError, match=said):
        Config.of(**{**GOOD, **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"sasl_enabled_mechanisms": ("SCRAM-SHA-512",)},
        {"listeners": ("SSL://127.0.0.1:9093",)},
        {"listeners": ("PLAINTEXT://127.0.0.1:9092",)},
    ],
)
def test_settings_are_needed_only_for_logins_with_tokens(changed: dict[str, Value]) -> None:
    """A server without such a listener starts without them."""
    unset = {name: one for name, one in GOOD.items() if "oauthbearer" not in name}
    Config.of(**{**unset, **changed})


@pytest.mark.parametrize(
    "name",
    [
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.server.callback.handler.class",
        "sasl.login.callback.handler.class",
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config",
    ],
)
def test_other_settings_of_kafka_are_refused(name: str) -> None:
    """None names a class or a file that is loaded."""
    with pytest.raises(ConfigError, match="is not served"):
        server_setting(name)


@pytest.mark.parametrize("name", ["oauthbearer", "OAUTHBEARER ", "OAUTH"])
def test_the_name_of_the_mechanism(name: str) -> None:
    """It is as Kafka writes it."""
    with pytest.raises(ConfigError, match="no such mechanism"):
        Config.of(**{**GOOD, "sasl_enabled_mechanisms": (name,)})
