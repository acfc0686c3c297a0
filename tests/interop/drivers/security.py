"""The security of a connection, from the properties of an operation to a library's own arguments.

The properties have the names of Java's clients; the files are PEM. `sasl.username` and
`sasl.password` are librdkafka's names.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    return arguments


def of_aiokafka(operation: Operation) -> dict[str, Any]:
    """The arguments of aiokafka's clients, which want a context of their caller's making."""
    given: dict[str, str] = operation.get("security") or {}
    arguments: dict[str, Any] = _named(given, {"security.protocol": "security_protocol", **_LOGIN})
    if "ssl.truststore.location" in given:
        context = ssl.create_default_context(cafile=given["ssl.truststore.location"])
        if "ssl.keystore.location" in given:
            context.load_cert_chain(given["ssl.keystore.location"])
        arguments["ssl_context"] = context
    return arguments


def of_librdkafka(operation: Operation) -> dict[str, str]:
    """The properties of librdkafka."""
    given: dict[str, str] = operation.get("security") or {}
    keystore = given.get("ssl.keystore.location")
    files = {} if keystore is None else dict.fromkeys(_KEYSTORE_OF_LIBRDKAFKA, keystore)
    names = {"ssl.truststore.location": "ssl.ca.location"}
    others = {name: value for name, value in given.items() if name != "ssl.keystore.location"}
    return {**{names.get(name, name): value for name, value in others.items()}, **files}


_LOGIN = {
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}
_KEYSTORE_OF_LIBRDKAFKA = ("ssl.certificate.location", "ssl.key.location")


def _named(given: dict[str, str], names: dict[str, str]) -> dict[str, Any]:
    return {names[name]: value for name, value in given.items() if name in names}
