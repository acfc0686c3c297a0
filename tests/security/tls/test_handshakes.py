"""Handshakes with the contexts of listeners, in memory."""

from __future__ import annotations

import ssl
import warnings

import pytest

from kgw.security.tls.principals import PrincipalMapper
from kgw.testing.certificates import DAY_S, CertificateAuthority
from tests.security.tls.handshakes import (
    NOW_S,
    PASSWORD,
    client_context,
    options,
    pki,
    server_context,
    shake,
    with_clients,
)


def old_client() -> ssl.SSLContext:
    """Return a client that knows TLS 1.1 at most."""
    context = client_context()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_connects_with_each_protocol(version: str) -> None:
    """Without client authentication nobody asks for a certificate."""
    outcome = shake(server_context(options(enabled_protocols=(version,))), client_context())
    assert outcome.is_connected
    assert version == outcome.server.version()
    assert outcome.peer is None


def test_tls_1_1_is_refused() -> None:
    """The server answers that it does not support the protocol."""
    context = server_context(options())
    assert ssl.TLSVersion.TLSv1_2 == context.minimum_version
    assert shake(context, old_client()).refused_by_server == "UNSUPPORTED_PROTOCOL"


@pytest.mark.parametrize(
    ("enabled", "client_version"),
    [("TLSv1.3", ssl.TLSVersion.TLSv1_2), ("TLSv1.2", ssl.TLSVersion.TLSv1_3)],
)
def test_a_protocol_that_is_not_enabled_is_refused(
    enabled: str, client_version: ssl.TLSVersion
) -> None:
    """TLS 1.2 and 1.3 can each be the only one."""
    client = client_context()
    client.minimum_version = client.maximum_version = client_version
    context = server_context(options(enabled_protocols=(enabled,)))
    assert shake(context, client).refused_by_server == "UNSUPPORTED_PROTOCOL"


def test_the_chain_is_sent() -> None:
    """A client that trusts the root connects to a server below an intermediate authority."""
    middle = CertificateAuthority("middle", NOW_S, issuer=pki().authority)
    context = server_context(options(middle.issue_server(["localhost"])))
    assert shake(context, client_context()).is_connected


def test_required_refuses_a_client_without_a_certificate() -> None:
    """The connection ends in the handshake."""
    outcome = shake(server_context(with_clients("required")), client_context())
    assert outcome.refused_by_server == "PEER_DID_NOT_RETURN_A_CERTIFICATE"


def test_requested_accepts_a_client_without_a_certificate() -> None:
    """Such a client has no name."""
    outcome = shake(server_context(with_clients("requested")), client_context())
    assert outcome.is_connected
    assert outcome.peer is None


@pytest.mark.parametrize("client_auth", ["requested", "required"])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_has_the_name_of_its_certificate(client_auth: str, version: str) -> None:
    """The name is written as Java writes it."""
    context = server_context(with_clients(client_auth, enabled_protocols=(version,)))
    outcome = shake(context, client_context(pki().client))
    assert outcome.is_connected
    assert outcome.peer is not None
    assert str(PrincipalMapper().principal_of(outcome.peer, NOW_S)) == "User:CN=alice,OU=users"


@pytest.mark.parametrize("client_auth", ["requested", "required"])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_certificate_of_another_authority_is_refused(client_auth: str, version: str) -> None:
    """It is refused also where a certificate is not required."""
    context = server_context(with_clients(client_auth, enabled_protocols=(version,)))
    outcome = shake(context, client_context(pki().stranger))
    assert outcome.refused_by_server == "CERTIFICATE_VERIFY_FAILED"


@pytest.mark.parametrize(
    "times",
    [
        {"not_before_s": NOW_S - 3 * DAY_S, "not_after_s": NOW_S - DAY_S},
        {"not_before_s": NOW_S + DAY_S, "not_after_s": NOW_S + 3 * DAY_S},
    ],
)
def test_a_certificate_outside_its_dates_is_refused(times: dict[str, float]) -> None:
    """It has expired, or is not valid yet."""
    client = pki().authority.issue_client([("CN", "alice")], **times)
    outcome = shake(server_context(with_clients()), client_context(client))
    assert outcome.refused_by_server == "CERTIFICATE_VERIFY_FAILED"


def test_a_servers_certificate_is_no_clients() -> None:
    """The extended key usage of the certificate counts."""
    outcome = shake(server_context(with_clients()), client_context(pki().other_server))
    assert outcome.refused_by_server == "CERTIFICATE_VERIFY_FAILED"


def test_an_intermediate_authority_is_trusted_without_its_root() -> None:
    """As in Java, every certificate of the truststore is trusted."""
    middle = CertificateAuthority("middle", NOW_S, issuer=pki().other)
    context = server_context(with_clients(truststore_certificates=middle.truststore_pem))
    client = middle.issue_client([("CN", "carol")])
    assert shake(context, client_context(client)).is_connected
    assert not shake(context, client_context(pki().stranger)).is_connected


def test_several_authorities_are_trusted() -> None:
    """The truststore holds one certificate after the other."""
    both = pki().authority.truststore_pem + pki().other.truststore_pem
    context = server_context(with_clients(truststore_certificates=both))
    assert shake(context, client_context(pki().client)).is_connected
    assert shake(context, client_context(pki().stranger)).is_connected


def test_the_named_cipher_suite_is_used() -> None:
    """A client without it cannot connect."""
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    context = server_context(options(enabled_protocols=("TLSv1.2",), cipher_suites=(suite,)))
    outcome = shake(context, client_context())
    cipher = outcome.server.cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
    other = client_context()
    other.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    assert shake(context, other).refused_by_server == "NO_SHARED_CIPHER"


def test_a_session_has_no_ticket() -> None:
    """With TLS 1.3 each connection verifies the certificate of its client."""
    context = server_context(with_clients(enabled_protocols=("TLSv1.3",)))
    client = client_context(pki().client)
    first = shake(context, client)
    again = shake(context, client, first.client.session)
    assert again.is_connected
    assert not again.client.session_reused


def test_a_client_cannot_renegotiate() -> None:
    """A client of TLS 1.2 could change its certificate by that, and cost time."""
    assert server_context(options()).options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_the_key_is_encrypted_or_not(password: str | None) -> None:
    """`ssl.key.password` opens a key in PKCS#8."""
    key = pki().server.key_pem(password)
    context = server_context(options(keystore_key=key, key_password=password))
    assert shake(context, client_context()).is_connected
