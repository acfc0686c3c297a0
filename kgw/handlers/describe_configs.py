"""DescribeConfigs, key 32, versions 0 to 4: the settings of topics and of this broker.

Behaviour:
- each value is the current one and has its source; settings that can have only one value are
  listed, too;
- a value from a file, the environment or a flag is static, even if it equals the default. The node
  id that is kept from an earlier start is static, too;
- broker "" lists only the settings that were changed at run time;
- min.insync.replicas is listed as a dynamic setting of all brokers, as Kafka sets it so when its
  storage is formatted;
- the loggers of this broker are listed with their levels, which can be set only at the start;
- a group has no settings. From v4 on, a client can ask for two entries by name, in JSON:
  `kgw.group.trace`, the latest decisions of the group and their reasons (`kgw groups explain` shows
  them), and `kgw.group.members`, its members and their states, including members that have yet to
  join. They need DESCRIBE on the group, too, as DescribeGroups does;
- from v4 on, the entry `kgw.problems` of a broker has its problems, in JSON. Its entry `kgw.clock`
  has the time in milliseconds, so that `kgw doctor` can compare clocks;
- a subscription to clients' metrics (KIP-714) has no settings, as there are none;
- other resources are refused with INVALID_REQUEST;
- all settings of an internal topic are read-only;
- all settings of a topic that another system writes are read-only, too; further facts about such a
  topic are listed with them;
- a password is marked as sensitive and listed without its value.

v1: sources and synonyms (KIP-226). v3: types and documentation (KIP-569). v4: flexible (KIP-482).
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from kgw.config import SERVER_SETTINGS, TOPIC_SETTINGS, SettingType
from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.config_resources import (
    ConfigResourceType,
    ConfigSource,
    check_broker,
    check_logger_owner,
    check_rights_on_configs,
    dynamic_source,
    find_topic,
    rights_on_configs,
    unsupported_resource,
)
from kgw.handlers.parts import AnswerByItem
from kgw.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kgw.security.acls.terms import AclOperation, ResourceType

GROUP_TRACE = "kgw.group.trace"
GROUP_MEMBERS = "kgw.group.members"
PROBLEMS = "kgw.problems"
CLOCK = "kgw.clock"
PROBLEMS_LISTED = 100
ROOT_LOGGER = "root"
_LOG4J_LEVELS = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
}
# Older versions limit a string to 32,767 bytes.
_LONG_STRINGS = 4

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from kgw.config import Config, Setting, Value
    from kgw.groups.coordinator import GroupCoordinator
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.describe_configs import DescribeConfigsResource


class DescribeConfigs(AnswerByItem):
    response_type = DescribeConfigsResponse
    rights = rights_on_configs(
        AclOperation.DESCRIBE_CONFIGS, (AclOperation.DESCRIBE, ResourceType.GROUP)
    )
    parts = {"results": "resources"}
    # Settings, of which a topic has about 30: each takes 4 microseconds, including its encoding.
    per_turn = 400

    def check_item_rights(self, asked: DescribeConfigsResource) -> None:
        check_rights_on_configs(self, AclOperation.DESCRIBE_CONFIGS, asked)

    def item(self, asked: DescribeConfigsResource) -> DescribeConfigsResult:
        entries = [*self._entries(asked)]
        for entry in entries:
            if not self.request.include_synonyms:
                entry.synonyms = []
            if not self.request.include_documentation:
                entry.documentation = None
            if self.version == 0:  # which has this instead of the source
                entry.is_default = entry.config_source == ConfigSource.DEFAULT
        # As in Kafka, an empty list asks for all settings, like null.
        keys = set(asked.configuration_keys or ())
        return DescribeConfigsResult(
            error_message=None,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=[entry for entry in entries if not keys or entry.name in keys],
        )

    def weigh(self, item: DescribeConfigsResult) -> int:
        # The settings that the request leaves out have been read, too, and count.
        return max(len(TOPIC_SETTINGS), len(item.configs))

    def _entries(self, asked: DescribeConfigsResource) -> Iterator[DescribeConfigsResourceResult]:
        gateway = self.gateway
        config = gateway.config
        name = asked.resource_name
        if asked.resource_type == ConfigResourceType.TOPIC:
            topic = find_topic(gateway, name)
            for setting in TOPIC_SETTINGS.values():
                yield _topic_entry(setting, topic, config)
            for note in () if topic.foreign is None else topic.foreign.notes:
                # A fact about a topic that another system leads.
                yield _text_entry(note.name, note.value, note.doc, ConfigSource.DYNAMIC_TOPIC)
        elif asked.resource_type == ConfigResourceType.BROKER:
            check_broker(gateway, name)
            for setting in SERVER_SETTINGS.values():
                if name or dynamic_source(setting.name, config) is not None:
                    yield _broker_entry(setting, config, is_default_broker=not name)
            if name:
                yield from self._broker_facts(asked.configuration_keys or ())
        elif asked.resource_type == ConfigResourceType.BROKER_LOGGER:
            check_logger_owner(gateway, name)
            yield from map(_logger_entry, [ROOT_LOGGER, *sorted(_loggers())])
        elif asked.resource_type == ConfigResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of a group is empty")
            # Listed only on request: tools that list all entries of a group expect settings.
            for key in _GROUP_ENTRIES:
                if key in (asked.configuration_keys or ()):
                    yield self._group_entry(key, name)
        elif asked.resource_type == ConfigResourceType.CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of a subscription is empty")
        else:
            raise unsupported_resource(asked.resource_type)

    def _broker_facts(self, keys: Collection[str]) -> Iterator[DescribeConfigsResourceResult]:
        """Yield the entries of a broker that are no settings, like a group's trace."""
        if PROBLEMS in keys:
            yield self._problems_entry()
        if CLOCK in keys:
            now_ms = str(self.gateway.clock.wall_ms())
            yield _text_entry(CLOCK, now_ms, "The time by the clock of the server.")

    def _problems_entry(self) -> DescribeConfigsResourceResult:
        self._check_long_strings(PROBLEMS)
        problems = self.gateway.problem_watch.tell()[:PROBLEMS_LISTED]
        return _text_entry(
            PROBLEMS,
            json.dumps([[reason.name, text] for reason, text in problems]),
            "What is wrong with the server: reasons, each with a sentence.",
        )

    def _group_entry(self, key: str, group_id: str) -> DescribeConfigsResourceResult:
        self._check_long_strings(key)
        self.authorize(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        ask, documentation = _GROUP_ENTRIES[key]
        found = ask(self.groups(group_id), group_id)
        if found is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        return _text_entry(key, json.dumps(found), documentation)

    def _check_long_strings(self, key: str) -> None:
        """Raise KafkaError UNSUPPORTED_VERSION if a value may be too long for the version."""
        if self.version < _LONG_STRINGS:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{key} needs version {_LONG_STRINGS}")


def _text_entry(
    name: str, value: str, documentation: str, source: ConfigSource = ConfigSource.DEFAULT
) -> DescribeConfigsResourceResult:
    """Return an entry that is no setting."""
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=True,
        config_source=source,
        config_type=SettingType.STRING,
        documentation=documentation,
    )


