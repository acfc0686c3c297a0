"""The certificates for tests."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key, pkcs12

from kgw.testing.certificates import DAY_S, CertificateAuthority

NOW_S = 1_900_000_000.0


def test_a_server_has_names_and_addresses() -> None:
    """Clients look for them in the subject's alternative names."""
    issued = CertificateAuthority("a", NOW_S).issue_server(["kafka.example", "127.0.0.1", "::1"])
    names = issued.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kafka.example"]
    assert names.get_values_for_type(x509.IPAddress) == [ip_address("127.0.0.1"), ip_address("::1")]
    assert issued.certificate.subject.rfc4514_string() == "CN=kafka.example"


def test_times_are_those_that_the_caller_gives() -> None:
    """Nothing reads a clock."""
    authority = CertificateAuthority("a", NOW_S)
    issued = authority.issue_client([("CN", "b")]).certificate
    assert issued.not_valid_before_utc.timestamp() == NOW_S - DAY_S
    assert issued.not_valid_after_utc.timestamp() == NOW_S + 365 * DAY_S
    old = authority.issue_client([("CN", "b")], not_before_s=0, not_after_s=DAY_S).certificate
    assert (old.not_valid_before_utc.timestamp(), old.not_valid_after_utc.timestamp()) == (0, DAY_S)
    assert authority.certificates[0].not_valid_after_utc.timestamp() == NOW_S + 3_650 * DAY_S


def test_the_chain_leads_to_the_root() -> None:
    """A server sends it without the root."""
    root = CertificateAuthority("root", NOW_S)
    middle = CertificateAuthority("middle", NOW_S, issuer=root)
    issued = middle.issue_server(["a"])
    assert [one.issuer for one in (issued.certificate, *issued.issuers)] == [
        middle.subject,
        root.subject,
        root.subject,
    ]
    issued.certificate.verify_directly_issued_by(middle.certificates[0])
    middle.certificates[0].verify_directly_issued_by(root.certificates[0])
    sent = x509.load_pem_x509_certificates(issued.chain_pem.encode())
    assert sent == [issued.certificate, middle.certificates[0]]


@pytest.mark.parametrize("password", [None, "secret"])
def test_keystores_have_kafkas_forms(password: str | None) -> None:
    """PEM has key and chain in one file; PKCS12 needs its password."""
    authority = CertificateAuthority("a", NOW_S)
    issued = authority.issue_server(["a"])
    text = issued.keystore_pem(password)
    given = password.encode() if password else None
    key = load_pem_private_key(text.encode(), given)
    assert key.public_key() == issued.certificate.public_key()
    assert ("ENCRYPTED" in text) == (password is not None)
    store = pkcs12.load_pkcs12(issued.keystore_pkcs12("p"), b"p")
    assert store.cert is not None
    assert store.cert.certificate == issued.certificate
    trusted = pkcs12.load_pkcs12(authority.truststore_pkcs12("p"), b"p").additional_certs
    assert [one.certificate for one in trusted] == list(authority.certificates)
    assert authority.truststore_pem == authority.certificates[0].public_bytes(Encoding.PEM).decode()
