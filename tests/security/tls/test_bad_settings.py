"""Each setting that cannot be used has one sentence, which shows no secret."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from kgw.security.tls.errors import TlsSettingError
from kgw.security.tls.keystores import read_key_material, validity_warnings
from kgw.security.tls.options import TlsOptions
from kgw.testing.certificates import DAY_S, IssuedCertificate
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

if TYPE_CHECKING:
    from pathlib import Path

WRONG = "another-canary-2264"
KEY = pki().server.key_pem()
ENCRYPTED = pki().server.key_pem(PASSWORD)
CHAIN = pki().server.chain_pem
SERVER = pki().server
AUTHORITY = pki().authority.truststore_pem
JKS = b"\xfe\xed\xfe\xed\x00\x00\x00\x02"
OLD_KEY = (
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nQQ==\n-----END RSA PRIVATE KEY-----"
)
REVOCATION_LIST = "-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n"
BROKEN = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"


def rsa_key() -> str:
    """Return a key of another kind than the certificate's."""
    key = rsa.generate_private_key(65_537, 2_048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def refusal(given: TlsOptions) -> str:
    """Return the sentence, after a look at everything that a log could show of the error."""
    with pytest.raises(TlsSettingError) as raised:
        server_context(given)
    shown = "".join(traceback.format_exception(raised.value)) + repr(given)
    problem: BaseException | None = raised.value
    while problem is not None:
        shown += str(problem) + repr(problem.args)
        problem = problem.__context__ or problem.__cause__
    secrets = [
        PASSWORD,
        WRONG,
        *(line for line in (KEY + ENCRYPTED).splitlines() if line[0] != "-"),
    ]
    assert [one for one in secrets if one in shown] == []
    return str(raised.value)


# --- texts in the configuration ---


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"client_auth": "maybe"},
            "ssl.client.auth is 'maybe'; it can be none, requested or required.",
        ),
        (
            {"client_auth": "required"},
            (
                "ssl.client.auth is required, which needs the certificates of authorities in"
                " ssl.truststore.location or ssl.truststore.certificates."
            ),
        ),
        (
            {"enabled_protocols": ()},
            "ssl.enabled.protocols is empty; it can have TLSv1.2 and TLSv1.3.",
        ),
        (
            {"enabled_protocols": ("TLSv1.2", "TLSv1.1")},
            (
                "ssl.enabled.protocols has TLSv1.1, which is not secure; it can have TLSv1.2 and"
                " TLSv1.3."
            ),
        ),
        (
            {"enabled_protocols": ("SSLv3",)},
            (
                "ssl.enabled.protocols has SSLv3, which is not secure; it can have TLSv1.2"
                " and TLSv1.3."
            ),
        ),
        (
            {"enabled_protocols": ("tls",)},
            "ssl.enabled.protocols has 'tls', which is unknown; it can have TLSv1.2 and TLSv1.3.",
        ),
        (
            {"cipher_suites": ("TLS_AES_256_GCM_SHA384",)},
            (
                "ssl.cipher.suites leaves out TLS_AES_128_GCM_SHA256,"
                " TLS_CHACHA20_POLY1305_SHA256, but kgw"
                " can only enable all cipher suites of TLSv1.3: name all three or none of them."
            ),
        ),
        (
            {
                "cipher_suites": (
                    "TLS_AES_256_GCM_SHA384",
                    "TLS_AES_128_GCM_SHA256",
                    "TLS_CHACHA20_POLY1305_SHA256",
                )
            },
            (
                "ssl.cipher.suites has no cipher suite for TLSv1.2, which"
                " ssl.enabled.protocols enables."
            ),
        ),
        (
            {"keystore_type": "JKS"},
            (
                "ssl.keystore.type is JKS, which kgw cannot read; convert the file with keytool"
                " -importkeystore -deststoretype PKCS12, or to PEM."
            ),
        ),
        (
            {"truststore_type": "JKS"},
            (
                "ssl.truststore.type is JKS, which kgw cannot read; convert the file with keytool"
                " -importkeystore -deststoretype PKCS12, or to PEM."
            ),
        ),
        ({"keystore_type": "pkcs11"}, "ssl.keystore.type is 'pkcs11'; it can be PEM or PKCS12."),
        ({"truststore_type": ""}, "ssl.truststore.type is ''; it can be PEM or PKCS12."),
        (
            {"keystore_type": "PKCS12"},
            (
                "ssl.keystore.type is PKCS12; ssl.keystore.key and"
                " ssl.keystore.certificate.chain need"
                " PEM."
            ),
        ),
        (
            {"keystore_location": "/a"},
            (
                "ssl.keystore.location is set, and so is ssl.keystore.key or"
                " ssl.keystore.certificate.chain; set one of the two."
            ),
        ),
        (
            {"keystore_password": PASSWORD},
            (
                "ssl.keystore.password is set, but a keystore of type PEM has no"
                " password; the password of"
                " its private key is ssl.key.password."
            ),
        ),
        (
            {"keystore_key": None},
            "ssl.keystore.key is not set, but ssl.keystore.certificate.chain is; both are needed.",
        ),
        (
            {"keystore_certificate_chain": None},
            "ssl.keystore.certificate.chain is not set, but ssl.keystore.key is; both are needed.",
        ),
        (
            {"keystore_key": None, "keystore_certificate_chain": None},
            "ssl.keystore.location is not set; a listener with TLS needs a certificate.",
        ),
        (
            {"truststore_type": "PKCS12", "truststore_certificates": AUTHORITY},
            "ssl.truststore.type is PKCS12; ssl.truststore.certificates needs PEM.",
        ),
        (
            {"truststore_location": "/a", "truststore_certificates": AUTHORITY},
            (
                "ssl.truststore.location is set, and so is ssl.truststore.certificates;"
                " set one of the"
                " two."
            ),
        ),
        (
            {"truststore_certificates": AUTHORITY, "truststore_password": PASSWORD},
            "ssl.truststore.password is set, but a truststore of type PEM has no password.",
        ),
        ({"keystore_key": "x"}, "ssl.keystore.key is not PEM: it has no line -----BEGIN ...-----."),
        (
            {"keystore_key": CHAIN},
            "ssl.keystore.key has no private key: PEM with BEGIN PRIVATE KEY is needed.",
        ),
        ({"keystore_key": KEY + KEY}, "ssl.keystore.key has 2 private keys; it must have one."),
        (
            {"keystore_key": ENCRYPTED},
            "ssl.keystore.key has an encrypted private key, but ssl.key.password is not set.",
        ),
        (
            {"keystore_key": ENCRYPTED, "key_password": WRONG},
            (
                "ssl.keystore.key: the private key cannot be read: ssl.key.password is"
                " wrong, or the key is"
                " damaged."
            ),
        ),
        ({"keystore_key": ENCRYPTED, "key_password": WRONG * 100}, "ssl.key.password is too long."),
        (
            {"keystore_key": OLD_KEY, "key_password": PASSWORD},
            (
                "ssl.keystore.key cannot be read: the RSA PRIVATE KEY is encrypted in"
                " an old form: convert"
                " it to PKCS#8."
            ),
        ),
        (
            {"keystore_key": KEY.replace("-----END", "-----ENDE")},
            "ssl.keystore.key cannot be read: a block of the PEM has no end.",
        ),
        (
            {"keystore_key": KEY.replace("\n-----END", "!\n-----END")},
            "ssl.keystore.key cannot be read: the PRIVATE KEY is damaged.",
        ),
        (
            {"keystore_key": "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"},
            "ssl.keystore.key: the private key or a certificate is damaged (no reason).",
        ),
        (
            {"keystore_key": pki().client.key_pem()},
            "ssl.keystore.key: the private key does not fit the certificate.",
        ),
        (
            {"keystore_certificate_chain": KEY},
            (
                "ssl.keystore.certificate.chain has no certificate: PEM with BEGIN"
                " CERTIFICATE is needed."
            ),
        ),
        (
            {"keystore_certificate_chain": CHAIN + BROKEN},
            "ssl.keystore.certificate.chain: its certificate 2 is damaged.",
        ),
        (
            {"truststore_certificates": KEY},
            "ssl.truststore.certificates has no certificate: PEM with BEGIN CERTIFICATE is needed.",
        ),
        (
            {"truststore_certificates": AUTHORITY + REVOCATION_LIST},
            "ssl.truststore.certificates has a certificate revocation list, which kgw cannot use.",
        ),
    ],
)
def test_a_text_that_cannot_be_used_is_refused(values: dict[str, Any], sentence: str) -> None:
    """The sentence names the setting."""
    assert sentence == refusal(options(**values))


