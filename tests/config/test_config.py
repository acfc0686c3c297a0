from __future__ import annotations

from typing import Any

import pytest

from kgw.config import (
    SERVER_SETTINGS,
    TOPIC_SETTINGS,
    Config,
    ConfigError,
    Listener,
    SettingType,
    parse_topic_config,
)
from kgw.config.config import server_setting
from kgw.config.refused import REFUSED_SERVER_SETTINGS, REFUSED_TOPIC_SETTINGS, why_refused

PYTHON_TYPES = {
    SettingType.BOOLEAN: "bool",
    SettingType.STRING: "str",
    SettingType.INT: "int",
    SettingType.LONG: "int",
    SettingType.DOUBLE: "float",
    SettingType.PASSWORD: "str",
    SettingType.LIST: "tuple[str, ...]",
}

# Every topic setting of Kafka 4.1, and those that 3.9 still had.
KAFKA_TOPIC_SETTINGS = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "errors.deadletterqueue.group.enable",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.decompressed.message.bytes",
        "max.message.bytes",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)


def test_attributes_are_as_the_table_has_them() -> None:
    """Each setting is an attribute, whose default has the type of the table."""
    for setting in SERVER_SETTINGS.values():
        expected = PYTHON_TYPES[setting.type]
        assert expected.partition("[")[0] == type(setting.default).__name__, setting.name
        assert Config().get(setting.name) == getattr(Config(), setting.attribute)


def test_a_config_does_not_change() -> None:
    """Assigning to a setting is refused: who holds a Config may rely on it."""
    with pytest.raises(AttributeError, match="with_dynamic"):
        Config().num_partitions = 3


def test_settings_can_be_given_by_attribute() -> None:
    """Tests and tools name settings as Python does, and values are checked."""
    assert 3 == Config.of(num_partitions=3).num_partitions
    with pytest.raises(ConfigError, match="below the minimum"):
        Config.of(num_partitions=0)
    with pytest.raises(ConfigError, match="no setting is called nothing"):
        Config.of(nothing=1)


def test_a_change_while_running_hides_what_was_given() -> None:
    """A change holds until it is taken back, and then what was given at start holds again."""
    config = Config.of(message_max_bytes=1000)
    changed = config.with_dynamic({"message.max.bytes": "2000"})
    assert 1000 == config.get("message.max.bytes")
    assert 2000 == changed.get("message.max.bytes")
    assert 1000 == changed.static_value("message.max.bytes")
    assert "changed while running" == changed.origin("message.max.bytes")
    restored = changed.with_dynamic({"message.max.bytes": None})
    assert 1000 == restored.get("message.max.bytes")
    assert "code" == restored.origin("message.max.bytes")


def test_older_names_are_understood() -> None:
    """broker.id and log.dir are what Kafka still takes for node.id and log.dirs."""
    assert "node.id" == server_setting("broker.id").name
    assert "log.dirs" == server_setting("log.dir").name


def test_no_setting_is_both_served_and_refused() -> None:
    """The tables of served and refused settings do not overlap."""
    assert not REFUSED_SERVER_SETTINGS.keys() & SERVER_SETTINGS.keys()
    assert not REFUSED_TOPIC_SETTINGS.keys() & TOPIC_SETTINGS.keys()


@pytest.mark.parametrize(
    "name",
    [
        "sasl.kerberos.service.name",
        "group.share.enable",
        "log.cleaner.io.buffer.size",
        "ssl.provider",
    ],
)
def test_families_of_settings_are_refused_with_one_reason(name: str) -> None:
    """Settings that Kafka has by the dozen are refused by their prefix."""
    assert why_refused(name)


@pytest.mark.parametrize("name", sorted(KAFKA_TOPIC_SETTINGS))
def test_every_topic_setting_of_kafka_is_decided(name: str) -> None:
    """Each is served, fixed or refused with a reason; none is unknown."""
    assert (name in TOPIC_SETTINGS) != (name in REFUSED_TOPIC_SETTINGS)