def _loggers() -> Iterator[str]:
    """Yield the names of the loggers of kgw that have been used."""
    # A copy, as other threads may add loggers.
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "kgw":
            yield name


def _logger_entry(name: str) -> DescribeConfigsResourceResult:
    """Return the level of a logger, in log4j's names."""
    logger = logging.root if name == ROOT_LOGGER else logging.getLogger(name)
    level = _LOG4J_LEVELS.get(logger.getEffectiveLevel(), "INFO")
    documentation = "The least serious lines that are written."
    return _text_entry(name, level, documentation, ConfigSource.DYNAMIC_BROKER_LOGGER)


_GROUP_ENTRIES: dict[str, tuple[Callable[[GroupCoordinator, str], object], str]] = {
    GROUP_TRACE: (
        lambda groups, group_id: groups.explain(group_id),
        "What the group decided lately and why.",
    ),
    GROUP_MEMBERS: (
        lambda groups, group_id: groups.members(group_id),
        "The members of the group and how far each is.",
    ),
}


def _topic_entry(setting: Setting, topic: Topic, config: Config) -> DescribeConfigsResourceResult:
    topic_config = topic.config
    synonyms = []
    if setting.name in topic_config.own:
        own = topic_config.own[setting.name]
        synonyms.append(_synonym(setting, own, ConfigSource.DYNAMIC_TOPIC))
    if setting.server_setting:
        behind = _server_synonyms(SERVER_SETTINGS[setting.server_setting], config)
        for coarser in setting.coarser_settings:
            # A coarser setting applies if the finest one is not set: insert it before the default.
            behind[-1:-1] = _server_synonyms(SERVER_SETTINGS[coarser], config)[:-1]
        synonyms.extend(behind)
    else:
        synonyms.append(_synonym(setting, setting.default, ConfigSource.DEFAULT))
    value = topic_config.value(setting)
    is_fixed = topic.is_internal or topic.foreign is not None
    return _entry(setting, value, synonyms, read_only=is_fixed)


def _broker_entry(
    setting: Setting, config: Config, *, is_default_broker: bool
) -> DescribeConfigsResourceResult:
    synonyms = _server_synonyms(setting, config, is_default_broker=is_default_broker)
    return _entry(setting, config.get(setting.name), synonyms, read_only=not setting.dynamic)


def _entry(
    setting: Setting, value: Value, synonyms: list[DescribeConfigsSynonym], *, read_only: bool
) -> DescribeConfigsResourceResult:
    """Return an entry; its source is that of the first synonym."""
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=None if setting.is_sensitive else setting.format(value),
        read_only=read_only,
        is_sensitive=setting.is_sensitive,
        config_source=synonyms[0].source,
        synonyms=synonyms,
        config_type=setting.type,
        documentation=setting.doc,
    )


def _server_synonyms(
    setting: Setting, config: Config, *, is_default_broker: bool = False
) -> list[DescribeConfigsSynonym]:
    """Return the values of a server setting by source; the first one is in force.

    Broker "" has only the dynamic value, as in Kafka: other values belong to one broker.
    """
    name = setting.name
    if is_default_broker:
        return [_synonym(setting, config.get(name), ConfigSource.DYNAMIC_DEFAULT_BROKER)]
    synonyms = []
    dynamic = dynamic_source(name, config)
    if dynamic is not None:
        synonyms.append(_synonym(setting, config.get(name), dynamic))
    if config.is_given(name):
        synonyms.append(_synonym(setting, config.static_value(name), ConfigSource.STATIC_BROKER))
    synonyms.append(_synonym(setting, setting.default, ConfigSource.DEFAULT))
    return synonyms


def _synonym(setting: Setting, value: Value, source: ConfigSource) -> DescribeConfigsSynonym:
    shown = None if setting.is_sensitive else setting.format(value)
    return DescribeConfigsSynonym(name=setting.name, value=shown, source=source)