def test_a_key_of_another_kind_than_the_certificate_is_refused() -> None:
    """RSA does not fit an elliptic curve."""
    assert refusal(options(keystore_key=rsa_key())) == (
        "ssl.keystore.key: the private key does not fit the certificate."
    )


def test_an_unknown_cipher_suite_is_refused() -> None:
    """OpenSSL would ignore it; one without forward secrecy is refused, too."""
    for suite in ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_NONE"):
        good = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        said = refusal(options(cipher_suites=(good, suite)))
        assert said.startswith(f"ssl.cipher.suites has {suite!r}, which is unknown or not secure;")


def test_every_known_cipher_suite_can_be_used() -> None:
    """OpenSSL knows all of them."""
    from kgw.security.tls.options import CIPHER_SUITES, TLS_1_3_SUITES

    for suite, name in CIPHER_SUITES.items():
        context = server_context(options(cipher_suites=(suite, *TLS_1_3_SUITES)))
        enabled = {one["name"] for one in context.get_ciphers()}
        assert enabled == {name, *TLS_1_3_SUITES}


# --- files ---


def in_file(folder: Path, content: bytes | str, **values: Any) -> TlsOptions:
    """Return options whose keystore has this content."""
    file = folder / "keystore"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return TlsOptions(keystore_location=str(file), **values)