def test_topics_take_their_defaults_from_the_server() -> None:
    """A topic's own value comes before the broker setting, and that before Kafka's default."""
    config = Config.of(message_max_bytes=1000)
    assert 1000 == config.topic_default("max.message.bytes")
    own = parse_topic_config({"max.message.bytes": "5"})
    assert 5 == config.topic_values(own)["max.message.bytes"]
    assert 1000 == config.topic_values({})["max.message.bytes"]
    assert "strict" == config.topic_default("kgw.durability")
    differing = {name for name, setting in TOPIC_SETTINGS.items() if not setting.is_fixed}
    assert differing == config.topic_values({}).keys()


def test_the_finest_unit_that_is_set_counts() -> None:
    """log.retention.ms before .minutes before .hours, also when it is set while running."""
    assert -1 == Config().topic_default("retention.ms")
    config = Config.of(log_retention_hours=2)
    assert 7_200_000 == config.topic_default("retention.ms")
    config = Config.of(log_retention_hours=2, log_retention_minutes=3)
    assert 180_000 == config.topic_default("retention.ms")
    changed = config.with_dynamic({"log.retention.ms": "5"})
    assert 5 == changed.topic_default("retention.ms")
    unlimited = Config.of(log_retention_hours=2, log_retention_minutes=-1)
    assert -1 == unlimited.topic_default("retention.ms")
    assert 604_800_000 == Config().topic_default("segment.ms")
    assert 3_600_000 == Config.of(log_roll_hours=1).topic_default("segment.ms")
    assert 3_600_000 == Config.of(log_roll_jitter_hours=1).topic_default("segment.jitter.ms")


