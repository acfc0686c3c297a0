"""The SCRAM code of client libraries, without their connections, logs in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.security.sasl.logins import MECHANISMS, NAMES, PASSWORD, credential_of, open_scram

if TYPE_CHECKING:
    from kgw.security.sasl.scram import ScramMechanism

# What kafka-python does when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning")


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=NAMES)
def test_kafka_python_logs_in(mechanism: ScramMechanism) -> None:
    """It checks the signature of the server itself."""
    from kafka.net.sasl.scram import ScramClient

    exchange = open_scram(mechanism)
    client = ScramClient("alice", PASSWORD, mechanism.sasl_name)
    client.process_server_first_message(exchange.respond(client.first_message()))
    client.process_server_final_message(exchange.respond(client.final_message()))
    assert exchange.user == "alice"


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=NAMES)
def test_aiokafka_logs_in(mechanism: ScramMechanism) -> None:
    """With a name that it has to escape; it checks the signature of the server itself."""
    from aiokafka.conn import ScramAuthenticator

    exchange = open_scram(mechanism, {"a=li,ce": credential_of(mechanism)})
    client = ScramAuthenticator(
        loop=None,
        sasl_plain_password=PASSWORD,
        sasl_plain_username="a=li,ce",
        sasl_mechanism=mechanism.sasl_name,
    )
    server_first = exchange.respond(client.first_message().encode())
    client.process_server_first_message(server_first.decode())
    server_final = exchange.respond(client.final_message().encode())
    client.process_server_final_message(server_final.decode())
    assert exchange.user == "a=li,ce"
