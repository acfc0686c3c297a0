"""Dates and names of certificates."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from kgw.security.tls.x509 import (
    HostNames,
    distinguished_name,
    read_certificate,
    read_host_names,
)
from kgw.testing.certificates import CertificateAuthority
from tests.security.tls.handshakes import NOW_S, pki

# The names as bytes, and what `X500Principal.getName()` of OpenJDK 17 makes of them.
JAVA_NAMES = json.loads(Path(__file__).with_name("java_names.json").read_text(encoding="utf-8"))
CLIENT = pki().client.certificate.public_bytes(Encoding.DER)
YEAR_2060_S = 2_840_140_800.0


@pytest.mark.parametrize(("der", "java"), JAVA_NAMES, ids=[one[1][:40] for one in JAVA_NAMES])
def test_a_name_is_written_as_java_writes_it(der: str, java: str) -> None:
    """Order, keywords, escapes and hex are those of RFC 2253 with Java's additions."""
    assert java == distinguished_name(bytes.fromhex(der))


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ([[("O", "Org"), ("CN", "alice")]], "O=Org+CN=alice"),
        ([[("O", "Org")], [("CN", "a,b"), ("OU", "x")]], "OU=x+CN=a\\,b,O=Org"),
        ([[("CN", "Zoë")]], "CN=Zoë"),
        ([[("emailAddress", "a@b")]], "1.2.840.113549.1.9.1=#1603614062"),
    ],
)
def test_the_name_of_a_whole_certificate_is_read(
    attributes: list[list[tuple[str, str]]], text: str
) -> None:
    """Relative names of several attributes keep the order of their encoding."""
    kinds = {
        "CN": NameOID.COMMON_NAME,
        "O": NameOID.ORGANIZATION_NAME,
        "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
        "emailAddress": NameOID.EMAIL_ADDRESS,
    }
    name = x509.Name(
        [
            x509.RelativeDistinguishedName(
                [x509.NameAttribute(kinds[key], value) for key, value in one]
            )
            for one in attributes
        ]
    )
    der = pki().authority.issue_client(name).certificate.public_bytes(Encoding.DER)
    assert text == distinguished_name(read_certificate(der).subject)


@pytest.mark.parametrize("not_after_s", [1_900_000_000.0, YEAR_2060_S])
def test_the_dates_are_read(not_after_s: float) -> None:
    """Dates from 2050 on have another form (RFC 5280)."""
    client = pki().authority.issue_client([("CN", "a")], not_before_s=0, not_after_s=not_after_s)
    read = read_certificate(client.certificate.public_bytes(Encoding.DER))
    assert (0, not_after_s) == (read.not_before_s, read.not_after_s)


def test_the_issuer_is_read() -> None:
    """It is the subject of the authority's certificate."""
    authority = CertificateAuthority("a", NOW_S)
    issued = authority.issue_client([("CN", "b")]).certificate.public_bytes(Encoding.DER)
    root = authority.certificates[0].public_bytes(Encoding.DER)
    assert read_certificate(issued).issuer == read_certificate(root).subject


@pytest.mark.parametrize(
    "der",
    [
        "",
        "30",
        "3005310330",
        # A value that is not UTF-8.
        "300c310a300806035504030c01e9",
        # A type without an end, no value, two values.
        "300d310b3009060355048403" + "0c0178"[:4],
        "300931073005" + "0603550403",
        "3010310e300c06035504030c01780c0179",
        # Bytes behind the name.
        "30003000",
    ],
)
def test_bytes_that_are_no_name_are_refused(der: str) -> None:
    """Nothing but ValueError is raised."""
    with pytest.raises(ValueError, match=r"."):
        distinguished_name(bytes.fromhex(der))


def test_a_name_that_is_too_long_is_refused() -> None:
    """The time of a rule's replacements grows with the name."""
    name = x509.Name([x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "x" * 60)] * 150)
    with pytest.raises(ValueError, match="has 9599 characters: at most 8192"):
        distinguished_name(name.public_bytes())


@given(st.binary(max_size=60))
def test_other_bytes_raise_only_value_errors(data: bytes) -> None:
    """Whatever a certificate contains."""
    for read in (distinguished_name, read_certificate):
        try:
            read(data)
        except ValueError:
            continue


@given(st.integers(0, len(CLIENT) - 1), st.integers(0, 255))
def test_a_damaged_certificate_raises_only_value_errors(position: int, byte: int) -> None:
    """One byte of a certificate is replaced."""
    damaged = bytearray(CLIENT)
    damaged[position] = byte
    try:
        distinguished_name(read_certificate(bytes(damaged)).subject)
    except ValueError:
        return


@given(st.integers(0, len(CLIENT) - 1))
def test_a_certificate_that_is_cut_is_refused(size: int) -> None:
    """Each beginning of a certificate raises ValueError."""
    with pytest.raises(ValueError, match=r"."):
        read_certificate(CLIENT[:size])


def test_the_hosts_of_a_certificate_are_read() -> None:
    """Names and addresses, in their order; one for clients has none."""
    issued = pki().authority.issue_server(["b.example", "*.a.example", "10.0.0.1", "::1"])
    der = issued.certificate.public_bytes(Encoding.DER)
    found = read_host_names(der)
    assert HostNames(("b.example", "*.a.example"), ("10.0.0.1", "::1")) == found
    assert "b.example, *.a.example, 10.0.0.1, ::1" == str(found)
    assert HostNames((), ()) == read_host_names(CLIENT)
    assert "no host" == str(HostNames((), ()))


@pytest.mark.parametrize("size", range(0, len(CLIENT), 7))
def test_no_hosts_are_read_of_a_certificate_that_is_cut(size: int) -> None:
    """The error is one of values."""
    with pytest.raises(ValueError, match=r".*"):
        read_host_names(CLIENT[:size])


@given(st.integers(0, len(CLIENT) - 1), st.integers(0, 255))
def test_hosts_of_a_damaged_certificate_raise_only_value_errors(position: int, byte: int) -> None:
    """A server may show anything."""
    with suppress(ValueError):
        read_host_names(CLIENT[:position] + bytes([byte]) + CLIENT[position + 1 :])


@pytest.mark.parametrize(
    ("host", "is_covered"),
    [
        ("kafka.example", True),
        ("KAFKA.example.", True),
        ("other.example", False),
        ("one.wild.example", True),
        ("a.one.wild.example", False),
        ("wild.example", False),
        ("*.wild.example", True),
        ("10.0.0.1", True),
        ("10.0.0.2", False),
        ("0:0:0:0:0:0:0:1", True),
        # An address in a DNS name is no address, and the other way round.
        ("10.0.0.9", False),
        ("example", False),
    ],
)
def test_a_certificate_covers_its_hosts(host: str, *, is_covered: bool) -> None:
    """As a client compares them."""
    names = HostNames(("kafka.example", "*.Wild.example", "10.0.0.9", "*."), ("10.0.0.1", "::1"))
    assert is_covered == names.covers(host)
