from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from kgw.config import SERVER_SETTINGS, TOPIC_SETTINGS, Config, load_config
from kgw.config.load import environment_name
from kgw.errors import ErrorCode
from kgw.handlers.config_resources import ConfigResourceType, ConfigSource
from kgw.handlers.incremental_alter_configs import Operation
from kgw.protocol.api_keys import ApiKey
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import batch, call, create_topic, produce, topic_of

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.backend.memory import MemoryBackend

TOPIC = ConfigResourceType.TOPIC
BROKER = ConfigResourceType.BROKER
LOGGERS = ConfigResourceType.BROKER_LOGGER
GROUP = ConfigResourceType.GROUP


async def describe(
    gateway: InProcessGateway,
    resource_type: int = TOPIC,
    name: str = "orders",
    *,
    keys: list[str] | None = None,
    version: int = 4,
) -> dict[str, Any]:
    """Return the settings of one resource by name."""
    response = await call(
        gateway,
        ApiKey.DESCRIBE_CONFIGS,
        version,
        resources=[resource(resource_type, name, configuration_keys=keys)],
        include_synonyms=version >= 1,
        include_documentation=version >= 3,
    )
    (result,) = response.results
    assert ErrorCode.NONE == result.error_code
    return {one.name: one for one in result.configs}


def resource(resource_type: int, name: str, **fields: object) -> dict[str, object]:
    """Return what requests say of one resource."""
    return {"resource_type": resource_type, "resource_name": name, **fields}


async def alter(
    gateway: InProcessGateway,
    texts: dict[str, str | None],
    resource_type: int = TOPIC,
    name: str = "orders",
    *,
    version: int = 2,
    **fields: object,
) -> ErrorCode:
    """Replace the settings of one resource, and return the code."""
    configs = [{"name": key, "value": value} for key, value in texts.items()]
    resources = [resource(resource_type, name, configs=configs)]
    response = await call(gateway, ApiKey.ALTER_CONFIGS, version, resources=resources, **fields)
    return ErrorCode(response.responses[0].error_code)


async def change(
    gateway: InProcessGateway,
    *changes: tuple[str, int, str | None],
    resource_type: int = TOPIC,
    name: str = "orders",
    version: int = 1,
) -> ErrorCode:
    """Change some settings of one resource, and return the code."""
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in changes
    ]
    resources = [resource(resource_type, name, configs=configs)]
    response = await call(gateway, ApiKey.INCREMENTAL_ALTER_CONFIGS, version, resources=resources)
    return ErrorCode(response.responses[0].error_code)


def own_texts(gateway: InProcessGateway) -> dict[str, str]:
    """Return what the topic has set itself."""
    topic = topic_of(gateway)
    return topic.config.own_texts()


# --- describing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
async def test_describes_every_setting_of_a_topic(gateway: InProcessGateway, version: int) -> None:
    """Each with the value that is acted on, and where it comes from."""
    await create_topic(gateway, max_message_bytes="2000")
    entries = await describe(gateway, version=version)
    assert set(TOPIC_SETTINGS) == set(entries)
    own, default = entries["max.message.bytes"], entries["segment.bytes"]
    assert ("2000", str(1 << 30)) == (own.value, default.value)
    if version == 0:
        assert [False, True] == [own.is_default, default.is_default]
    else:
        assert (ConfigSource.DYNAMIC_TOPIC, ConfigSource.DEFAULT) == (
            own.config_source,
            default.config_source,
        )
        assert [
            ("max.message.bytes", "2000", ConfigSource.DYNAMIC_TOPIC),
            ("message.max.bytes", "1048588", ConfigSource.DEFAULT),
        ] == [(one.name, one.value, one.source) for one in own.synonyms]
    if version >= 3:
        assert TOPIC_SETTINGS["max.message.bytes"].doc == own.documentation
        assert 3 == own.config_type