def test_a_pem_file_has_key_and_chain(tmp_path: Path) -> None:
    """The order of the blocks does not matter, and text between them is ignored."""
    for content in (KEY + CHAIN, f"Bag Attributes\n{CHAIN}\nkey:\n{KEY}"):
        assert shake(server_context(in_file(tmp_path, content)), client_context()).is_connected
    encrypted = in_file(tmp_path, ENCRYPTED + CHAIN, key_password=PASSWORD)
    assert shake(server_context(encrypted), client_context()).is_connected


def test_a_text_without_line_ends_is_read() -> None:
    """A properties file joins the lines of a value."""
    given = with_clients(
        keystore_key=KEY.replace("\n", " "),
        keystore_certificate_chain=CHAIN.replace("\n", " "),
        truststore_certificates=AUTHORITY.replace("\n", " "),
    )
    assert shake(server_context(given), client_context(pki().client)).is_connected


FILES: list[tuple[bytes | str, dict[str, Any], str]] = [
    (b"", {}, "ssl.keystore.location: {} is empty."),
    (b"", {"keystore_type": "PKCS12"}, "ssl.keystore.location: {} is empty."),
    (
        JKS,
        {},
        (
            "ssl.keystore.location: {} is a JKS keystore, which kgw cannot read; convert the"
            " file with keytool -importkeystore -deststoretype PKCS12, or to PEM."
        ),
    ),
    (
        JKS,
        {"keystore_type": "PKCS12"},
        (
            "ssl.keystore.location: {} is a JKS keystore, which kgw"
            " cannot read; convert the file with keytool -importkeystore"
            " -deststoretype PKCS12, or to"
            " PEM."
        ),
    ),
    (b"hello", {}, "ssl.keystore.location: {} is not PEM: it has no line -----BEGIN ...-----."),
    (
        SERVER.keystore_pkcs12(PASSWORD),
        {},
        "ssl.keystore.location: {} is not PEM; if it is PKCS12, set ssl.keystore.type=PKCS12.",
    ),
    (
        KEY + CHAIN,
        {"keystore_type": "PKCS12"},
        "ssl.keystore.location: {} is not PKCS12; it is PEM, so set ssl.keystore.type=PEM.",
    ),
    (b"hello", {"keystore_type": "PKCS12"}, "ssl.keystore.location: {} is not PKCS12."),
    (
        SERVER.keystore_pkcs12(PASSWORD),
        {"keystore_type": "PKCS12", "keystore_password": WRONG},
        (
            "ssl.keystore.location: {} cannot be opened: ssl.keystore.password is"
            " wrong, or the file is"
            " damaged."
        ),
    ),
    (
        SERVER.keystore_pkcs12(PASSWORD),
        {"keystore_type": "PKCS12"},
        (
            "ssl.keystore.location: {} cannot be opened: ssl.keystore.password is"
            " wrong, or the file is"
            " damaged."
        ),
    ),
    (
        SERVER.keystore_pkcs12(PASSWORD)[:-9],
        {"keystore_type": "PKCS12", "keystore_password": PASSWORD},
        (
            "ssl.keystore.location: {} cannot be opened: ssl.keystore.password is"
            " wrong, or the file is"
            " damaged."
        ),
    ),
    (
        SERVER.keystore_pkcs12(PASSWORD),
        {"keystore_type": "PKCS12", "keystore_password": PASSWORD, "key_password": WRONG},
        (
            "ssl.key.password differs from ssl.keystore.password: in PKCS12 both are the same"
            " password."
        ),
    ),
    (
        pki().authority.truststore_pkcs12(PASSWORD),
        {"keystore_type": "PKCS12", "keystore_password": PASSWORD},
        "ssl.keystore.location: {} has no private key with its certificate.",
    ),
    (
        CHAIN,
        {},
        "ssl.keystore.location has no private key: PEM with BEGIN PRIVATE KEY is needed.",
    ),
    (
        KEY,
        {},
        "ssl.keystore.location has no certificate: PEM with BEGIN CERTIFICATE is needed.",
    ),
    (
        ENCRYPTED + CHAIN,
        {},
        "ssl.keystore.location has an encrypted private key, but ssl.key.password is not set.",
    ),
    (
        ENCRYPTED + CHAIN,
        {"key_password": WRONG},
        (
            "ssl.keystore.location: the private key cannot"
            " be read: ssl.key.password is wrong, or the key is damaged."
        ),
    ),
    (
        KEY + pki().client.chain_pem,
        {},
        "ssl.keystore.location: the private key does not fit the certificate.",
    ),
    (
        (KEY + CHAIN)[:-9],
        {},
        "ssl.keystore.location: {} cannot be read: a block of the PEM has no end.",
    ),
]