def test_all_topics_cannot_be_emptied_by_a_slip() -> None:
    """A retention of 0 is refused for the server, as in Kafka, and taken for a topic."""
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        with pytest.raises(ConfigError, match="0 would keep nothing"):
            SERVER_SETTINGS[name].parse("0")
    assert {"retention.ms": 0} == parse_topic_config({"retention.ms": "0"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "-2"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", "shred"),
        ("kgw.retention.offset", "-2"),
        ("min.insync.replicas", "2"),
        ("segment.ms", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("kgw.durability", "lazy"),
        ("kgw.validation", "payloads"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "0"),
        ("compression.zstd.level", "23"),
        ("preallocate", "true"),
        ("local.retention.ms", "1"),
        ("nonsense", "1"),
        ("segment.bytes", "many"),
        ("segment.bytes", None),
        ("segment.byte", "1000"),
    ],
)
def test_what_a_topic_could_not_keep_is_refused(name: str, text: str | None) -> None:
    """A topic setting is enforced or refused, never stored without effect."""
    with pytest.raises(ConfigError, match="null" if text is None else name):
        parse_topic_config({name: text})


def test_listeners_and_what_is_advertised() -> None:
    """Advertised addresses belong to listeners by name and must be reachable ones."""
    config = Config.of(
        listeners=("A://:0", "B://[::1]:1"),
        advertised_listeners=("A://kgw:9092",),
        listeners_without_login=True,
    )
    assert [Listener("A", "", 0), Listener("B", "::1", 1)] == config.bound_listeners
    assert {"A": Listener("A", "kgw", 9092)} == config.advertised
    with pytest.raises(ConfigError, match="no listener is called C"):
        Config.of(advertised_listeners=("C://kgw:9092",))
    with pytest.raises(ConfigError, match="no address that a client could connect to"):
        Config.of(advertised_listeners=("0.0.0.0:9092",))
    with pytest.raises(ConfigError, match="at least one"):
        Config.of(listeners=())


def test_the_backend_is_the_data_directory_unless_another_is_named() -> None:
    """The embedded backend opens log.dirs, others are opened by what they are called."""
    assert "here" == Config.of(log_dirs="here").backend_url
    assert "memory" == Config.of(backend="memory").backend_url
    with pytest.raises(ConfigError, match="one directory"):
        Config.of(log_dirs="a,b")
    with pytest.raises(ConfigError, match="a directory is needed"):
        Config.of(log_dirs="")
    seaweedmq = "seaweedmq://filer:8888/kafka"
    assert seaweedmq == Config.of(backend=seaweedmq).backend_url
    with pytest.raises(ConfigError, match=r"log\.dirs .* exclude each other: .* SeaweedFS"):
        Config.of(backend=seaweedmq, log_dirs="here")


@pytest.mark.parametrize(
    "rules",
    [
        {"super_users": "User:admin"},
        {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
    ],
)
def test_the_agent_is_no_way_past_access_rules(rules: dict[str, str]) -> None:
    """Its clients must say who they are: by a login, or by a certificate that each must show."""
    with pytest.raises(ConfigError, match=r"do not say who they are: kgw\.smq\.agent\.login=true"):
        Config.of(smq_agent_listener="127.0.0.1:1", **rules)
    tls: dict[str, Any] = {
        "smq_agent_listener": "https://127.0.0.1:1",
        "ssl_keystore_location": "a.pem",
    }
    with pytest.raises(ConfigError, match="do not say who they are"):
        Config.of(**tls, **rules)
    Config.of(ssl_client_auth="required", **tls, **rules)
    Config.of(smq_agent_login=True, **tls, **rules)
    Config.of(smq_agent_listener="127.0.0.1:1", smq_agent_login=True, **rules)
    Config.of(**rules)
    Config.of(smq_agent_listener="127.0.0.1:1")


HTTPS: dict[str, Any] = {"ssl_keystore_location": "a.pem"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"admin_listeners": ("https://127.0.0.1:1",)}, r"ssl\.keystore\.location must name"),
        ({"smq_agent_listener": "https://127.0.0.1:1"}, r"ssl\.keystore\.location must name"),
        ({"admin_listeners": ("https://0.0.0.0:1",), **HTTPS}, "no loopback address"),
        (
            {"admin_listeners": ("https://h:1",), "ssl_client_auth": "requested", **HTTPS},
            "no loopback address",
        ),
        (
            {"admin_listeners": ("10.0.0.1:1",), "admin_login": True},
            r"read the passwords; https://.* kgw\.sasl\.plain\.without\.tls=true",
        ),
        (
            {"admin_listeners": (":1",), "admin_login": True, "admin_token_file": "token"},
            "at every address everybody on the way could read the passwords",
        ),
        (
            {"admin_listeners": ("https://h:1", "h:2"), "admin_login": True, **HTTPS},
            "at h everybody on the way",
        ),
        (
            {"smq_agent_listener": "10.0.0.1:1", "smq_agent_login": True},
            "everybody on the way could read the passwords",
        ),
        (
            {"smq_agent_listener": "https://h:1", "ssl_client_auth": "requested", **HTTPS},
            r"ssl\.client\.auth and kgw\.smq\.agent\.listener with https:// exclude each other",
        ),
        (
            {"smq_agent_listener": "https://h:1", "ssl_enabled_protocols": ("TLSv1.3",), **HTTPS},
            r"ssl\.enabled\.protocols and .* exclude each other",
        ),
        (
            {
                "smq_agent_listener": "https://h:1",
                "ssl_cipher_suites": ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",),
                **HTTPS,
            },
            r"ssl\.cipher\.suites and .* exclude each other",
        ),
    ],
)
def test_open_doors_are_refused(settings: dict[str, Any], said: str) -> None:
    """No key, nobody who is known, a password in plain text, and what gRPC cannot obey."""
    with pytest.raises(ConfigError, match=said):
        Config.of(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"admin_listeners": ("https://127.0.0.1:1",), **HTTPS},
        {"admin_listeners": ("https://h:1",), "admin_token_file": "token", **HTTPS},
        {"admin_listeners": ("https://h:1",), "admin_login": True, **HTTPS},
        {"admin_listeners": ("https://h:1",), "ssl_client_auth": "required", **HTTPS},
        {"admin_listeners": ("127.0.0.1:1",), "admin_login": True},
        {"admin_listeners": ("h:1",), "admin_login": True, "sasl_plain_without_tls": True},
        {"smq_agent_listener": "https://h:1", **HTTPS},
        {"smq_agent_listener": "[::1]:1", "smq_agent_login": True},
        {"smq_agent_listener": "h:1", "smq_agent_login": True, "sasl_plain_without_tls": True},
    ],
)
def test_doors_that_may_be_opened(settings: dict[str, Any]) -> None:
    """With a key, somebody who is known, and passwords that nobody can read or may read."""
    Config.of(**settings)


def test_users_are_loaded_for_every_kind_of_login() -> None:
    """The admin listeners and the agent take the users of Kafka's listeners."""
    assert not Config().has_users
    assert Config.of(admin_login=True).has_users
    assert Config.of(smq_agent_login=True).has_users
    assert Config.of(listeners=("SASL_PLAINTEXT://127.0.0.1:1",)).has_users
