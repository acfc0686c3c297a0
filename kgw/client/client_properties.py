"""The properties of Kafka's clients: which are obeyed, which are ignored, which are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.config.properties import PropertyError
from kgw.config.setting import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OBEYED = {
    "security.protocol": "`PLAINTEXT` (default), `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.",
    "sasl.mechanism": "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`.",
    "sasl.jaas.config": "Kafka's `PlainLoginModule` or `ScramLoginModule` with `username` and "
    "`password`; with `tokenauth=true` those of a delegation token. Or its "
    "`OAuthBearerLoginModule`, which may have `clientId`, `clientSecret`, `scope` and "
    "`extension_NAME`.",
    "sasl.username": "The user, as in librdkafka, in place of `sasl.jaas.config`.",
    "sasl.password": "The user's password, as in librdkafka.",
    "sasl.oauthbearer.token.endpoint.url": "URL of the token endpoint, with `https`, or with "
    "`http` on this machine. Or the URL of a file with a token (`file:///PATH`), which is read at "
    "each login.",
    "sasl.oauthbearer.client.credentials.client.id": "The program's name at the token endpoint.",
    "sasl.oauthbearer.client.credentials.client.secret": "Its secret.",
    "sasl.oauthbearer.scope": "The scopes to ask for, with blanks between them.",
    "sasl.oauthbearer.header.urlencode": "`true`: name and secret are URL-encoded, as RFC 6749 "
    "demands.",
    "sasl.oauthbearer.method": "As in librdkafka: `oidc`.",
    "sasl.oauthbearer.jwt.retriever.class": "Kafka's `DefaultJwtRetriever`, "
    "`ClientCredentialsJwtRetriever` or `FileJwtRetriever`, which mean what the URL says.",
    "sasl.login.callback.handler.class": "Kafka's `OAuthBearerLoginCallbackHandler`, which means "
    "the same as nothing.",
    "ssl.truststore.type": "`PEM` or `PKCS12`. Without it the file's first bytes say it.",
    "ssl.truststore.location": "File with the certificates that are trusted. Without one, those "
    "that the system trusts.",
    "ssl.truststore.password": "Password of the truststore, if it is PKCS12.",
    "ssl.truststore.certificates": "The certificates themselves as PEM, in place of a file.",
    "ssl.keystore.type": "`PEM` or `PKCS12`. Without it the file's first bytes say it.",
    "ssl.keystore.location": "File with the client's private key and its chain of certificates.",
    "ssl.keystore.password": "Password of the keystore, if it is PKCS12.",
    "ssl.keystore.key": "The private key itself as PEM, in place of a file.",
    "ssl.keystore.certificate.chain": "The chain of certificates itself as PEM, in place of a "
    "file.",
    "ssl.key.password": "Password of the private key, if that is encrypted.",
    "ssl.ca.location": "As in librdkafka: a PEM file with the certificates that are trusted, or "
    "`probe` for those of the system.",
    "ssl.certificate.location": "As in librdkafka: a PEM file with the client's chain of "
    "certificates.",
    "ssl.key.location": "As in librdkafka: a PEM file with the client's private key.",
    "ssl.endpoint.identification.algorithm": "`https` (default): the server's certificate must "
    "have the name that was connected to. Empty or `none`: any name.",
    "ssl.enabled.protocols": "`TLSv1.2`, `TLSv1.3` or both (default).",
}
"""For each property that is obeyed, its meaning."""

ALIASES = {
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
"""Names in librdkafka of properties that are obeyed."""

IGNORED = (
    "auto.include.jmx.reporter",
    "bootstrap.controllers",
    "bootstrap.servers",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "enable.metrics.push",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)
"""Properties without a meaning here that do no harm: kgw has its own timeouts and retries, and
`--bootstrap` names the servers."""

_CLASSES = "kgw loads no classes"
REFUSED = (
    ("config.providers", "values are taken as they are written"),
    ("enable.ssl.certificate.verification", "the server's certificate is always checked"),
    ("sasl.client.callback.handler.class", _CLASSES),
    ("sasl.kerberos.", "Kerberos is not spoken"),
    ("sasl.login.class", _CLASSES),
    ("sasl.oauthbearer.assertion.", "tokens are asked for by client credentials alone"),
    ("sasl.oauthbearer.expected.", "the server checks tokens"),
    ("sasl.oauthbearer.jwks.", "the server checks tokens"),
    ("sasl.oauthbearer.jwt.validator.class", _CLASSES),
    ("sasl.oauthbearer.clock.", "the server checks tokens"),
    ("sasl.oauthbearer.", "a token comes from a file, or by client credentials"),
    ("security.providers", _CLASSES),
    ("ssl.cipher.suites", "kgw takes the suites that OpenSSL chooses"),
    ("ssl.engine.factory.class", _CLASSES),
)
"""Beginnings of names that are refused, each with the reason."""

SECRETS = frozenset(
    {
        "sasl.jaas.config",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)
"""Properties whose values are secret."""

_KNOWN = (*OBEYED, *ALIASES, *IGNORED)


class GivenProperties:
    """The given properties, by Kafka's names."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises PropertyError if a property is given by two names."""
        self._values: dict[str, str] = {}
        for name, value in properties.items():
            kafkas = ALIASES.get(name, name)
            if kafkas in self._values:
                raise PropertyError(name, f"{kafkas} is another name of it, and is given, too")
            self._values[kafkas] = value

    @property
    def names(self) -> Iterable[str]:
        """The names of all given properties."""
        return self._values

    def has(self, name: str) -> bool:
        """Return whether the property is given, be it empty."""
        return name in self._values

    def text(self, name: str) -> str:
        """Return a value without blanks around it; "" if it is not given."""
        return self._values.get(name, "").strip()

    def secret(self, name: str) -> str:
        """Return a value as it is; "" if it is not given."""
        return self._values.get(name, "")


def check_names(names: Iterable[str]) -> None:
    """Raise PropertyError for the first name that is neither obeyed nor ignored."""
    for name in names:
        if name in _KNOWN:
            continue
        for beginning, reason in REFUSED:
            if name.startswith(beginning):
                raise PropertyError(name, f"the property is refused: {reason}")
        raise PropertyError(
            name, f"the property is none of a connection that kgw knows{suggest(name, _KNOWN)}"
        )