@pytest.mark.parametrize("version", range(5))
async def test_describes_the_broker(version: int) -> None:
    """Static values are told from defaults, and what cannot change now is read-only."""
    config = load_config(overrides=[("num.partitions", "3", "--set")])
    async with InProcessGateway(config) as gateway:
        entries = await describe(gateway, BROKER, "0", version=version)
        assert set(SERVER_SETTINGS) == set(entries)
        partitions = entries["num.partitions"]
        assert ("3", True) == (partitions.value, partitions.read_only)
        assert not entries["message.max.bytes"].read_only
        if version >= 1:
            assert ConfigSource.STATIC_BROKER == partitions.config_source
            assert [("3", ConfigSource.STATIC_BROKER), ("1", ConfigSource.DEFAULT)] == [
                (one.value, one.source) for one in partitions.synonyms
            ]


@pytest.fixture
def started_config(tmp_path: Path) -> Config:
    """A configuration with a setting from each place that a start takes them from."""
    file = tmp_path / "kgw.toml"
    file.write_text('"num.partitions" = 3\n')
    environ = {"KGW_DELETE_TOPIC_ENABLE": "true"}
    return load_config(file, environ, [("listeners", "A://127.0.0.1:1", "--listen")])


async def test_each_place_of_a_start_is_static(started_config: Config) -> None:
    """A file, the environment and a flag are STATIC_BROKER_CONFIG, also for what cannot change."""
    given = {"num.partitions": "3", "delete.topic.enable": "true", "listeners": "A://127.0.0.1:1"}
    async with InProcessGateway(started_config) as gateway:
        entries = await describe(gateway, BROKER, "0")
    assert {
        name: (
            value,
            True,
            ConfigSource.STATIC_BROKER,
            [(name, value, ConfigSource.STATIC_BROKER), (name, default, ConfigSource.DEFAULT)],
        )
        for name, value in given.items()
        for default in [SERVER_SETTINGS[name].format(SERVER_SETTINGS[name].default)]
    } == {
        name: (
            entry.value,
            entry.read_only,
            entry.config_source,
            [(one.name, one.value, one.source) for one in entry.synonyms],
        )
        for name, entry in entries.items()
        if entry.config_source not in {ConfigSource.DEFAULT, ConfigSource.DYNAMIC_DEFAULT_BROKER}
    }


def given_by_file(name: str, text: str, directory: Path) -> Config:
    """Return the configuration of a server whose file has one setting."""
    file = directory / "kgw.toml"
    file.write_text(f"{json.dumps(name)} = {json.dumps(text)}\n")
    return load_config(file)


def given_by_environment(name: str, text: str, _: Path) -> Config:
    """Return the configuration of a server whose environment has one setting."""
    return load_config(environ={environment_name(name): text})


def given_by_flag(name: str, text: str, _: Path) -> Config:
    """Return the configuration of a server that is given one setting by `--set`."""
    return load_config(overrides=[(name, text, "--set")])


GIVEN = {"advertised.listeners": "PLAINTEXT://kgw.example:9092"}
"""Where the default would say nothing of it; every other setting is given as it is by default."""


@pytest.fixture(params=[given_by_file, given_by_environment, given_by_flag])
def started(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, tuple[str, Config]]:
    """The text of each setting, and the configuration of a server that is given it alone."""
    texts = {name: one.format(one.default) for name, one in SERVER_SETTINGS.items()} | GIVEN
    return {name: (text, request.param(name, text, tmp_path)) for name, text in texts.items()}


@pytest.mark.slow
async def test_every_setting_that_a_start_is_given_is_static(
    started: dict[str, tuple[str, Config]],
) -> None:
    """Whichever it is, wherever it comes from, and also where it is what it is by default."""
    wrong = []
    for name, (text, config) in started.items():
        async with InProcessGateway(config) as gateway:
            entry = (await describe(gateway, BROKER, str(config.node_id), keys=[name]))[name]
        sources = [one.source for one in entry.synonyms]
        shown = None if SERVER_SETTINGS[name].is_sensitive else text
        expected = (shown, [ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT])
        if name == "min.insync.replicas":
            # Formatting a Kafka sets it for all brokers, which stands before what a start says.
            expected = (shown, [ConfigSource.DYNAMIC_DEFAULT_BROKER, *expected[1]])
        if (entry.value, sources) != expected or entry.config_source != sources[0]:
            wrong.append((name, entry.value, sources))
    assert [] == wrong


