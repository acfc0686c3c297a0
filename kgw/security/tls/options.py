"""The TLS settings of one listener, with Kafka's names and meanings. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from kgw.security.tls.errors import TlsSettingError

PEM: Final = "PEM"
PKCS12: Final = "PKCS12"

NO_CLIENT_AUTH: Final = "none"
REQUESTED: Final = "requested"
REQUIRED: Final = "required"
CLIENT_AUTH: Final = (NO_CLIENT_AUTH, REQUESTED, REQUIRED)

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
PROTOCOLS: Final = (TLS_1_2, TLS_1_3)
OLD_PROTOCOLS: Final = frozenset({"SSLv2Hello", "SSLv2", "SSLv3", "TLSv1", "TLSv1.1"})

SECRETS: Final = frozenset(
    {
        "keystore_password",
        "key_password",
        "keystore_key",
        "truststore_password",
        # Certificates are public, but someone may put a key among them.
        "keystore_certificate_chain",
        "truststore_certificates",
    }
)

CIPHER_SUITES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
}
"""The cipher suites for TLS 1.2: Kafka's (IANA's) names and OpenSSL's.

All of them have forward secrecy and authenticated encryption, as RFC 9325 recommends.
"""

TLS_1_3_SUITES: Final = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
)
"""The cipher suites for TLS 1.3. Python's `ssl` cannot disable one of them."""


class TlsOptions(NamedTuple):
    """The values of one listener's TLS settings."""

    keystore_type: str = PEM
    keystore_location: str | None = None
    keystore_password: str | None = None
    key_password: str | None = None
    keystore_key: str | None = None
    keystore_certificate_chain: str | None = None
    truststore_type: str = PEM
    truststore_location: str | None = None
    truststore_password: str | None = None
    truststore_certificates: str | None = None
    client_auth: str = NO_CLIENT_AUTH
    enabled_protocols: tuple[str, ...] = PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    principal_mapping_rules: str = "DEFAULT"

    def __repr__(self) -> str:
        """Show the values that are set, without secrets."""
        shown = [
            f"{name}={'[hidden]' if name in SECRETS else repr(value)}"
            for name, value in self._asdict().items()
            if value != self._field_defaults[name]
        ]
        return f"TlsOptions({', '.join(shown)})"

    @staticmethod
    def setting(field: str) -> str:
        """Return the name of the setting of a field: `ssl.keystore.location`."""
        return f"ssl.{field.replace('_', '.')}"

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the settings name."""
        return tuple(one for one in (self.keystore_location, self.truststore_location) if one)


def check_options(options: TlsOptions) -> None:
    """Check everything that needs no file. Raises TlsSettingError."""
    _check_client_auth(options)
    _check_protocols(options)
    _check_cipher_suites(options)
    _check_store(options, "keystore", options.keystore_type)
    _check_store(options, "truststore", options.truststore_type)
    _check_keystore(options)
    _check_truststore(options)


def _check_client_auth(options: TlsOptions) -> None:
    name = options.setting("client_auth")
    if options.client_auth not in CLIENT_AUTH:
        raise TlsSettingError(
            f"{name} is {options.client_auth!r}; it can be none, requested or required."
        )
    has_truststore = options.truststore_location or options.truststore_certificates
    if options.client_auth != NO_CLIENT_AUTH and not has_truststore:
        raise TlsSettingError(
            f"{name} is {options.client_auth}, which needs the certificates of authorities in"
            f" {options.setting('truststore_location')} or"
            f" {options.setting('truststore_certificates')}."
        )


def _check_protocols(options: TlsOptions) -> None:
    name = options.setting("enabled_protocols")
    if not options.enabled_protocols:
        raise TlsSettingError(f"{name} is empty; it can have TLSv1.2 and TLSv1.3.")
    for protocol in options.enabled_protocols:
        if protocol in OLD_PROTOCOLS:
            raise TlsSettingError(
                f"{name} has {protocol}, which is not secure; it can have TLSv1.2 and TLSv1.3."
            )
        if protocol not in PROTOCOLS:
            raise TlsSettingError(
                f"{name} has {protocol!r}, which is unknown; it can have TLSv1.2 and TLSv1.3."
            )


def _check_cipher_suites(options: TlsOptions) -> None:
    name = options.setting("cipher_suites")
    named = set(options.cipher_suites)
    for suite in options.cipher_suites:
        if suite not in CIPHER_SUITES and suite not in TLS_1_3_SUITES:
            raise TlsSettingError(
                f"{name} has {suite!r}, which is unknown or not secure; for TLSv1.2 it can have"
                f" {', '.join(CIPHER_SUITES)}."
            )
    if not named:
        return
    left_out = TLS_1_3_SUITES - named
    if TLS_1_3 in options.enabled_protocols and left_out != TLS_1_3_SUITES and left_out:
        raise TlsSettingError(
            f"{name} leaves out {', '.join(sorted(left_out))}, but kgw can only enable all cipher"
            " suites of TLSv1.3: name all three or none of them."
        )
    if TLS_1_2 in options.enabled_protocols and not named & CIPHER_SUITES.keys():
        raise TlsSettingError(
            f"{name} has no cipher suite for TLSv1.2, which"
            f" {options.setting('enabled_protocols')} enables."
        )


def _check_store(options: TlsOptions, store: str, store_type: str) -> None:
    name = options.setting(f"{store}_type")
    if store_type in {"JKS", "JCEKS"}:
        raise TlsSettingError(f"{name} is {store_type}, which kgw cannot read; {CONVERT}")
    if store_type not in {PEM, PKCS12}:
        raise TlsSettingError(f"{name} is {store_type!r}; it can be PEM or PKCS12.")


CONVERT: Final = "convert the file with keytool -importkeystore -deststoretype PKCS12, or to PEM."


def _check_keystore(options: TlsOptions) -> None:
    location = options.setting("keystore_location")
    key = options.setting("keystore_key")
    chain = options.setting("keystore_certificate_chain")
    has_texts = options.keystore_key or options.keystore_certificate_chain
    if options.keystore_type != PEM and has_texts:
        raise TlsSettingError(
            f"{options.setting('keystore_type')} is {options.keystore_type}; {key} and {chain}"
            " need PEM."
        )
    if options.keystore_location and has_texts:
        raise TlsSettingError(f"{location} is set, and so is {key} or {chain}; set one of the two.")
    if options.keystore_type == PEM and options.keystore_password:
        raise TlsSettingError(
            f"{options.setting('keystore_password')} is set, but a keystore of type PEM has no"
            f" password; the password of its private key is {options.setting('key_password')}."
        )
    if options.keystore_location:
        return
    if not has_texts:
        raise TlsSettingError(f"{location} is not set; a listener with TLS needs a certificate.")
    if not options.keystore_key:
        raise TlsSettingError(f"{key} is not set, but {chain} is; both are needed.")
    if not options.keystore_certificate_chain:
        raise TlsSettingError(f"{chain} is not set, but {key} is; both are needed.")


def _check_truststore(options: TlsOptions) -> None:
    location = options.setting("truststore_location")
    texts = options.setting("truststore_certificates")
    if options.truststore_type != PEM and options.truststore_certificates:
        raise TlsSettingError(
            f"{options.setting('truststore_type')} is {options.truststore_type}; {texts} needs PEM."
        )
    if options.truststore_location and options.truststore_certificates:
        raise TlsSettingError(f"{location} is set, and so is {texts}; set one of the two.")
    if options.truststore_type == PEM and options.truststore_password:
        raise TlsSettingError(
            f"{options.setting('truststore_password')} is set, but a truststore of type PEM has no"
            " password."
        )
