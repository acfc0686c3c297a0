"""TLS and the login of each listener, from the configuration."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kgw.config import ConfigError
from kgw.config.listeners import is_https
from kgw.handlers.login import Login, failure_log
from kgw.logs import EventLogger
from kgw.security.principal import ANONYMOUS
from kgw.security.sasl.exchange import offered_mechanisms
from kgw.security.sasl.oauthbearer import OAUTHBEARER
from kgw.security.tls.errors import TlsSettingError
from kgw.security.tls.expiry import ExpiryRule
from kgw.security.tls.options import TlsOptions
from kgw.security.tls.principals import PrincipalMapper
from kgw.security.tls.reload import CertificateFiles, ReloadableContext, load_problem

if TYPE_CHECKING:
    import ssl
    from asyncio import Transport

    from kgw.clock import Clock
    from kgw.config import Config
    from kgw.logs import QuietLog
    from kgw.metrics import Metrics
    from kgw.security.oauth.trust import TokenTrust
    from kgw.security.principal import Principal
    from kgw.security.tls.plain_keys import PlainKey
    from kgw.security.tls.reload import Reload
    from kgw.server.limits import Limits

LOOK_EVERY_S = 10.0
"""How often the files of certificates are looked at."""

_log = EventLogger(__name__)


class ListenerSecurity(NamedTuple):
    """How connections to one listener are encrypted, and how clients say who they are."""

    tls: ssl.SSLContext | None = None
    """None: plain text."""
    mapper: PrincipalMapper | None = None
    """Gives the name in a client's certificate a principal."""
    mechanisms: tuple[str, ...] = ()
    """The mechanisms by which clients must log in; none if they need not."""
    max_reauth_ms: int = 0
    failures: QuietLog | None = None
    """Logs failed logins; None: each connection has a log of its own."""
    trust: TokenTrust | None = None
    """Accepts tokens; None without OAUTHBEARER."""

    def principal(self, transport: Transport, wall_s: float) -> Principal:
        """Return the principal in the certificate of a client; ANONYMOUS without a certificate.

        Raises ValueError for a certificate that gives no principal.
        """
        tls = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        if certificate is None or self.mapper is None:
            return ANONYMOUS
        return self.mapper.principal_of(certificate, wall_s)

    def login(self, now_s: float, limits: Limits) -> Login | None:
        """Return the login of a new connection; None if it needs none."""
        if not self.mechanisms:
            return None
        deadline_s = now_s + limits.login_timeout_s
        return Login(self.mechanisms, self.max_reauth_ms, deadline_s, self.failures, self.trust)


