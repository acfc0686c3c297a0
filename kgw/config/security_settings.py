"""Settings of TLS and of the login, with Kafka's names."""

from __future__ import annotations

from kgw.config.setting import SettingType, TypedSetting, Value, dynamic_setting, fixed

MECHANISMS = ("OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The SASL mechanisms that kgw serves."""
_NOT_SERVED = {
    "GSSAPI": "Kerberos is not served",
}


def _check_mechanisms(value: Value) -> None:
    for name in value if isinstance(value, tuple) else ():
        if name not in MECHANISMS:
            why = _NOT_SERVED.get(name, "there is no such mechanism")
            raise ValueError(f"{name} is refused: {why} ({', '.join(MECHANISMS)})")
    if not value:
        raise ValueError(f"at least one mechanism is needed ({', '.join(MECHANISMS)})")


def _check_protocols(value: Value) -> None:
    for name in value if isinstance(value, tuple) else ():
        if name not in {"TLSv1.2", "TLSv1.3"}:
            raise ValueError(f"{name} is refused: TLSv1.2 and TLSv1.3 are served")
    if not value:
        raise ValueError("at least one of TLSv1.2 and TLSv1.3 is needed")


def _check_certificates(value: Value) -> None:
    if "PRIVATE KEY" in str(value):
        raise ValueError("a private key is among the certificates")


class TlsSettings:
    """Settings of listeners whose protocol is SSL or SASL_SSL."""

    ssl_keystore_type = TypedSetting(
        "ssl.keystore.type",
        "PEM",
        "Form of the server's key and certificate: `PEM`, or `PKCS12`. Kafka's default is JKS, "
        "which is refused.",
        allowed=("PEM", "PKCS12"),
        reason="keytool converts a JKS to PKCS12",
    )
    ssl_keystore_location = TypedSetting(
        "ssl.keystore.location",
        "",
        "File with the server's private key and its chain of certificates. Read again when it has "
        "changed, and at SIGHUP.",
    )
    ssl_keystore_password = TypedSetting(
        "ssl.keystore.password",
        "",
        "Password of the keystore, if it is PKCS12.",
        type_=SettingType.PASSWORD,
    )
    ssl_key_password = TypedSetting(
        "ssl.key.password",
        "",
        "Password of the private key, if that is encrypted.",
        type_=SettingType.PASSWORD,
    )
    ssl_keystore_key = TypedSetting(
        "ssl.keystore.key",
        "",
        "The private key itself as PEM, in place of a file.",
        type_=SettingType.PASSWORD,
    )
    ssl_keystore_certificate_chain = TypedSetting(
        "ssl.keystore.certificate.chain",
        "",
        "The chain of certificates itself as PEM, in place of a file.",
        type_=SettingType.PASSWORD,
        check=_check_certificates,
    )
    ssl_truststore_type = TypedSetting(
        "ssl.truststore.type",
        "PEM",
        "Form of the certificates that clients' certificates are checked against.",
        allowed=("PEM", "PKCS12"),
        reason="keytool converts a JKS to PKCS12",
    )
    ssl_truststore_location = TypedSetting(
        "ssl.truststore.location",
        "",
        "File with the certificates of the authorities whose clients are accepted. Read again when "
        "it has changed, and at SIGHUP.",
    )
    ssl_truststore_password = TypedSetting(
        "ssl.truststore.password",
        "",
        "Password of the truststore, if it is PKCS12.",
        type_=SettingType.PASSWORD,
    )
    ssl_truststore_certificates = TypedSetting(
        "ssl.truststore.certificates",
        "",
        "These certificates themselves as PEM, in place of a file.",
        type_=SettingType.PASSWORD,
        check=_check_certificates,
    )
    ssl_client_auth = TypedSetting(
        "ssl.client.auth",
        "none",
        "Whether clients show a certificate, at SSL and at SASL_SSL listeners: `required`, "
        "`requested` (one that is shown must be valid) or `none`. Kafka asks at SSL listeners "
        "alone.",
        allowed=("none", "requested", "required"),
    )
    ssl_enabled_protocols = TypedSetting(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        "The versions of TLS that are served.",
        check=_check_protocols,
    )
    ssl_cipher_suites = TypedSetting(
        "ssl.cipher.suites",
        (),
        "The cipher suites of TLS 1.2 that are served, by Kafka's names, as in "
        "`TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`. Empty: OpenSSL's own choice.",
    )
    ssl_principal_mapping_rules = TypedSetting(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "How a certificate's distinguished name becomes the name of a principal, as in "
        "`RULE:^CN=([^,]+).*$/$1/L,DEFAULT`; the first rule that matches counts.",
    )


def _check_super_users(value: Value) -> None:
    for text in filter(None, map(str.strip, str(value).split(";"))):
        principal_type, colon, name = text.partition(":")
        if not (principal_type and colon and name):
            raise ValueError(f"{text!r} is not TYPE:NAME, as in User:admin")


class AccessSettings:
    """Settings of access rules."""

    super_users = TypedSetting(
        "super.users",
        "",
        "Principals that may do everything, separated by semicolons, as in `User:admin;User:ops`. "
        "Switches access rules on: everybody else may do what a rule allows, and nothing else.",
        check=_check_super_users,
    )
    authorizer_class_name = TypedSetting(
        "authorizer.class.name",
        "",
        "Kafka's `org.apache.kafka.metadata.authorizer.StandardAuthorizer` switches access rules "
        "on without a super user. kgw loads no class.",
        allowed=("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        reason="kgw loads no classes",
    )
    access_rules_max = TypedSetting(
        "kgw.access.rules.max",
        10_000,
        "Access rules; more are refused with POLICY_VIOLATION. All of them are in memory.",
        minimum=1,
    )
    audit_log_level = TypedSetting(
        "kgw.audit.log.level",
        "info",
        "What the audit log (`kgw.audit`) has: changes of rules and users, and what clients were "
        "denied (`info`), also what they were allowed (`debug`), or nothing (`off`).",
        allowed=("debug", "info", "off"),
    )
    allow_everyone_if_no_acl_found = fixed(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether resources without a rule are open to everybody.",
        "a rule that is removed would open what it protected",
    )


def _check_key_set_url(value: Value) -> None:
    if value:
        from kgw.config.web_url import parse_web_url

        parse_web_url(str(value))


def _check_not_blank(value: Value) -> None:
    if not str(value).strip():
        raise ValueError("the name of a claim is needed")


class OAuthSettings:
    """Settings of the mechanism OAUTHBEARER, which needs the extra `oauth`."""

    sasl_oauthbearer_jwks_endpoint_url = TypedSetting(
        "sasl.oauthbearer.jwks.endpoint.url",
        "",
        "URL of the key set (JWKS) of the authorization server, with https. Redirects are not "
        "followed, and file URLs are refused.",
        check=_check_key_set_url,
    )
    sasl_oauthbearer_jwks_file = TypedSetting(
        "kgw.sasl.oauthbearer.jwks.file",
        "",
        "File with the key set (JWKS), in place of a URL, for a server that cannot reach the "
        "authorization server. It is read again as often as a URL.",
    )
    sasl_oauthbearer_jwks_over_http = TypedSetting(
        "kgw.sasl.oauthbearer.jwks.over.http",
        False,
        "Whether the URL of the key set may begin with http. It must name this machine (127.0.0.1, "
        "::1 or localhost); every process that can listen there can then let anybody in.",
    )
    sasl_oauthbearer_without_tls = TypedSetting(
        "kgw.sasl.oauthbearer.without.tls",
        False,
        "Whether OAUTHBEARER is served at SASL_PLAINTEXT listeners, where everybody on the way can "
        "read the token and use it.",
    )
    sasl_oauthbearer_expected_audience = TypedSetting(
        "sasl.oauthbearer.expected.audience",
        (),
        "The names of this server for the authorization server: a token must be for one of them "
        "(claim `aud`). Needed for OAUTHBEARER.",
    )
    sasl_oauthbearer_expected_issuer = TypedSetting(
        "sasl.oauthbearer.expected.issuer",
        "",
        "The name of the authorization server: a token must be from it (claim `iss`). Needed for "
        "OAUTHBEARER.",
    )
    sasl_oauthbearer_sub_claim_name = TypedSetting(
        "sasl.oauthbearer.sub.claim.name",
        "sub",
        "The claim that names the user.",
        check=_check_not_blank,
    )
    sasl_oauthbearer_scope_claim_name = TypedSetting(
        "sasl.oauthbearer.scope.claim.name",
        "scope",
        "The claim with the scopes: a string, or a list of strings. They allow nothing; access "
        "rules do.",
        check=_check_not_blank,
    )
    sasl_oauthbearer_clock_skew_seconds = TypedSetting(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "By how much the clock of the authorization server may be ahead of this one (claims `nbf` "
        "and `iat`). Unlike in Kafka, no token is accepted after its end (`exp`).",
        maximum=600,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = TypedSetting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        "How often the key set is fetched again. A token with an unknown key lets it be fetched "
        "at once, at most every ten seconds.",
        type_=SettingType.LONG,
        minimum=1_000,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = TypedSetting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        "The pause after a failed attempt to fetch the key set again; it doubles with each.",
        type_=SettingType.LONG,
        minimum=10,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = TypedSetting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        "The longest such pause.",
        type_=SettingType.LONG,
        minimum=10,
    )


def _check_secret(value: Value) -> None:
    try:
        str(value).encode()
    except UnicodeEncodeError:
        raise ValueError("the secret is not UTF-8") from None


class DelegationTokenSettings:
    """Settings of delegation tokens (KIP-48)."""

    delegation_token_secret_key = TypedSetting(
        "delegation.token.secret.key",
        "",
        "The secret from which the passwords of delegation tokens are made; at least 32 random "
        "characters. Empty: the server has no tokens. With another secret the tokens that were "
        "created before are invalid.",
        type_=SettingType.PASSWORD,
        check=_check_secret,
    )
    delegation_token_max_lifetime_ms = TypedSetting(
        "delegation.token.max.lifetime.ms",
        604_800_000,
        "How long a delegation token can be renewed.",
        type_=SettingType.LONG,
        minimum=1,
    )
    delegation_token_expiry_time_ms = TypedSetting(
        "delegation.token.expiry.time.ms",
        86_400_000,
        "How long a delegation token is valid, after its creation and after each renewal.",
        type_=SettingType.LONG,
        minimum=1,
    )
    delegation_token_expiry_check_interval_ms = TypedSetting(
        "delegation.token.expiry.check.interval.ms",
        3_600_000,
        "How often expired delegation tokens are removed. They are refused from their expiry on.",
        type_=SettingType.LONG,
        minimum=1,
    )
    delegation_tokens_max = TypedSetting(
        "kgw.delegation.tokens.max",
        10_000,
        "Delegation tokens; more are refused with POLICY_VIOLATION.",
        minimum=1,
    )
    delegation_tokens_per_principal_max = TypedSetting(
        "kgw.delegation.tokens.per.principal.max",
        1_000,
        "Delegation tokens that one principal owns or has requested; more are refused with "
        "POLICY_VIOLATION.",
        minimum=1,
    )


class LoginSettings:
    """Settings of listeners whose protocol is SASL_PLAINTEXT or SASL_SSL."""

    sasl_enabled_mechanisms = TypedSetting(
        "sasl.enabled.mechanisms",
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "The mechanisms by which clients may log in, of `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` "
        "and `OAUTHBEARER`. Kafka's default is GSSAPI.",
        check=_check_mechanisms,
    )
    sasl_plain_without_tls = TypedSetting(
        "kgw.sasl.plain.without.tls",
        False,
        "Whether PLAIN is served at SASL_PLAINTEXT listeners, where everybody on the way can read "
        "the password.",
    )
    connections_max_reauth_ms = TypedSetting(
        "connections.max.reauth.ms",
        0,
        "How long a login lasts, until the client must log in again (KIP-368); 0 for as long as "
        "the connection.",
        type_=SettingType.LONG,
    )
    connection_failed_authentication_delay_ms = TypedSetting(
        "connection.failed.authentication.delay.ms",
        100,
        "How long the answer to a failed login waits, so that passwords are not tried quickly.",
        maximum=60_000,
    )
    failed_logins_per_minute = dynamic_setting(
        "kgw.failed.logins.per.minute",
        60,
        "How many logins may fail in a minute, of clients with one IPv4 address or in one /64 "
        "network of IPv6; a sixth of them with the name of one user. Then logins are refused, but "
        "for other users who have logged in from there before. 0: no limit.",
        maximum=1_000_000,
    )
    login_timeout_ms = TypedSetting(
        "kgw.login.timeout.ms",
        10_000,
        "How long a client may take to log in, the TLS handshake included.",
        minimum=100,
    )
    sasl_server_max_receive_size = TypedSetting(
        "sasl.server.max.receive.size",
        65_536,
        "The largest request before the end of a login. Kafka's default is 524288.",
        minimum=1_024,
    )
