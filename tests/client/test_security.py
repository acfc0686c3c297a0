from __future__ import annotations

import dataclasses
import os
import ssl
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.client import ClientLogin, ClientSecurity, client_security
from kgw.client.client_properties import ALIASES, IGNORED, OBEYED, SECRETS
from kgw.client.jaas import PLAIN_MODULE, SCRAM_MODULE
from kgw.config import ConfigError
from kgw.config.listeners import SecurityProtocol
from kgw.config.properties import PropertyError
from tests.client.certificates import trust_pkcs12

if TYPE_CHECKING:
    from pathlib import Path

    from tests.client.conftest import Certificates

CANARY = "c4nary-s3cret"
SASL = {"security.protocol": "SASL_PLAINTEXT"}
SCRAM = {**SASL, "sasl.mechanism": "SCRAM-SHA-512"}
PLAIN = {**SASL, "sasl.mechanism": "PLAIN"}
JAAS = f'{SCRAM_MODULE} required username="alice" password="{CANARY}";'
SSL = {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, ClientSecurity(SecurityProtocol.PLAINTEXT)),
        ({"security.protocol": ""}, ClientSecurity(SecurityProtocol.PLAINTEXT)),
        (
            {**SCRAM, "sasl.jaas.config": JAAS},
            ClientSecurity(
                SecurityProtocol.SASL_PLAINTEXT,
                login=ClientLogin("SCRAM-SHA-512", "alice", CANARY),
            ),
        ),
        (
            {**SCRAM, "sasl.jaas.config": JAAS.replace(";", ' tokenauth="True";')},
            ClientSecurity(
                SecurityProtocol.SASL_PLAINTEXT,
                login=ClientLogin("SCRAM-SHA-512", "alice", CANARY, is_token=True),
            ),
        ),
        (
            {
                "security.protocol": " sasl_plaintext ",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": " alice ",
                "sasl.password": f" {CANARY} ",
            },
            ClientSecurity(
                SecurityProtocol.SASL_PLAINTEXT,
                login=ClientLogin("PLAIN", "alice", f" {CANARY} "),
            ),
        ),
        # As in Kafka, what another protocol would need has no effect.
        (
            {"security.protocol": "PLAINTEXT", "sasl.jaas.config": JAAS, "ssl.key.password": "x"},
            ClientSecurity(SecurityProtocol.PLAINTEXT),
        ),
    ],
)
def test_properties_of_kafkas_clients_are_understood(
    properties: dict[str, str], expected: ClientSecurity
) -> None:
    """Kafka's names and librdkafka's."""
    assert expected == client_security(properties)


