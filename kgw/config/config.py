"""The configuration as one immutable object."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from kgw.config.listeners import (
    Listener,
    SecurityProtocol,
    check_mapped,
    is_https,
    is_loopback,
    parse_admin_listener,
    parse_agent_listener,
    parse_listener,
    parse_protocol_map,
    security_protocol,
)
from kgw.config.server_settings import SERVER_ALIASES, SERVER_SETTINGS, ServerSettings
from kgw.config.setting import LONG_MAX, ConfigError, Setting, Value, suggest
from kgw.config.topic_settings import ACTED_ON, TOPIC_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_ORIGIN = "default"
DYNAMIC_ORIGIN = "changed while running"
KEPT_ORIGIN = "kept from an earlier start"
_EVERY_ADDRESS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - recognised, not bound


class Given(NamedTuple):
    """A value that was given, and where it was given."""

    value: Value
    origin: str


class Config(ServerSettings):
    """Every server setting with its effective value. It is immutable: a change makes a new Config.

    Each setting is an attribute with the setting's name, in underscores and without a leading
    `kgw.`.
    """

    def __init__(
        self,
        given: Mapping[str, Given] | None = None,
        *,
        dynamic: Mapping[str, Value] | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        """Store the given settings; the others have their defaults.

        Raises ConfigError if two settings contradict each other. `Setting.parse` or
        `Setting.convert` has already checked each value.
        """
        static = dict(given or {})
        changed = dict(dynamic or {})
        values: dict[str, Value] = {}
        attributes = self.__dict__
        for name, setting in SERVER_SETTINGS.items():
            if name in changed:
                value = changed[name]
            elif name in static:
                value = static[name].value
            else:
                value = setting.default
            values[name] = value
            attributes[setting.attribute] = value
        attributes["_static"] = static
        attributes["dynamic"] = MappingProxyType(changed)
        attributes["values"] = MappingProxyType(values)
        attributes["warnings"] = warnings
        self._check()

    dynamic: Mapping[str, Value]
    """The settings that were changed while the server runs. They take precedence over the values
    given at start."""

    values: Mapping[str, Value]
    """The effective value of each setting, by name."""

    warnings: tuple[str, ...]
    """Warnings to log once at start, about doubtful but accepted settings."""

    _static: Mapping[str, Given]

    @classmethod
    def of(cls, **attributes: Value) -> Config:
        """Make a configuration from settings by attribute name, for tests and tools.

        Raises ConfigError for an invalid value.
        """
        by_attribute = {setting.attribute: setting for setting in SERVER_SETTINGS.values()}
        given = {}
        for attribute, value in attributes.items():
            setting = by_attribute.get(attribute)
            if setting is None:
                raise ConfigError(f"no setting is called {attribute}")
            given[setting.name] = Given(setting.validate(value), "code")
        return cls(given)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Config does not change ({name}); see with_dynamic")

    def get(self, name: str) -> Value:
        """Return the effective value of a setting. Raises KeyError for an unknown name."""
        return self.values[name]

    def origin(self, name: str) -> str:
        """Return where the effective value of a setting comes from, in words."""
        if name in self.dynamic:
            return DYNAMIC_ORIGIN
        given = self._static.get(name)
        return DEFAULT_ORIGIN if given is None else given.origin

    def static_value(self, name: str) -> Value:
        """Return the value that a setting has without changes while running."""
        given = self._static.get(name)
        return SERVER_SETTINGS[name].default if given is None else given.value

    def is_given(self, name: str) -> bool:
        """Return whether a setting was given at start, in a file, the environment or a flag."""
        return name in self._static

    def is_set(self, name: str) -> bool:
        """Return whether the setting was given at start or changed while running."""
        return name in self._static or name in self.dynamic

    def with_dynamic(self, changes: Mapping[str, str | None]) -> Config:
        """Return this configuration with some settings changed while running; None undoes a change.

        Raises ConfigError for unknown settings, and for settings that cannot change while running.
        """
        dynamic = dict(self.dynamic)
        for name, text in changes.items():
            setting = server_setting(name)
            if not setting.dynamic:
                raise ConfigError(f"{setting.name} cannot be changed while the server runs")
            if text is None:
                dynamic.pop(setting.name, None)
            else:
                dynamic[setting.name] = setting.parse(text)
        return Config(self._static, dynamic=dynamic, warnings=self.warnings)

    def with_kept(self, name: str, value: Value) -> Config:
        """Return this configuration with a setting's value from an earlier start."""
        return Config(
            {**self._static, name: Given(value, KEPT_ORIGIN)},
            dynamic=self.dynamic,
            warnings=self.warnings,
        )

    def topic_default(self, name: str) -> Value:
        """Return the value of a topic setting for topics that do not set it themselves."""
        setting = TOPIC_SETTINGS[name]
        server_name = self.server_setting_behind(setting)
        if not server_name:
            return setting.default
        value = self.values[server_name]
        factor_ms = setting.coarser_settings.get(server_name)
        if factor_ms is None or not isinstance(value, int) or value < 0:
            return value
        return value * factor_ms

    def server_setting_behind(self, setting: Setting) -> str:
        """Return the server setting that gives a topic setting its default; "" if none does.

        If several do, it is the finest one that is set: log.retention.ms before .minutes before
        .hours.
        """
        if not self.is_set(setting.server_setting):
            for name in setting.coarser_settings:
                if self.is_set(name):
                    return name
        return setting.server_setting

    def topic_values(self, own: Mapping[str, Value]) -> dict[str, Value]:
        """Return a topic's effective settings: its own values take precedence over defaults."""
        return {name: own[name] if name in own else self.topic_default(name) for name in ACTED_ON}

    @property
    def data_dir(self) -> str:
        """The data directory, as it was given."""
        return self.log_dirs

    @property
    def cleaner_bytes_per_s(self) -> int | None:
        """The bytes per second that compaction and recompression may read and write, if limited."""
        bytes_per_s = self.log_cleaner_io_max_bytes_per_second
        return int(bytes_per_s) if bytes_per_s < LONG_MAX else None

    @property
    def backend_url(self) -> str:
        """The backend to open: a path for the embedded backend, else a name or URL."""
        return self.log_dirs if self.backend == "embedded" else self.backend

    @property
    def bound_listeners(self) -> list[Listener]:
        """The listeners to bind."""
        return [parse_listener(text) for text in self.listeners]

    @property
    def bound_admin_listeners(self) -> list[Listener]:
        """The listeners to bind for health, metrics and JSON."""
        return [parse_admin_listener(text) for text in self.admin_listeners]

    @property
    def bound_agent_listener(self) -> Listener | None:
        """The address to bind for SeaweedMQ's agent API, if it is set."""
        return parse_agent_listener(self.smq_agent_listener) if self.smq_agent_listener else None

    @property
    def has_https(self) -> bool:
        """Whether an admin listener or the agent's listener has TLS."""
        agent = self.bound_agent_listener
        return any(map(is_https, self.bound_admin_listeners)) or (
            agent is not None and is_https(agent)
        )

    @property
    def asks_for_certificates(self) -> bool:
        """Whether every client of a listener with TLS must show a certificate."""
        return self.ssl_client_auth == "required"

    @property
    def has_users(self) -> bool:
        """Whether clients of some listener log in as users."""
        return (
            self.admin_login
            or self.smq_agent_login
            or any(protocol.has_login for protocol in self.protocols.values())
        )

    @property
    def has_access_rules(self) -> bool:
        """Whether access rules are on."""
        return bool(self.super_users or self.authorizer_class_name)

    @property
    def advertised(self) -> dict[str, Listener]:
        """By name, the listeners whose advertised address is not the bound one.

        Port 0 means the bound port.
        """
        parsed = [parse_listener(text) for text in self.advertised_listeners]
        return {listener.name: listener for listener in parsed}

    @property
    def protocols(self) -> dict[str, SecurityProtocol]:
        """The security protocol of each listener that is bound, by the listener's name."""
        return {listener.name: self.protocol(listener.name) for listener in self.bound_listeners}

    def protocol(self, listener_name: str) -> SecurityProtocol:
        """Return the security protocol of a listener. Raises ConfigError."""
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        try:
            return security_protocol(listener_name, protocols)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def _check(self) -> None:
        if not self.listeners:
            raise ConfigError("listeners: at least one is needed")
        bound = {listener.name for listener in self.bound_listeners}
        for listener in self.bound_listeners:
            self._check_security(listener)
        try:
            check_mapped(bound, parse_protocol_map(self.listener_security_protocol_map))
        except ValueError as error:
            raise ConfigError(f"listener.security.protocol.map: {error}") from None
        for name, listener in self.advertised.items():
            if name not in bound:
                raise ConfigError(f"advertised.listeners: no listener is called {name}")
            if listener.host in _EVERY_ADDRESS:
                raise ConfigError(
                    f"advertised.listeners: {listener.host or 'an empty host'!r} is no address "
                    "that a client could connect to"
                )
        for listener in self.bound_admin_listeners:
            self._check_admin(listener)
        if self.bound_agent_listener is not None:
            self._check_agent(self.bound_agent_listener)
        if self.backend.startswith("seaweedmq:") and self.is_given("log.dirs"):
            raise ConfigError(
                f"log.dirs ({self.origin('log.dirs')}) and kgw.backend={self.backend} exclude each "
                "other: records are kept in the SeaweedFS"
            )
        if self.state_password and self.state_password_file:
            raise ConfigError("kgw.state.password and kgw.state.password.file exclude each other")
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError(
                "group.min.session.timeout.ms is above group.max.session.timeout.ms: "
                "no member could join"
            )
        if self.default_replication_factor > 1 and not self.lenient_replication:
            raise ConfigError(
                "default.replication.factor: there is one node; "
                "kgw.lenient.replication=true accepts factors above 1"
            )

    def _check_admin(self, listener: Listener) -> None:
        setting = "kgw.admin.listeners"
        self._check_https(setting, listener)
        if is_loopback(listener.host):
            return
        if self.admin_login:
            self._check_passwords(setting, listener)
        is_known_by_certificate = is_https(listener) and self.asks_for_certificates
        if not (self.admin_token_file or self.admin_login or is_known_by_certificate):
            raise ConfigError(
                f"{setting}: {listener.host or 'every address'} is no loopback address; without "
                "kgw.admin.token.file or kgw.admin.login the admin listener serves this machine "
                "alone (127.0.0.1, ::1 or localhost)"
            )

    def _check_agent(self, listener: Listener) -> None:
        setting = "kgw.smq.agent.listener"
        self._check_https(setting, listener)
        if is_https(listener):
            self._check_grpc(setting)
        if self.smq_agent_login and not is_loopback(listener.host):
            self._check_passwords(setting, listener)
        is_known_by_certificate = is_https(listener) and self.asks_for_certificates
        if self.smq_agent_login or is_known_by_certificate:
            return
        if self.has_access_rules:
            raise ConfigError(
                f"{setting}: super.users or authorizer.class.name has switched access rules on, "
                "and the agent's clients do not say who they are: kgw.smq.agent.login=true has "
                "them log in"
            )
        if not (is_loopback(listener.host) or self.listeners_without_login):
            raise ConfigError(
                f"{setting}: every machine that reaches {listener.host or 'it'} may read and write "
                "everything; kgw.smq.agent.login=true has clients log in, a loopback address keeps "
                "them out, and kgw.listeners.without.login=true allows it"
            )

    def _check_https(self, setting: str, listener: Listener) -> None:
        if is_https(listener):
            self._check_keystore(f"{setting} has https://")

    def _check_keystore(self, what: str) -> None:
        if not (self.ssl_keystore_location or self.ssl_keystore_key):
            raise ConfigError(
                f"{what}: ssl.keystore.location must name the server's private key and certificate"
            )

    def _check_passwords(self, setting: str, listener: Listener) -> None:
        if not (is_https(listener) or self.sasl_plain_without_tls):
            raise ConfigError(
                f"{setting}: at {listener.host or 'every address'} everybody on the way could "
                "read the passwords; https:// encrypts them, kgw.sasl.plain.without.tls=true "
                "allows it"
            )

    def _check_grpc(self, setting: str) -> None:
        """Raise ConfigError for a setting of TLS that gRPC cannot obey."""
        refused = {
            "ssl.client.auth": self.ssl_client_auth == "requested",
            "ssl.enabled.protocols": len(set(self.ssl_enabled_protocols)) == 1,
            "ssl.cipher.suites": bool(self.ssl_cipher_suites),
        }
        for name, is_refused in refused.items():
            if is_refused:
                raise ConfigError(
                    f"{name} and {setting} with https:// exclude each other: gRPC serves TLS 1.2 "
                    "and 1.3 with its own cipher suites, and requires a certificate of clients or "
                    "asks for none"
                )

    def _check_security(self, listener: Listener) -> None:
        listener_name = listener.name
        protocol = self.protocol(listener_name)
        if protocol.has_tls:
            self._check_keystore(f"listener {listener_name} is {protocol.value}")
        mechanisms = self.sasl_enabled_mechanisms if protocol.has_login else ()
        if protocol is SecurityProtocol.SASL_PLAINTEXT:
            if "PLAIN" in mechanisms and not self.sasl_plain_without_tls:
                raise ConfigError(
                    f"listener {listener_name} is SASL_PLAINTEXT: with PLAIN everybody on the way "
                    "could read the password; kgw.sasl.plain.without.tls=true allows it"
                )
            if "OAUTHBEARER" in mechanisms and not self.sasl_oauthbearer_without_tls:
                raise ConfigError(
                    f"listener {listener_name} is SASL_PLAINTEXT: with OAUTHBEARER everybody on "
                    "the way could read the token; kgw.sasl.oauthbearer.without.tls=true allows it"
                )
        if "OAUTHBEARER" in mechanisms:
            self._check_tokens()
        if (
            not (protocol.has_login or self.has_access_rules or self.listeners_without_login)
            and not (protocol.has_tls and self.ssl_client_auth == "required")
            and not is_loopback(listener.host)
        ):
            raise ConfigError(
                f"listener {listener}: every machine that reaches it may read, write and delete "
                "everything, as nobody has to log in; give it a login (docs/security.md) or a "
                "loopback address, or allow it by kgw.listeners.without.login=true"
            )

    def _check_tokens(self) -> None:
        """Raise ConfigError if anybody could make a token, or use one that was meant for others."""
        url = self.sasl_oauthbearer_jwks_endpoint_url
        if not url and not self.sasl_oauthbearer_jwks_file:
            raise ConfigError(
                "OAUTHBEARER: sasl.oauthbearer.jwks.endpoint.url must name the key set by which "
                "tokens are checked, or kgw.sasl.oauthbearer.jwks.file a file with it"
            )
        if url and self.sasl_oauthbearer_jwks_file:
            raise ConfigError(
                "sasl.oauthbearer.jwks.endpoint.url and kgw.sasl.oauthbearer.jwks.file exclude "
                "each other"
            )
        if url.lower().startswith("http:") and not self.sasl_oauthbearer_jwks_over_http:
            raise ConfigError(
                "sasl.oauthbearer.jwks.endpoint.url: whoever can listen at an http address of this "
                "machine could let anybody in; kgw.sasl.oauthbearer.jwks.over.http=true allows it"
            )
        if not any(one.strip() for one in self.sasl_oauthbearer_expected_audience):
            raise ConfigError(
                "OAUTHBEARER: sasl.oauthbearer.expected.audience must name this server: otherwise "
                "tokens for other services would be accepted"
            )
        if not self.sasl_oauthbearer_expected_issuer.strip():
            raise ConfigError(
                "OAUTHBEARER: sasl.oauthbearer.expected.issuer must name the authorization server"
            )


def server_setting(name: str) -> Setting:
    """Return a server setting by its name, or by an older name.

    Raises ConfigError for unknown names, and for settings of Kafka that kgw refuses.
    """
    setting = SERVER_SETTINGS.get(SERVER_ALIASES.get(name, name))
    if setting is not None:
        return setting
    # Imported here: most configurations have no such name.
    from kgw.config.refused import why_refused

    reason = why_refused(name)
    if reason is not None:
        raise ConfigError(f"{name} is not served: {reason}")
    topic_setting = TOPIC_SETTINGS.get(name)
    if topic_setting is not None:
        default = topic_setting.server_setting
        hint = f"; its default for all of them is {default}" if default else ""
        raise ConfigError(f"{name} is a setting of topics, not of the server{hint}")
    raise ConfigError(f"unknown setting {name}{suggest(name, SERVER_SETTINGS)}")
