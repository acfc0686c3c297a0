"""The properties of a client that logs in with tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.client import client_security
from kgw.client.jaas import BEARER_MODULE, SCRAM_MODULE
from kgw.client.token_login import TokenLogin
from kgw.config.properties import PropertyError

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "c4nary-s3cret"
URL = "sasl.oauthbearer.token.endpoint.url"
ID = "sasl.oauthbearer.client.credentials.client.id"
SECRET = "sasl.oauthbearer.client.credentials.client.secret"
BARE = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = "https://issuer.example/token?tenant=1"
GOOD = {**BARE, URL: ENDPOINT, ID: "app", SECRET: CANARY}
JAAS = f'{BEARER_MODULE} required clientId="app" clientSecret="{CANARY}" scope="a b"%s;'
OF_FILE = {**BARE, URL: "file:///no/such/token"}
HANDLER = "org.apache.kafka.common.security.oauthbearer%s.OAuthBearerLoginCallbackHandler"


def login(properties: dict[str, str]) -> TokenLogin:
    """Return the login that properties ask for."""
    found = client_security(properties).login
    assert isinstance(found, TokenLogin)
    return found


@pytest.mark.parametrize(
    "properties",
    [
        GOOD,
        {**BARE, URL: ENDPOINT, "sasl.jaas.config": JAAS % ""},
        {**GOOD, "sasl.jaas.config": f"{BEARER_MODULE} required;"},
        {**GOOD, "sasl.oauthbearer.scope": "a b", "sasl.oauthbearer.header.urlencode": "TRUE"},
        {**GOOD, "sasl.login.callback.handler.class": HANDLER % ""},
        {**GOOD, "sasl.login.callback.handler.class": HANDLER % ".secured"},
        {**GOOD, "sasl.login.refresh.window.factor": "0.5"},
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "app",
            "sasl.oauthbearer.client.secret": CANARY,
            URL: ENDPOINT,
        },
        {**GOOD, URL: "http://localhost:8080/token"},
    ],
)
def test_client_credentials(properties: dict[str, str]) -> None:
    """With Kafka's names, older ones of the login module, and librdkafka's."""
    found = login(properties)
    url = properties[URL].partition("?")[0]
    assert f"the login with the token from {url}" == str(found)
    assert CANARY not in repr(client_security(properties)) + repr(found) + repr(found.source)


@pytest.mark.parametrize(
    "url", ["file:///no/such%20token", "file:/no/such%20token", "FILE:///no/such%20token"]
)
def test_a_file(url: str) -> None:
    """As Kafka's FileJwtRetriever reads it."""
    assert "/no/such token" in str(login({**OF_FILE, URL: url}))


def test_extensions() -> None:
    """They are sent behind the token, in their order."""
    jaas = JAAS % ' extension_logicalCluster="lkc-1" extension_b="c d"'
    found = login({**BARE, URL: ENDPOINT, "sasl.jaas.config": jaas})
    assert b"n,,\x01auth=Bearer t.o.k\x01logicalCluster=lkc-1\x01b=c d\x01\x01" == found.message(
        "t.o.k"
    )
    assert b"n,,\x01auth=Bearer t.o.k\x01\x01" == login(GOOD).message("t.o.k")


def _jaas(more: str) -> dict[str, str]:
    return {**BARE, URL: ENDPOINT, "sasl.jaas.config": JAAS % f" {more}"}


@pytest.mark.parametrize(
    ("properties", "name", "problem"),
    [
        (BARE, "sasl.mechanism", "needs sasl.oauthbearer.token.endpoint.url"),
        ({**BARE, URL: ENDPOINT}, URL, f"needs {ID}"),
        ({**BARE, URL: ENDPOINT, ID: "app"}, URL, f"needs {SECRET}"),
        ({**GOOD, ID: "a:b"}, URL, "a colon needs"),
        ({**GOOD, URL: "http://issuer.example/token"}, URL, "this machine alone"),
        ({**GOOD, URL: f"https://app:{CANARY}@issuer.example/"}, URL, "password"),
        ({**GOOD, URL: "ftp://issuer.example/token"}, URL, "https://"),
        ({**BARE, URL: "file://other.example/token"}, URL, "file:///PATH"),
        ({**BARE, URL: "file:token"}, URL, "file:///PATH"),
        ({**OF_FILE, ID: "app"}, ID, "names a file"),
        ({**OF_FILE, SECRET: CANARY}, SECRET, "names a file"),
        ({**OF_FILE, "sasl.jaas.config": JAAS % ""}, "sasl.jaas.config", "names a file"),
        ({**GOOD, "sasl.username": "alice"}, "sasl.username", "no effect"),
        ({**GOOD, "sasl.password": CANARY}, "sasl.password", "no effect"),
        ({**GOOD, "sasl.jaas.config": JAAS % ""}, ID, "sasl.jaas.config has it already"),
        (
            {**GOOD, "sasl.jaas.config": f'{SCRAM_MODULE} required username="a" password="b";'},
            "sasl.jaas.config",
            "its login module is .*OAuthBearerLoginModule",
        ),
        (_jaas('unsecuredLoginStringClaim_sub="a"'), "sasl.jaas.config", "without a signature"),
        (_jaas('ssl.truststore.location="a"'), "sasl.jaas.config", "the system trusts"),
        (_jaas(f'{CANARY}="a"'), "sasl.jaas.config", "an option that is not known"),
        (_jaas('extension_auth="a"'), "sasl.jaas.config", "the name of an extension"),
        (_jaas('extension_a1="a"'), "sasl.jaas.config", "the name of an extension"),
        (_jaas('extension_a="\\001"'), "sasl.jaas.config", "the value of an extension"),
        (
            {**GOOD, "sasl.oauthbearer.header.urlencode": "yes"},
            "sasl.oauthbearer.header.urlencode",
            "neither true nor false",
        ),
        ({**GOOD, "sasl.oauthbearer.method": "default"}, "sasl.oauthbearer.method", "only oidc"),
        (
            {**GOOD, "sasl.login.callback.handler.class": "com.example.Handler"},
            "sasl.login.callback.handler.class",
            "is refused",
        ),
        (
            {
                **GOOD,
                "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security."
                "oauthbearer.JwtBearerJwtRetriever",
            },
            "sasl.oauthbearer.jwt.retriever.class",
            "is refused",
        ),
        (
            {**GOOD, "sasl.oauthbearer.assertion.file": "a"},
            "sasl.oauthbearer.assertion.file",
            "client credentials alone",
        ),
        (
            {**GOOD, "sasl.oauthbearer.jwks.endpoint.url": ENDPOINT},
            "sasl.oauthbearer.jwks.endpoint.url",
            "the server checks tokens",
        ),
        (
            {**GOOD, "sasl.oauthbearer.extensions": "a=b"},
            "sasl.oauthbearer.extensions",
            "by client credentials",
        ),
        ({**GOOD, "sasl.login.class": "a"}, "sasl.login.class", "loads no classes"),
    ],
)
def test_what_is_wrong_is_named(properties: dict[str, str], name: str, problem: str) -> None:
    """The error has the property's name and the reason, and no secret."""
    with pytest.raises(PropertyError, match=problem) as raised:
        client_security(properties)
    assert name == raised.value.name
    assert CANARY not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_need_not_exist_yet(tmp_path: Path) -> None:
    """It is read at each login."""
    assert login({**OF_FILE, URL: (tmp_path / "later").as_uri()}).extensions == ()