@pytest.mark.parametrize(
    ("properties", "name", "problem"),
    [
        ({"security.protocl": "SSL"}, "security.protocl", "did you mean security.protocol?"),
        ({"acks": "all"}, "acks", "none of a connection that kgw knows"),
        ({"security.protocol": "TLS"}, "security.protocol", "it is none of PLAINTEXT, SSL,"),
        ({"sasl.jaas.config": JAAS}, "sasl.jaas.config", "no effect without security.protocol"),
        ({"ssl.ca.location": "a"}, "ssl.ca.location", "no effect without security.protocol"),
        (SASL, "security.protocol", "needs sasl.mechanism"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "Kerberos"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism", "needs sasl.oauthbearer"),
        (
            {**PLAIN, "sasl.login.callback.handler.class": "com.example.Handler"},
            "sasl.login.callback.handler.class",
            "no effect without sasl.mechanism=OAUTHBEARER",
        ),
        ({**SASL, "sasl.mechanism": "DIGEST"}, "sasl.mechanism", "no such mechanism"),
        (PLAIN, "sasl.mechanism", "needs sasl.jaas.config, or sasl.username"),
        ({**PLAIN, "sasl.username": "alice"}, "sasl.username", "sasl.password is missing"),
        ({**PLAIN, "sasl.password": CANARY}, "sasl.password", "sasl.username is missing"),
        (
            {**SCRAM, "sasl.jaas.config": JAAS, "sasl.password": CANARY},
            "sasl.password",
            "sasl.jaas.config names the user already",
        ),
        ({**PLAIN, "sasl.jaas.config": JAAS}, "sasl.jaas.config", "its login module is .*Plain"),
        (
            {**SCRAM, "sasl.jaas.config": JAAS.replace(SCRAM_MODULE, PLAIN_MODULE)},
            "sasl.jaas.config",
            "its login module is .*Scram",
        ),
        (
            {**SCRAM, "sasl.jaas.config": JAAS.replace(SCRAM_MODULE, "com.example.Module")},
            "sasl.jaas.config",
            "none that is known",
        ),
        (
            {**SCRAM, "sasl.jaas.config": JAAS.replace("password=", "pass=")},
            "sasl.jaas.config",
            "it has no password",
        ),
        (
            {**SCRAM, "sasl.jaas.config": JAAS.replace("alice", "")},
            "sasl.jaas.config",
            "it has no username",
        ),
        ({**SCRAM, "sasl.jaas.config": JAAS[:-1]}, "sasl.jaas.config", "semicolon"),
        (
            {
                **PLAIN,
                "sasl.jaas.config": f"{PLAIN_MODULE} required username=a password={CANARY} "
                "tokenauth=true;".replace(CANARY, f'"{CANARY}"'),
            },
            "sasl.jaas.config",
            "needs SCRAM",
        ),
        (
            {**PLAIN, "sasl.username": "a", "sasl.password": f"{CANARY}\0"},
            "sasl.username",
            "NUL",
        ),
        (
            {**PLAIN, "sasl.mechanisms": "PLAIN"},
            "sasl.mechanisms",
            "sasl.mechanism is another name",
        ),
        ({"sasl.kerberos.service.name": "kafka"}, "sasl.kerberos.service.name", "Kerberos"),
        (
            {"enable.ssl.certificate.verification": "false"},
            "enable.ssl.certificate.verification",
            "always checked",
        ),
        ({**SSL, "ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols", "TLSv1.2 and"),
        (
            {**SSL, "ssl.endpoint.identification.algorithm": "LDAPS"},
            "ssl.endpoint.identification.algorithm",
            "it is neither https nor empty",
        ),
        (
            {**SSL, "ssl.truststore.location": "/no/such.pem"},
            "ssl.truststore.location",
            "cannot read /no/such.pem: no such file",
        ),
        (
            {**SSL, "ssl.ca.location": "a", "ssl.truststore.certificates": "b"},
            "ssl.ca.location",
            "only one of them",
        ),
        ({**SSL, "ssl.truststore.certificates": CANARY}, "ssl.truststore.certificates", "no cert"),
        (
            {**SSL, "ssl.keystore.key": CANARY},
            "ssl.keystore.key",
            "ssl.keystore.certificate.chain is missing",
        ),
        (
            {**SSL, "ssl.certificate.location": "a"},
            "ssl.certificate.location",
            "ssl.key.location is missing",
        ),
    ],
)
def test_what_is_wrong_is_named(properties: dict[str, str], name: str, problem: str) -> None:
    """The error has the property's name and the reason, and no secret."""
    with pytest.raises(PropertyError, match=problem) as raised:
        client_security(properties)
    assert name == raised.value.name
    assert isinstance(raised.value, ConfigError)
    assert CANARY not in str(raised.value)
    assert "\n" not in str(raised.value)


@given(
    st.dictionaries(
        st.sampled_from([*OBEYED, *ALIASES, "sasl.login.class", "unknown.name", CANARY]),
        st.sampled_from(["PLAIN", "SCRAM-SHA-256", "SASL_PLAINTEXT", "SASL_SSL", "SSL", JAAS, ""])
        | st.text(max_size=8),
    )
)
def test_no_secret_is_told_whatever_is_wrong(properties: dict[str, str]) -> None:
    """Any combination is taken or refused, and no value is shown but the paths of files."""
    secret = {name: f"{CANARY}{value}" for name, value in properties.items() if name in SECRETS}
    paths = {name: "/no/such.pem" for name in properties if name.endswith(".location")}
    try:
        told = repr(client_security({**properties, **secret, **paths}))
    except PropertyError as error:
        told = str(error)
    assert CANARY not in told


def test_passwords_are_in_no_representation() -> None:
    """Neither of the login nor of what holds it."""
    security = client_security({**SCRAM, "sasl.jaas.config": JAAS})
    for shown in (repr(security), str(security), repr(security.login), f"{security.login}"):
        assert "alice" in shown
        assert CANARY not in shown


def test_security_does_not_change() -> None:
    """Several connections share it."""
    security = client_security({})
    with pytest.raises(dataclasses.FrozenInstanceError):
        security.protocol = SecurityProtocol.SSL  # type: ignore[misc]


def test_properties_without_a_meaning_are_ignored() -> None:
    """Files for Kafka's tools have them; no property is in two tables."""
    assert client_security({}) == client_security(dict.fromkeys(IGNORED, "1"))
    names = [*OBEYED, *ALIASES, *IGNORED]
    assert len(set(names)) == len(names)
    assert set(OBEYED) >= set(ALIASES.values())
    assert {*OBEYED, *ALIASES} >= SECRETS


# --- TLS ---


def context_of(**properties: str) -> ssl.SSLContext:
    """Return the context that properties ask for, written with underscores."""
    named = {name.replace("_", "."): value for name, value in properties.items()}
    context = client_security({**SSL, **named}).tls
    assert context is not None
    return context


def refusal_of(**properties: str) -> str:
    """Return why properties are refused."""
    with pytest.raises(PropertyError) as raised:
        context_of(**properties)
    assert CANARY not in str(raised.value)
    return str(raised.value)


def test_certificates_and_names_are_checked() -> None:
    """By default, with TLS 1.2 and 1.3; only an empty algorithm leaves names out."""
    context = context_of()
    assert (True, ssl.CERT_REQUIRED) == (context.check_hostname, context.verify_mode)
    assert ssl.TLSVersion.TLSv1_2 is context.minimum_version
    assert ssl.TLSVersion.TLSv1_3 is context.maximum_version
    for algorithm, is_checked in (("https", True), ("HTTPS", True), ("", False), ("none", False)):
        context = context_of(ssl_endpoint_identification_algorithm=algorithm)
        assert (is_checked, ssl.CERT_REQUIRED) == (context.check_hostname, context.verify_mode)
    context = context_of(ssl_enabled_protocols="TLSv1.3")
    assert ssl.TLSVersion.TLSv1_3 is context.minimum_version
    context = context_of(ssl_enabled_protocols="TLSv1.2")
    assert ssl.TLSVersion.TLSv1_2 is context.maximum_version


def trusted(context: ssl.SSLContext) -> list[int]:
    """Return the serial numbers of the trusted certificates."""
    return sorted(int(str(one["serialNumber"]), 16) for one in context.get_ca_certs())


def test_trusted_certificates_are_loaded(certificates: Certificates, tmp_path: Path) -> None:
    """From PEM text, from PEM in one line, from a PEM file with comments, and from PKCS12."""
    authority = certificates.authority
    expected = [authority.certificate.serial_number]
    pem = tmp_path / "trust.pem"
    pem.write_text(f"# Autorität\n{authority.pem}")
    keystore = tmp_path / "trust.p12"
    keystore.write_bytes(trust_pkcs12(CANARY, authority.certificate))
    for properties in (
        {"ssl_truststore_certificates": authority.pem},
        {"ssl_truststore_certificates": " ".join(authority.pem.split("\n"))},
        {"ssl_ca_pem": authority.pem},
        {"ssl_ca_location": str(pem)},
        {"ssl_truststore_location": str(pem)},
        {"ssl_truststore_location": str(pem), "ssl_truststore_type": "PEM"},
        {"ssl_truststore_location": str(keystore), "ssl_truststore_password": CANARY},
        {
            "ssl_truststore_location": str(keystore),
            "ssl_truststore_password": CANARY,
            "ssl_truststore_type": "pkcs12",
        },
    ):
        assert expected == trusted(context_of(**properties))


def test_the_system_is_trusted_otherwise(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a truststore, and where librdkafka's `probe` asks for it."""
    system = tmp_path / "system.pem"
    system.write_text(certificates.authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(system))
    expected = [certificates.authority.certificate.serial_number]
    for properties in ({}, {"ssl_ca_location": "probe"}):
        context = context_of(**properties)
        assert expected == trusted(context)
    assert [] == trusted(context_of(ssl_truststore_certificates=certificates.server.pem))


def test_a_truststore_that_cannot_be_read_is_refused(
    certificates: Certificates, tmp_path: Path
) -> None:
    """A JKS with what to do, other files with what is wrong."""
    file = tmp_path / "trust"
    location = str(file)
    file.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    told = refusal_of(ssl_truststore_location=location)
    assert told.startswith("ssl.truststore.location: a JKS is not read: convert it with keytool")
    assert f"-srckeystore {location} -destkeystore truststore.p12 -deststoretype PKCS12" in told
    told = refusal_of(ssl_truststore_location=location, ssl_truststore_type="jks")
    assert told.startswith("ssl.truststore.type: a JKS is not read")
    file.write_bytes(b"nothing")
    told = refusal_of(ssl_truststore_location=location, ssl_truststore_type="BKS")
    assert "ssl.truststore.type: it is neither PEM nor PKCS12" == told
    assert "is not PEM; is it a PKCS12" in refusal_of(ssl_truststore_location=location)
    assert refusal_of(ssl_ca_location=location).endswith("the file is not PEM")
    file.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert "cannot be read" in refusal_of(ssl_truststore_location=location)
    file.write_text(certificates.client.key_pem())
    assert "has no certificate" in refusal_of(ssl_truststore_location=location)
    file.write_text(certificates.authority.pem)
    told = refusal_of(ssl_truststore_location=location, ssl_truststore_password=CANARY)
    assert "ssl.truststore.password: a PEM file has none" == told
    file.write_bytes(trust_pkcs12("right", certificates.authority.certificate))
    told = refusal_of(ssl_truststore_location=location, ssl_truststore_password=CANARY)
    assert told.endswith("cannot be opened: is ssl.truststore.password right?")
    told = refusal_of(ssl_truststore_location=location)
    assert told.endswith("cannot be opened: is ssl.truststore.password missing?")


def test_a_clients_certificate_that_cannot_be_used_is_refused(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Nothing asks for a password at the terminal."""
    client = certificates.client
    encrypted = client.key_pem(CANARY)
    file = tmp_path / "key"
    location = str(file)
    chain = {"ssl_keystore_certificate_chain": client.pem}
    told = refusal_of(**chain, ssl_keystore_key=encrypted)
    assert told.endswith("cannot be decrypted: is ssl.key.password right?")
    told = refusal_of(**chain, ssl_keystore_key=encrypted, ssl_key_password="wrong")
    assert told.endswith("cannot be decrypted: is ssl.key.password right?")
    told = refusal_of(**chain, ssl_keystore_key=certificates.server.key_pem())
    assert told.endswith("the private key does not belong to the certificate")
    told = refusal_of(**chain, ssl_keystore_key="x")
    assert "ssl.keystore.key: it has no private key (-----BEGIN PRIVATE KEY-----)" == told
    file.write_text(client.pem)
    assert "has no private key" in refusal_of(ssl_keystore_location=location)
    told = refusal_of(ssl_keystore_location=location, ssl_keystore_password=CANARY)
    assert told.endswith("the password of a private key is ssl.key.password")
    file.write_text(client.pem + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    assert refusal_of(ssl_keystore_location=location).endswith("certificate cannot be read")
    file.write_bytes(trust_pkcs12(CANARY, client.certificate))
    told = refusal_of(ssl_keystore_location=location, ssl_keystore_password=CANARY)
    assert "ssl.keystore.location: it has no private key" == told
    told = refusal_of(**chain, ssl_key_location=location)
    assert "ssl.keystore.certificate.chain: ssl.keystore.key is missing" == told


def test_a_private_key_is_left_nowhere(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system has no files in memory, the file is its owner's, and removed."""
    seen = []
    load = ssl.SSLContext.load_cert_chain

    def spied(context: ssl.SSLContext, path: str, **options: object) -> None:
        seen.append((path, os.stat(path).st_mode & 0o777))  # noqa: PTH116
        load(context, path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spied)
    context_of(
        ssl_keystore_certificate_chain=certificates.client.pem,
        ssl_keystore_key=certificates.client.key_pem(),
    )
    ((path, mode),) = seen
    assert (str(tmp_path), 0o600) == (os.path.dirname(path), mode)  # noqa: PTH120
    assert [] == list(tmp_path.iterdir())