# The contents are other ones in each process; pytest-xdist wants the same names of tests.
@pytest.mark.parametrize(("content", "values", "sentence"), FILES, ids=range(len(FILES)))
def test_a_file_that_cannot_be_used_is_refused(
    tmp_path: Path, content: bytes | str, values: dict[str, Any], sentence: str
) -> None:
    """The sentence names the setting, the file and the way out."""
    given = in_file(tmp_path, content, **values)
    assert sentence.format(given.keystore_location) == refusal(given)


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, kind: str) -> None:
    """It is missing, or a directory."""
    missing = str(tmp_path / "missing")
    given = TlsOptions(keystore_type=kind, keystore_location=missing)
    assert refusal(given) == (
        f"ssl.keystore.location: cannot read {missing}: No such file or directory."
    )
    given = options(truststore_type=kind, truststore_location=str(tmp_path), client_auth="required")
    assert refusal(given) == (f"ssl.truststore.location: cannot read {tmp_path}: Is a directory.")


def test_a_file_without_an_end_is_refused() -> None:
    """A device is read up to the limit."""
    assert refusal(TlsOptions(keystore_location="/dev/zero")) == (
        "ssl.keystore.location: /dev/zero is larger than 16777216 bytes."
    )


def test_a_weak_key_is_refused(tmp_path: Path) -> None:
    """OpenSSL wants 2048 bits of RSA, where Python has it so."""
    key = rsa.generate_private_key(65_537, 1_024)  # noqa: S505 - too weak on purpose
    certificate = pki().server.certificate
    weak = pki().authority.sign(
        x509.CertificateBuilder()
        .subject_name(certificate.subject)
        .issuer_name(certificate.issuer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(certificate.not_valid_before_utc)
        .not_valid_after(certificate.not_valid_after_utc)
    )
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert refusal(in_file(tmp_path, text + weak.public_bytes(Encoding.PEM))) == (
        "ssl.keystore.location: OpenSSL finds the certificate or its key too weak"
        " (EE_KEY_TOO_SMALL)."
    )


# --- PKCS12 ---


def test_pkcs12_is_read(tmp_path: Path) -> None:
    """The keystore's chain and the truststore's authorities are used."""
    truststore = tmp_path / "truststore"
    truststore.write_bytes(pki().authority.truststore_pkcs12(PASSWORD))
    given = in_file(
        tmp_path,
        SERVER.keystore_pkcs12(PASSWORD),
        keystore_type="PKCS12",
        keystore_password=PASSWORD,
        truststore_type="PKCS12",
        truststore_location=str(truststore),
        truststore_password=PASSWORD,
        client_auth="required",
    )
    context = server_context(given)
    assert shake(context, client_context(pki().client)).is_connected
    assert not shake(context, client_context(pki().stranger)).is_connected
    assert refusal(given._replace(truststore_password=WRONG)) == (
        f"ssl.truststore.location: {truststore} cannot be opened: ssl.truststore.password is wrong,"
        " or the file is damaged."
    )


def test_the_chain_in_pkcs12_is_brought_into_order(tmp_path: Path) -> None:
    """The file has the issuers in any order; certificates that are no issuers are not sent."""
    from kgw.testing.certificates import CertificateAuthority

    upper = CertificateAuthority("upper", NOW_S, issuer=pki().authority)
    lower = CertificateAuthority("lower", NOW_S, issuer=upper)
    issued = lower.issue_server(["localhost"])
    others = [pki().other.certificates[0], *reversed(issued.issuers)]
    content = pkcs12.serialize_key_and_certificates(
        b"a",
        issued.private_key,
        issued.certificate,
        others,
        BestAvailableEncryption(PASSWORD.encode()),
    )
    given = in_file(
        tmp_path, content, keystore_type="PKCS12", keystore_password=PASSWORD, key_password=PASSWORD
    )
    in_order = [issued.certificate, *issued.issuers]
    material = read_key_material(given)
    assert [one.public_bytes(Encoding.DER) for one in in_order] == list(material.chain)
    assert shake(server_context(given), client_context()).is_connected


def test_pkcs12_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PEM needs no package."""
    given = in_file(tmp_path, SERVER.keystore_pkcs12(PASSWORD), keystore_type="PKCS12")
    plain = options()
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    server_context(plain)
    said = refusal(given)
    assert said.startswith("ssl.keystore.location is PKCS12, which needs an extra of kgw: ")
    assert said.endswith("'kgw-broker[tls]'")


# --- where the key is ---


def test_the_key_is_never_in_a_named_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux has files in memory."""

    def no_file(*arguments: object, **named: object) -> tuple[int, str]:
        raise AssertionError

    monkeypatch.setattr("tempfile.mkstemp", no_file)
    server_context(options())


@pytest.mark.parametrize("password", [PASSWORD, WRONG])
def test_without_files_in_memory_the_temporary_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    """It has mode 0600 while it exists, and is removed after an error, too."""
    modes: list[int] = []
    real_unlink = os.unlink

    def unlink(path: str | Path, **named: Any) -> None:
        modes.append(os.stat(path).st_mode & 0o777)  # noqa: PTH116 - Path.stat is watched, too
        real_unlink(path, **named)

    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "unlink", unlink)
    given = options(keystore_key=ENCRYPTED, key_password=password)
    if password == PASSWORD:
        assert shake(server_context(given), client_context()).is_connected
    else:
        refusal(given)
    assert modes == [0o600]
    assert list(tmp_path.iterdir()) == []