async def test_the_node_id_of_an_earlier_start_is_static(backend: MemoryBackend) -> None:
    """A node that is not told its id anew says the one that it has kept, and no default."""
    async with InProcessGateway(Config.of(node_id=7), backend=backend):
        pass
    async with InProcessGateway(backend=backend) as gateway:
        node_id = (await describe(gateway, BROKER, "7"))["node.id"]
    assert ("7", ConfigSource.STATIC_BROKER) == (node_id.value, node_id.config_source)
    assert [("7", ConfigSource.STATIC_BROKER), ("0", ConfigSource.DEFAULT)] == [
        (one.value, one.source) for one in node_id.synonyms
    ]


async def test_all_brokers_have_no_static_values() -> None:
    """What is listed of all brokers ("") names neither the start of one nor its defaults."""
    async with InProcessGateway(Config.of(message_max_bytes=9)) as gateway:
        await alter(gateway, {"message.max.bytes": "100"}, BROKER, "")
        of_all = (await describe(gateway, BROKER, ""))["message.max.bytes"]
        of_one = (await describe(gateway, BROKER, "0"))["message.max.bytes"]
    assert [("100", ConfigSource.DYNAMIC_DEFAULT_BROKER)] == [
        (one.value, one.source) for one in of_all.synonyms
    ]
    assert [
        ("100", ConfigSource.DYNAMIC_BROKER),
        ("9", ConfigSource.STATIC_BROKER),
        ("1048588", ConfigSource.DEFAULT),
    ] == [(one.value, one.source) for one in of_one.synonyms]


async def test_a_default_in_a_coarser_unit_says_where_it_is_from() -> None:
    """retention.ms from log.retention.hours, until log.retention.ms is set while running."""
    config = load_config(overrides=[("log.retention.hours", "2", "--set")])
    async with InProcessGateway(config) as gateway:
        await create_topic(gateway)
        entry = (await describe(gateway))["retention.ms"]
        assert ("7200000", ConfigSource.STATIC_BROKER) == (entry.value, entry.config_source)
        assert [
            ("log.retention.hours", "2", ConfigSource.STATIC_BROKER),
            ("log.retention.ms", "-1", ConfigSource.DEFAULT),
        ] == [(one.name, one.value, one.source) for one in entry.synonyms]
        await gateway.configure_broker(log_retention_ms="5")
        entry = (await describe(gateway))["retention.ms"]
        assert ("5", ConfigSource.DYNAMIC_BROKER) == (entry.value, entry.config_source)
        assert ["log.retention.ms", "log.retention.hours", "log.retention.ms"] == [
            one.name for one in entry.synonyms
        ]


async def test_describes_what_is_asked_for(gateway: InProcessGateway) -> None:
    """Keys choose; unknown ones are left out, as Kafka does."""
    await create_topic(gateway)
    assert ["segment.bytes"] == list(
        await describe(gateway, keys=["segment.bytes", "no.such.setting"])
    )
    assert {} == await describe(gateway, keys=["no.such.setting"])


async def test_an_empty_list_of_names_asks_for_all(gateway: InProcessGateway) -> None:
    """As in Kafka, where an empty list means what null means."""
    await create_topic(gateway)
    assert set(TOPIC_SETTINGS) == set(await describe(gateway, keys=[]))


