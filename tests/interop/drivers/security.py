"""The security of a connection, from the properties of an operation to a library's own arguments.

The properties have the names of Java's clients; the files are PEM, or have a token. `sasl.username`
and `sasl.password` are librdkafka's names.
"""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.drivers.loop import Operation


def of_kafka_python(operation: Operation) -> dict[str, Any]:
    """The arguments of kafka-python's clients."""
    given: dict[str, str] = operation.get("security") or {}
    arguments = _named(
        given,
        {
            "security.protocol": "security_protocol",
            "ssl.truststore.location": "ssl_cafile",
            "ssl.keystore.location": "ssl_certfile",
            **_LOGIN,
        },
    )
    if "ssl_certfile" in arguments:
        # 2.x shows no certificate without it.
        arguments["ssl_keyfile"] = arguments["ssl_certfile"]
    if _TOKEN in given:
        arguments["sasl_oauth_token_provider"] = _provider_of_kafka_python(given)
    return arguments


def _provider_of_kafka_python(given: dict[str, str]) -> Any:
    try:
        from kafka.net.sasl.oauth import AbstractTokenProvider
    except ImportError:  # 2.x
        from kafka.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return _token(given)

    return Provider()


def of_aiokafka(operation: Operation) -> dict[str, Any]:
    """The arguments of aiokafka's clients, which want a context of their caller's making."""
    given: dict[str, str] = operation.get("security") or {}
    arguments: dict[str, Any] = _named(given, {"security.protocol": "security_protocol", **_LOGIN})
    if "ssl.truststore.location" in given:
        context = ssl.create_default_context(cafile=given["ssl.truststore.location"])
        if "ssl.keystore.location" in given:
            context.load_cert_chain(given["ssl.keystore.location"])
        arguments["ssl_context"] = context
    if _TOKEN in given:
        arguments["sasl_oauth_token_provider"] = _provider_of_aiokafka(given)
    return arguments


def _provider_of_aiokafka(given: dict[str, str]) -> Any:
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return _token(given)

    return Provider()


def of_librdkafka(operation: Operation) -> dict[str, Any]:
    """The properties of librdkafka, and the function that gives it a token."""
    given: dict[str, str] = dict(operation.get("security") or {})
    callback: dict[str, Callable[[str], tuple[str, float]]] = {}
    if _TOKEN in given:
        text = _token(given)
        del given[_TOKEN]
        callback["oauth_cb"] = lambda _config: (text, time.time() + 3600)
    keystore = given.get("ssl.keystore.location")
    files = {} if keystore is None else dict.fromkeys(_KEYSTORE_OF_LIBRDKAFKA, keystore)
    names = {"ssl.truststore.location": "ssl.ca.location"}
    others = {name: value for name, value in given.items() if name != "ssl.keystore.location"}
    return {
        **{names.get(name, name): value for name, value in others.items()},
        **files,
        **callback,
    }


_TOKEN = "sasl.oauthbearer.token.endpoint.url"
_LOGIN = {
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}
_KEYSTORE_OF_LIBRDKAFKA = ("ssl.certificate.location", "ssl.key.location")


def _token(given: dict[str, str]) -> str:
    return Path(unquote(urlsplit(given[_TOKEN]).path)).read_text()


def _named(given: dict[str, str], names: dict[str, str]) -> dict[str, Any]:
    return {names[name]: value for name, value in given.items() if name in names}