def test_nothing_shows_a_secret() -> None:
    """Options and contents of a keystore may be part of a log line."""
    given = options(keystore_key=ENCRYPTED, key_password=PASSWORD)
    assert repr(given) == (
        "TlsOptions(key_password=[hidden], keystore_key=[hidden],"
        " keystore_certificate_chain=[hidden])"
    )
    assert repr(read_key_material(given)) == "KeyMaterial(1 in the chain, 0 trusted)"


# --- dates ---


def issued_at(**times: float) -> IssuedCertificate:
    """Return a certificate of the server."""
    return pki().authority.issue_server(["localhost"], **times)


@pytest.mark.parametrize(
    ("times", "ending"),
    [
        ({}, None),
        ({"not_before_s": 0.0, "not_after_s": 86_400.0}, "expired on 1970-01-02 at 00:00:00 UTC."),
        (
            {"not_before_s": 2e9, "not_after_s": 3e9},
            "is not valid before 2033-05-18 at 03:33:20 UTC.",
        ),
    ],
)
def test_a_certificate_outside_its_dates_gives_a_warning(
    times: dict[str, float], ending: str | None
) -> None:
    """The listener works: the clock may be wrong, and clients notice by themselves."""
    given = options(issued_at(**times))
    server_context(given)
    warnings = (
        []
        if ending is None
        else [f"ssl.keystore.certificate.chain: the certificate CN=localhost {ending}"]
    )
    assert warnings == validity_warnings(given, read_key_material(given), NOW_S)


def test_warnings_name_the_setting_of_the_certificate(tmp_path: Path) -> None:
    """Authorities expire, too."""
    truststore = tmp_path / "truststore"
    truststore.write_text(AUTHORITY)
    given = in_file(tmp_path, KEY + CHAIN, truststore_location=str(truststore))
    material = read_key_material(given)
    assert validity_warnings(given, material, NOW_S) == []
    late = validity_warnings(given, material, NOW_S + 4_000 * DAY_S)
    assert [one.partition(" expired")[0] for one in late] == [
        "ssl.keystore.location: the certificate CN=localhost",
        "ssl.truststore.location: the certificate CN=kgw test",
    ]