async def test_synonyms_and_documentation_only_when_asked(gateway: InProcessGateway) -> None:
    """They are long, and most clients do not want them."""
    await create_topic(gateway)
    wanted = resource(TOPIC, "orders", configuration_keys=None)
    response = await call(gateway, ApiKey.DESCRIBE_CONFIGS, 4, resources=[wanted])
    for entry in response.results[0].configs:
        assert ([], None) == (entry.synonyms, entry.documentation)


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "1", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGERS, "", ErrorCode.INVALID_REQUEST),
        (LOGGERS, "1", ErrorCode.INVALID_REQUEST),
        (16, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (0, "", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_other_resources_are_refused(
    gateway: InProcessGateway, resource_type: int, name: str, code: ErrorCode
) -> None:
    """By all three APIs alike, and with a message."""
    wanted = resource(resource_type, name, configuration_keys=None)
    response = await call(gateway, ApiKey.DESCRIBE_CONFIGS, 4, resources=[wanted])
    (result,) = response.results
    assert (code, resource_type, name) == (
        result.error_code,
        result.resource_type,
        result.resource_name,
    )
    assert result.error_message
    assert code == await alter(gateway, {}, resource_type, name)
    assert code == await change(
        gateway, ("segment.bytes", Operation.SET, "4096"), resource_type=resource_type, name=name
    )


async def test_subscriptions_and_groups_have_no_settings(gateway: InProcessGateway) -> None:
    """A subscription to clients' metrics is described so, as in Kafka; groups take no setting."""
    wanted = resource(16, "client", configuration_keys=None)
    (result,) = (await call(gateway, ApiKey.DESCRIBE_CONFIGS, 4, resources=[wanted])).results
    assert (ErrorCode.NONE, []) == (result.error_code, list(result.configs))
    assert ErrorCode.INVALID_REQUEST == await alter(gateway, {"interval.ms": "1000"}, 16, "client")
    assert ErrorCode.NONE == await alter(gateway, {}, GROUP, "group")
    settings: dict[str, str | None] = {"consumer.session.timeout.ms": "50000"}
    assert ErrorCode.INVALID_CONFIG == await alter(gateway, settings, GROUP, "group")
    assert ErrorCode.INVALID_CONFIG == await change(
        gateway,
        ("consumer.session.timeout.ms", Operation.SET, "50000"),
        resource_type=GROUP,
        name="group",
    )


async def test_a_setting_without_a_name_is_told_before_a_topic_that_is_not_there(
    gateway: InProcessGateway,
) -> None:
    """Two things are wrong; the first is Kafka's."""
    assert ErrorCode.INVALID_CONFIG == await alter(gateway, {"": "1"}, TOPIC, "missing")


# --- loggers --------------------------------------------------------------------------------------


async def test_loggers_are_listed_with_their_levels(
    gateway: InProcessGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """In log4j's words, and for nobody to change: a start alone sets them."""
    caplog.set_level(logging.WARNING)
    caplog.set_level(logging.DEBUG, logger="kgw.tests.loggers")
    entries = await describe(gateway, LOGGERS, "0")
    assert {"root": "WARN", "kgw.gateway": "WARN", "kgw.tests.loggers": "DEBUG"} == {
        name: entries[name].value for name in ("root", "kgw.gateway", "kgw.tests.loggers")
    }
    assert {(True, ConfigSource.DYNAMIC_BROKER_LOGGER)} == {
        (one.read_only, one.config_source) for one in entries.values()
    }
    assert {"root", "kgw"} == {name.partition(".")[0] for name in entries}
    code = await change(gateway, ("root", Operation.SET, "DEBUG"), resource_type=LOGGERS, name="0")
    assert ErrorCode.INVALID_REQUEST == code


# --- what kgw does not do -------------------------------------------------------------------------

NOT_DONE = {
    "errors.deadletterqueue.group.enable": ("false", "true"),
    "follower.replication.throttled.replicas": ("", "0:1"),
    "leader.replication.throttled.replicas": ("", "*"),
    "local.retention.bytes": ("-2", "1000"),
    "local.retention.ms": ("-2", "1000"),
    "max.decompressed.message.bytes": ("2147483639", "1000"),
    "remote.copy.lag.bytes": ("-1", "0"),
    "remote.copy.lag.ms": ("0", "1"),
    "remote.log.copy.disable": ("false", "true"),
    "remote.log.delete.on.disable": ("false", "true"),
    "remote.storage.enable": ("false", "true"),
}
"""Topic settings that Kafka 4.4 lists: its default, and a value that kgw would have to obey."""


@pytest.mark.parametrize("name", NOT_DONE)
async def test_what_is_not_done_is_listed_as_kafka_lists_it(
    gateway: InProcessGateway, name: str
) -> None:
    """With Kafka's default, which may be set: a copy of a topic of Kafka's can be made."""
    default, other = NOT_DONE[name]
    await create_topic(gateway)
    assert ErrorCode.NONE == await change(gateway, (name, Operation.SET, default))
    await create_topic(gateway, "untouched")
    own = (await describe(gateway))[name]
    assert (default, ConfigSource.DYNAMIC_TOPIC) == (own.value, own.config_source)
    untouched = (await describe(gateway, name="untouched"))[name]
    assert (default, ConfigSource.DEFAULT) == (untouched.value, untouched.config_source)
    assert ErrorCode.INVALID_CONFIG == await change(gateway, (name, Operation.SET, other))


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("log.cleaner.threads", "1", "2"),
        ("max.decompressed.message.bytes", "2147483639", "1000"),
        ("unclean.leader.election.enable", "false", "true"),
        ("log.preallocate", "false", "true"),
        ("log.flush.interval.messages", "1000", "0"),
        ("log.flush.interval.ms", "1000", "-1"),
        ("producer.id.expiration.ms", "1000", "0"),
    ],
)
async def test_the_broker_takes_what_kafka_lets_change_as_far_as_it_obeys(
    gateway: InProcessGateway, name: str, taken: str, refused: str
) -> None:
    """While it runs; a value that it would not obey is refused."""
    for value, code in ((taken, ErrorCode.NONE), (refused, ErrorCode.INVALID_CONFIG)):
        answer = await change(gateway, (name, Operation.SET, value), resource_type=BROKER, name="0")
        assert code == answer
    entry = (await describe(gateway, BROKER, "0"))[name]
    assert (taken, False) == (entry.value, entry.read_only)
    assert ConfigSource.DYNAMIC_BROKER == entry.config_source


@pytest.mark.parametrize("name", ["0", ""])
async def test_min_insync_replicas_is_set_for_all_brokers(
    gateway: InProcessGateway, name: str
) -> None:
    """Formatting a Kafka sets it so, and it cannot be taken back; only 1 is true here."""
    await create_topic(gateway)
    setting = "min.insync.replicas"

    async def sources(resource_type: int, resource_name: str) -> list[tuple[str, int]]:
        entry = (await describe(gateway, resource_type, resource_name))[setting]
        assert ("1", entry.synonyms[0].source) == (entry.value, entry.config_source)
        return [(one.value, one.source) for one in entry.synonyms]

    of_all = ("1", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    default = ("1", ConfigSource.DEFAULT)
    for operation, value, code in (
        (Operation.DELETE, None, ErrorCode.NONE),
        (Operation.SET, "2", ErrorCode.INVALID_CONFIG),
        (Operation.SET, "1", ErrorCode.NONE),
    ):
        changed = (setting, operation, value)
        assert code == await change(gateway, changed, resource_type=BROKER, name=name)
        assert [of_all] == await sources(BROKER, "")
        assert [of_all, default] == await sources(BROKER, "0")
        assert [of_all, default] == await sources(TOPIC, "orders")
    await change(gateway, (setting, Operation.SET, "1"))
    own = ("1", ConfigSource.DYNAMIC_TOPIC)
    assert [own, of_all, default] == await sources(TOPIC, "orders")


async def test_producers_are_forgotten_by_the_time_that_was_set_while_it_runs(
    gateway: InProcessGateway,
) -> None:
    """From the next snapshot on."""
    topic = await create_topic(gateway)
    await produce(gateway, batch(producer_id=7, base_sequence=0))
    partitions = gateway.topic_manager.partitions
    gateway.manual_clock.advance(60)
    await partitions.save_snapshots()
    assert [7] == list(topic.partitions[0].producers.ids())
    await gateway.configure_broker(producer_id_expiration_ms="30000")
    await partitions.save_snapshots()
    assert [] == list(topic.partitions[0].producers.ids())


# --- topics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
async def test_alter_replaces_everything(gateway: InProcessGateway, version: int) -> None:
    """What AlterConfigs leaves out goes back to its default."""
    await create_topic(gateway, max_message_bytes="2000", segment_bytes="4096")
    code = await alter(gateway, {"segment.bytes": "8192"}, version=version)
    assert ErrorCode.NONE == code
    assert {"segment.bytes": "8192"} == own_texts(gateway)


@pytest.mark.parametrize("version", range(2))
async def test_incremental_change_leaves_the_rest(gateway: InProcessGateway, version: int) -> None:
    """SET and DELETE concern the settings that are named."""
    await create_topic(gateway, max_message_bytes="2000", segment_bytes="4096")
    code = await change(
        gateway,
        ("segment.bytes", Operation.DELETE, None),
        ("index.interval.bytes", Operation.SET, "100"),
        version=version,
    )
    assert ErrorCode.NONE == code
    assert {"max.message.bytes": "2000", "index.interval.bytes": "100"} == own_texts(gateway)


async def test_changes_are_acted_on_at_once(gateway: InProcessGateway) -> None:
    """The next batch meets the new limit."""
    await create_topic(gateway)
    await change(gateway, ("max.message.bytes", Operation.SET, "10"))
    assert ErrorCode.MESSAGE_TOO_LARGE == (await produce(gateway, batch(b"a"))).error_code
    await change(gateway, ("max.message.bytes", Operation.DELETE, None))
    assert ErrorCode.NONE == (await produce(gateway, batch(b"a"))).error_code


async def test_logs_learn_of_their_settings(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of what the log acts on reaches every partition's log, other changes do not."""
    topic = await create_topic(gateway, partitions=2)
    seen: list[int] = []
    monkeypatch.setattr(
        type(topic.partitions[0].log),
        "configure",
        lambda _, settings: seen.append(settings.segment_bytes),
    )
    await change(gateway, ("max.message.bytes", Operation.SET, "10"))
    assert [] == seen
    await change(gateway, ("segment.bytes", Operation.SET, "4096"))
    assert [4096, 4096] == seen


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.setting", "1"),
        ("segment.bytes", "small"),
        ("cleanup.policy", "shred"),
        ("retention.ms", "-2"),
        ("min.insync.replicas", "2"),
    ],
)
async def test_refused_settings_change_nothing(
    gateway: InProcessGateway, name: str, value: str
) -> None:
    """A resource is changed as a whole or not at all, and nothing is stored silently."""
    await create_topic(gateway, segment_bytes="4096")
    code = await change(
        gateway, ("max.message.bytes", Operation.SET, "10"), (name, Operation.SET, value)
    )
    assert ErrorCode.INVALID_CONFIG == code
    assert ErrorCode.INVALID_CONFIG == await alter(gateway, {name: value})
    assert {"segment.bytes": "4096"} == own_texts(gateway)


async def test_values_that_mean_what_is_done_are_taken(gateway: InProcessGateway) -> None:
    """Tools that set Kafka's own words for it are not turned away."""
    await create_topic(gateway)
    code = await change(
        gateway,
        ("cleanup.policy", Operation.SET, "delete"),
        ("retention.ms", Operation.SET, "-1"),
        ("min.insync.replicas", Operation.SET, "1"),
    )
    assert ErrorCode.NONE == code


async def test_lists(gateway: InProcessGateway) -> None:
    """APPEND and SUBTRACT change lists, starting from the effective value; others refuse them."""
    await create_topic(gateway)
    append, subtract = Operation.APPEND, Operation.SUBTRACT
    assert ErrorCode.NONE == await change(gateway, ("cleanup.policy", append, "delete"))
    code = await change(gateway, ("cleanup.policy", append, "shred"))
    assert ErrorCode.INVALID_CONFIG == code
    code = await change(gateway, ("cleanup.policy", subtract, "delete"))
    assert ErrorCode.INVALID_CONFIG == code
    assert ErrorCode.INVALID_CONFIG == await change(gateway, ("segment.bytes", append, "1"))
    assert ErrorCode.INVALID_CONFIG == await change(gateway, ("no.such.setting", append, "1"))


async def test_malformed_changes(gateway: InProcessGateway) -> None:
    """Null where a value must be, an unknown operation, a setting or a resource twice."""
    await create_topic(gateway)
    assert ErrorCode.INVALID_REQUEST == await change(
        gateway, ("segment.bytes", Operation.SET, None)
    )
    assert ErrorCode.INVALID_REQUEST == await change(gateway, ("segment.bytes", 9, "4096"))
    assert ErrorCode.INVALID_REQUEST == await change(
        gateway,
        ("segment.bytes", Operation.SET, "4096"),
        ("segment.bytes", Operation.DELETE, None),
    )
    assert ErrorCode.INVALID_CONFIG == await change(
        gateway, ("no.such.setting", Operation.DELETE, None)
    )
    assert ErrorCode.INVALID_REQUEST == await alter(gateway, {"segment.bytes": None})
    twice = [resource(TOPIC, "orders")] * 2
    response = await call(gateway, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=twice)
    assert [ErrorCode.INVALID_REQUEST] * 2 == [one.error_code for one in response.responses]


async def test_validate_only(gateway: InProcessGateway) -> None:
    """The same checks, and nothing changed."""
    await create_topic(gateway)
    good: dict[str, str | None] = {"segment.bytes": "4096"}
    bad: dict[str, str | None] = {"segment.bytes": "x"}
    assert ErrorCode.NONE == await alter(gateway, good, validate_only=True)
    assert ErrorCode.INVALID_CONFIG == await alter(gateway, bad, validate_only=True)
    limit: dict[str, str | None] = {"message.max.bytes": "1000"}
    assert ErrorCode.NONE == await alter(gateway, limit, BROKER, "0", validate_only=True)
    assert {} == own_texts(gateway)
    assert {} == gateway.gateway.dynamic_texts()


# --- the broker -----------------------------------------------------------------------------------


async def test_broker_settings_change_while_it_runs(gateway: InProcessGateway) -> None:
    """A topic without a setting of its own follows the broker's default; another does not."""
    await create_topic(gateway, "a")
    await create_topic(gateway, "b", max_message_bytes="5000")
    code = await change(
        gateway, ("message.max.bytes", Operation.SET, "100"), resource_type=BROKER, name="0"
    )
    assert ErrorCode.NONE == code
    answers = [await produce(gateway, batch(b"x" * 500), name=name) for name in ("a", "b")]
    assert [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE] == [one.error_code for one in answers]
    entries = await describe(gateway, BROKER, "0")
    assert ("100", ConfigSource.DYNAMIC_BROKER) == (
        entries["message.max.bytes"].value,
        entries["message.max.bytes"].config_source,
    )
    changed = await describe(gateway, BROKER, "")
    assert dict.fromkeys(
        ("message.max.bytes", "min.insync.replicas"), ConfigSource.DYNAMIC_DEFAULT_BROKER
    ) == {name: entry.config_source for name, entry in changed.items()}
    code = await change(
        gateway, ("message.max.bytes", Operation.DELETE, None), resource_type=BROKER, name=""
    )
    assert ErrorCode.NONE == code
    assert ErrorCode.NONE == (await produce(gateway, batch(b"x" * 500), name="a")).error_code


async def test_broker_settings_survive_a_restart(backend: MemoryBackend) -> None:
    """What was changed while running still holds, over what is given at start."""
    async with InProcessGateway(backend=backend) as gateway:
        await alter(gateway, {"message.max.bytes": "100"}, BROKER, "")
    async with InProcessGateway(Config.of(message_max_bytes=9), backend=backend) as gateway:
        assert 100 == gateway.config.get("message.max.bytes")
        await alter(gateway, {}, BROKER, "0")
        assert 9 == gateway.config.get("message.max.bytes")


@pytest.mark.parametrize("name", ["0", ""])
async def test_limits_of_connections_change_while_it_runs(
    backend: MemoryBackend, name: str
) -> None:
    """Of this broker, or of all: whoever accepts connections hears of it, and at the next start."""
    heard: list[tuple[int, int]] = []

    def hear(config: Config) -> None:
        heard.append((config.max_connections, config.max_connections_per_ip))

    async with InProcessGateway(backend=backend) as gateway:
        gateway.gateway.when_configured.append(hear)
        code = await change(
            gateway,
            ("max.connections", Operation.SET, "20"),
            ("max.connections.per.ip", Operation.SET, "10"),
            resource_type=BROKER,
            name=name,
        )
        assert ErrorCode.NONE == code
        for setting in ("max.connections", "max.connections.per.ip"):
            # Nobody could connect, and so nobody could change it back: Kafka refuses it, too.
            changed = (setting, Operation.SET, "0")
            code = await change(gateway, changed, resource_type=BROKER, name=name)
            assert ErrorCode.INVALID_CONFIG == code
        entry = (await describe(gateway, BROKER, name))["max.connections"]
        assert ("20", False) == (entry.value, entry.read_only)
    given = Config.of(max_connections=9, max_connections_per_ip=9)
    async with InProcessGateway(given, backend=backend) as gateway:
        config = gateway.config
        assert (20, 10) == (config.max_connections, config.max_connections_per_ip)
        gateway.gateway.when_configured.append(hear)
        taken_back = ("max.connections", Operation.DELETE, None)
        assert ErrorCode.NONE == await change(gateway, taken_back, resource_type=BROKER, name=name)
    assert [(20, 10), (9, 10)] == heard


async def test_settings_that_need_a_restart_are_refused(gateway: InProcessGateway) -> None:
    """A change that would only look like one is INVALID_CONFIG."""
    for name, value in (("listeners", "PLAINTEXT://:1"), ("node.id", "5"), ("no.such", "1")):
        code = await change(gateway, (name, Operation.SET, value), resource_type=BROKER, name="0")
        assert ErrorCode.INVALID_CONFIG == code
    assert {} == gateway.gateway.dynamic_texts()


async def test_throttles_of_replicas_are_taken_back_and_slow_nothing(
    gateway: InProcessGateway,
) -> None:
    """kafka-reassign-partitions deletes them from a broker at the end; there is nothing to slow."""
    names = (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
    taken_back = [(name, Operation.DELETE, None) for name in names]
    code = await change(gateway, *taken_back, resource_type=BROKER, name="0")
    assert ErrorCode.NONE == code
    for name in names:
        for rate, expected in (
            ("1000000", ErrorCode.INVALID_CONFIG),
            (str(2**63 - 1), ErrorCode.NONE),
        ):
            set_ = (name, Operation.SET, rate)
            assert expected == await change(gateway, set_, resource_type=BROKER, name="0")


async def test_a_password_is_listed_without_its_value() -> None:
    """It is said to be there and sensitive, by its synonyms, too."""
    config = Config.of(state_password="c4nary")
    async with InProcessGateway(config) as gateway:
        settings = await describe(gateway, BROKER, "0")

    password = settings["kgw.state.password"]
    assert (True, None, 9) == (password.is_sensitive, password.value, password.config_type)
    assert {None} == {synonym.value for synonym in password.synonyms}
    assert "c4nary" not in str(settings)
    assert not settings["kgw.state.url"].is_sensitive
