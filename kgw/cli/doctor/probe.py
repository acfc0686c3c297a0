"""Finds out how an address can be used, after a client could not use it as it was told to."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.cli.doctor.connecting import ClientSetup, Listening, ServedCertificate
from kgw.client import (
    ClientError,
    ClientSecurity,
    Connection,
    ConnectionLostError,
    LoginRefusedError,
    NotKafkaError,
    TlsError,
)
from kgw.client.client_properties import GivenProperties
from kgw.client.errors import HungUpError
from kgw.client.sasl_mechanisms import enabled_mechanisms
from kgw.client.security import ClientLogin
from kgw.client.tls import EXPIRED, NOT_YET_VALID, WANTS_CERTIFICATE, WRONG_NAME, client_context
from kgw.config.listeners import SecurityProtocol, format_address
from kgw.errors import ErrorCode
from kgw.security.tls.pem import CERTIFICATE, read_pem
from kgw.security.tls.x509 import distinguished_name, read_certificate

if TYPE_CHECKING:
    from kgw.cli.shared.command_config import GivenFile

_AUTHORITY = frozenset({2, 7, 18, 19, 20, 21, 30})
"""OpenSSL's codes for a certificate that no trusted authority has signed."""
CLIENT_ID = "kgw-doctor"


def given_of(file: GivenFile | None, security: ClientSecurity | None) -> ClientSetup:
    """Return how the client was told to connect, without passwords."""
    if file is None or security is None:
        return ClientSetup()
    login = security.login
    return ClientSetup(
        security.protocol,
        "" if login is None else login.mechanism,
        login.user if isinstance(login, ClientLogin) and not login.is_token else "",
        file.path,
        {
            name: int(line[1:])
            for name in (*_PLACES, *file.properties)
            if (line := file.line_of(name))
        },
        () if security.tls is None else _trusted(security.tls),
    )


_PLACES = (
    "sasl.mechanism",
    "ssl.truststore.certificates",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
)
"""The properties that librdkafka calls otherwise: lines are found by Kafka's names."""


def is_worth_a_look(error: ClientError) -> bool:
    """Return whether something answered that a client may be able to use in another way."""
    if isinstance(error, NotKafkaError):
        return error.speaks_tls
    return isinstance(error, (ConnectionLostError, HungUpError, LoginRefusedError, TlsError))


async def look(
    host: str,
    port: int,
    security: ClientSecurity | None,
    file: GivenFile | None,
    failure: ClientError,
    timeout_s: float,
) -> Listening:
    """Connect in other ways after a failure, and return the facts about the address.

    No user and no password is sent.
    """
    address = format_address(host, port)
    found = Listening(
        address,
        host,
        refuses_login=isinstance(failure, LoginRefusedError)
        and failure.code is ErrorCode.SASL_AUTHENTICATION_FAILED,
    )
    given_tls = None if security is None else security.tls
    # Its files are read again, as the server may have asked for the client's certificate.
    context = await asyncio.to_thread(_unchecked, file)
    for has_tls in (given_tls is not None, given_tls is None):
        unchecked = ClientSecurity(SecurityProtocol.SSL, context) if has_tls else None
        try:
            connection = await Connection.open(
                host, port, client_id=CLIENT_ID, timeout_s=timeout_s, security=unchecked
            )
        except ClientError as error:
            if _is_about_own_certificate(error):
                has_own = _has_own(file)
                return found._replace(
                    has_tls=True, asks_certificate=not has_own, refuses_certificate=has_own
                )
            continue
        found = found._replace(has_tls=has_tls, certificate=certificate_of(connection))
        if found.certificate is not None:
            found = found._replace(distrust=_distrust(failure))
        try:
            found = found._replace(mechanisms=await enabled_mechanisms(connection, timeout_s))
        except ClientError:
            # The other facts are enough for some findings.
            pass
        finally:
            await connection.aclose()
        break
    return found


def own_name(file: GivenFile | None) -> str:
    """Return the name in the client's certificate; "" without one that is PEM."""
    if file is None:
        return ""
    values = GivenProperties(file.values())
    location = values.text("ssl.keystore.location") or values.text("ssl.certificate.location")
    text = values.text("ssl.keystore.certificate.chain")
    try:
        if location:
            text = Path(location).read_bytes().decode("ascii", "replace")
        for block in read_pem(text):
            if block.label == CERTIFICATE:
                return distinguished_name(read_certificate(block.der).subject)
    except (OSError, ValueError):
        pass
    return ""


def key_file_modes(file: GivenFile | None) -> list[tuple[str, str, int]]:
    """Return property, path and mode of each file with a private key of the client."""
    if file is None:
        return []
    found = []
    for name in ("ssl.keystore.location", "ssl.key.location"):
        path = GivenProperties(file.values()).text(name)
        if not path:
            continue
        try:
            found.append((name, path, Path(path).stat().st_mode))
        except OSError:
            continue
    return found


def certificate_of(connection: Connection) -> ServedCertificate | None:
    """Return the certificate of a connection's server; None without one that can be read."""
    der = connection.peer_certificate
    try:
        return None if der is None else ServedCertificate.of(der)
    except ValueError:
        return None


def _is_about_own_certificate(error: ClientError) -> bool:
    """Return whether the error is about the client's certificate, which the server asks for."""
    if isinstance(error, TlsError):
        return error.reason in WANTS_CERTIFICATE or "ALERT" in error.reason
    return isinstance(error, HungUpError) and error.is_encrypted


def _distrust(failure: ClientError) -> str:
    """Return why the client has refused the server's certificate; "" if it has not."""
    if not isinstance(failure, TlsError) or not failure.verify_code:
        return ""
    code = failure.verify_code
    if code in WRONG_NAME:
        return "name"
    if code in {EXPIRED, NOT_YET_VALID}:
        return "dates"
    return "authority" if code in _AUTHORITY else str(failure)


def _unchecked(file: GivenFile | None) -> ssl.SSLContext:
    """Return a context that accepts every certificate. It is never used for a login."""
    given = GivenProperties({} if file is None else file.values())
    context = client_context(given)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _has_own(file: GivenFile | None) -> bool:
    """Return whether the client has a certificate."""
    return file is not None and any(
        file.line_of(name)
        for name in (
            "ssl.keystore.location",
            "ssl.keystore.certificate.chain",
            "ssl.certificate.location",
        )
    )


def _trusted(context: ssl.SSLContext) -> tuple[str, ...]:
    """Return the names of the authorities that a context trusts, those that can be read."""
    names = []
    for der in context.get_ca_certs(binary_form=True):
        try:
            names.append(distinguished_name(read_certificate(der).subject))
        except ValueError:
            continue
    return tuple(names)