class ServedSecurity:
    """The security of all listeners, and the files of certificates, which may change."""

    def __init__(self, config: Config, clock: Clock) -> None:
        """Read the files. Raises ConfigError."""
        self._clock = clock
        self._files: CertificateFiles | None = None
        self._context: ReloadableContext | None = None
        self._looking: asyncio.Task[None] | None = None
        self._may_look = asyncio.Event()
        self._is_asked = False
        self._expiry = ExpiryRule()
        self._failure: str | None = None
        """Why the last look has failed; None if it has not."""
        self._trust: TokenTrust | None = None
        self.listeners: dict[str, ListenerSecurity] = {}
        """By the name of the listener; without those of PLAINTEXT."""
        self.https: ListenerSecurity | None = None
        """TLS of the admin listeners and of the agent's listener; None if they have none."""
        self.key: PlainKey | None = None
        """The present key and certificates of the agent's listener; None if it has no TLS."""
        protocols = config.protocols
        mapper = None
        if config.has_https or any(protocol.has_tls for protocol in protocols.values()):
            agent = config.bound_agent_listener
            has_agent = agent is not None and is_https(agent)
            mapper = self._open(tls_options(config), with_key=has_agent)
        if config.has_https:
            self.https = ListenerSecurity(self._context, mapper)
        for name, protocol in protocols.items():
            if not (protocol.has_tls or protocol.has_login):
                continue
            mechanisms: tuple[str, ...] = ()
            trust = None
            if protocol.has_login:
                mechanisms = tuple(
                    offered_mechanisms(
                        config.sasl_enabled_mechanisms,
                        encrypted=protocol.has_tls,
                        plain_without_tls=config.sasl_plain_without_tls,
                        tokens_without_tls=config.sasl_oauthbearer_without_tls,
                    )
                )
            if OAUTHBEARER in mechanisms:
                if self._trust is None:
                    self._trust = _trust(config, clock)
                trust = self._trust
            self.listeners[name] = ListenerSecurity(
                self._context if protocol.has_tls else None,
                None if protocol.has_login else mapper,
                mechanisms,
                config.connections_max_reauth_ms,
                failure_log(),
                trust,
            )

    def _open(self, options: TlsOptions, *, with_key: bool) -> PrincipalMapper:
        try:
            mapper = PrincipalMapper(options.principal_mapping_rules)
            now_s = self._clock.wall_ms() / 1000
            self._files = CertificateFiles(options, now_s, with_key=with_key)
        except (TlsSettingError, OSError) as problem:
            raise ConfigError(load_problem(problem)) from None
        if self._files.first.context is not None:
            self._context = ReloadableContext(self._files.first.context)
        self._take(self._files.first)
        return mapper

    async def load_keys(self) -> None:
        """Fetch the key set by which tokens are checked, if a listener takes tokens.

        Raises ConfigError.
        """
        if self._trust is None:
            return
        from kgw.security.oauth.errors import KeySetError

        try:
            await self._trust.load()
        except KeySetError as error:
            raise ConfigError(f"OAUTHBEARER: the key set cannot be used: {error}") from None

    @property
    def has_tls(self) -> bool:
        """Whether a listener of any kind has TLS."""
        return self._files is not None

    @property
    def has_files(self) -> bool:
        """Whether there are certificates or a key set of tokens, which may change."""
        return self._files is not None or self._trust is not None

    def start(self, metrics: Metrics) -> None:
        """Look at the files, and fetch the key set, from now on."""
        if self._trust is not None:
            self._trust.start(metrics)
        if self._files is not None:
            self._look_at_the_end(metrics)
            self._looking = asyncio.ensure_future(self._look_regularly(self._files, metrics))

    async def aclose(self) -> None:
        """Look at the files and fetch the key set no more."""
        if self._trust is not None:
            await self._trust.aclose()
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def look_now(self) -> None:
        """Load the files soon, as an operator has asked for it: also if they seem the same.

        The key set is fetched, too.
        """
        if self._trust is not None:
            self._trust.fetch_now()
        self._is_asked = True
        self._may_look.set()

    async def _look_regularly(self, files: CertificateFiles, metrics: Metrics) -> None:
        while True:
            timer = self._clock.call_at(
                self._clock.monotonic_s() + LOOK_EVERY_S, self._may_look.set
            )
            await self._may_look.wait()
            timer.cancel()
            # SIGHUP may come while the files are read: they are then read once more.
            self._may_look.clear()
            is_asked, self._is_asked = self._is_asked, False
            try:
                now_s = self._clock.wall_ms() / 1000
                self._take(await asyncio.to_thread(files.look, now_s, is_asked=is_asked))
            except Exception as error:  # noqa: BLE001 - whatever it is, the next look may succeed
                self._tell_once(load_problem(error))
            else:
                self._failure = None
            self._look_at_the_end(metrics)

    def _look_at_the_end(self, metrics: Metrics) -> None:
        """Warn of the certificate in use if it expires soon, or has expired."""
        now_s = self._clock.wall_ms() / 1000
        metrics.certificate_expiry_s = self._expiry.left_s(now_s)
        warning = self._expiry.warning(now_s)
        if warning is not None:
            _log.warning(warning)

    def _tell_once(self, reason: str) -> None:
        if reason != self._failure:
            self._failure = reason
            _log.error("changed certificates are not used: the old ones stay", why=reason)

    def _take(self, loaded: Reload) -> None:
        for warning in loaded.warnings:
            _log.warning(warning)
        if loaded.context is not None and self._context is not None:
            self._expiry.begin(loaded.expiry, self._clock.wall_ms() / 1000)
            if loaded.context is not self._context.current:
                _log.info("changed certificates are used for new connections")
            self._context.replace(loaded.context)
            self.key = loaded.key


def _trust(config: Config, clock: Clock) -> TokenTrust:
    # Imported here: most servers accept no tokens, and PyJWT is an extra.
    from kgw.config.web_url import parse_web_url
    from kgw.security.oauth.claims import ClaimRules
    from kgw.security.oauth.refresh_rule import RefreshRule
    from kgw.security.oauth.sources import FileSource, UrlSource
    from kgw.security.oauth.trust import TokenTrust

    url, path = config.sasl_oauthbearer_jwks_endpoint_url, config.sasl_oauthbearer_jwks_file
    audiences = (one.strip() for one in config.sasl_oauthbearer_expected_audience)
    return TokenTrust(
        FileSource(path) if path else UrlSource(parse_web_url(url)),
        ClaimRules(
            issuer=config.sasl_oauthbearer_expected_issuer.strip(),
            audiences=frozenset(filter(None, audiences)),
            subject_claim=config.sasl_oauthbearer_sub_claim_name,
            scope_claim=config.sasl_oauthbearer_scope_claim_name,
            clock_skew_s=config.sasl_oauthbearer_clock_skew_seconds,
        ),
        RefreshRule(
            config.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000,
            config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / 1000,
            config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / 1000,
        ),
        clock,
    )


def tls_options(config: Config) -> TlsOptions:
    """Return the options of TLS that the settings give."""
    return TlsOptions(
        keystore_type=config.ssl_keystore_type,
        keystore_location=config.ssl_keystore_location or None,
        keystore_password=config.ssl_keystore_password or None,
        key_password=config.ssl_key_password or None,
        keystore_key=config.ssl_keystore_key or None,
        keystore_certificate_chain=config.ssl_keystore_certificate_chain or None,
        truststore_type=config.ssl_truststore_type,
        truststore_location=config.ssl_truststore_location or None,
        truststore_password=config.ssl_truststore_password or None,
        truststore_certificates=config.ssl_truststore_certificates or None,
        client_auth=config.ssl_client_auth,
        enabled_protocols=config.ssl_enabled_protocols,
        cipher_suites=config.ssl_cipher_suites,
        principal_mapping_rules=config.ssl_principal_mapping_rules,
    )
