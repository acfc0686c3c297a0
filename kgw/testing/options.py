"""Options of a test's broker: topics and settings, checked before the broker starts."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from kgw.config import ConfigError, load_config, parse_topic_config
from kgw.security.principal import Principal
from kgw.testing.arguments import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kgw.config import Config

DEFAULT_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
"""Defaults that differ from `kgw serve`: here a group's first member does not wait for others."""

OWN_SETTINGS = frozenset(
    {
        "advertised.listeners",
        "kgw.admin.listeners",
        "kgw.backend",
        "kgw.debug.slow.callback.ms",
        "kgw.smq.agent.listener",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
    }
)
"""Settings that a test cannot pass: the broker sets them, or they make no sense in a test's
process."""


TEST_ITSELF = Principal("Test", "itself")
"""The principal of the methods of a broker. No client has it, as those are users."""


class TopicSpec(NamedTuple):
    """A topic to create: its partition count, and settings by Kafka's names."""

    partitions: int = 1
    settings: Mapping[str, str] = {}

    @classmethod
    def of(cls, wanted: int | Mapping[str, object]) -> Self:
        """Parse the forms `3` and `{"partitions": 3, "retention.ms": 1000}`. Raises ValueError."""
        own: dict[str, object] = {"partitions": wanted} if isinstance(wanted, int) else {}
        if not own:
            if not hasattr(wanted, "items"):
                raise ValueError(f"{wanted!r} is neither a number of partitions nor settings")
            own = dict(wanted.items())
        for name in cast("Iterable[object]", own):
            if not isinstance(name, str):
                raise ArgumentError(f"{name!r} is no name of a setting")
        partitions = own.pop("partitions", 1)
        if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
            raise ValueError(f"a topic has one partition or more, not {partitions!r}")
        settings = {name: _text(value) for name, value in own.items()}
        try:
            parse_topic_config(settings)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return cls(partitions, settings)


def topic_specs(argument: str, *forms: object, **topics: object) -> dict[str, TopicSpec]:
    """Return topics by name; if a name is repeated, the last one counts.

    A form is a name, for one partition; a dict from names to forms of `TopicSpec.of`; or a list of
    forms. Raises ValueError, which names the argument and the topic.
    """
    wanted: dict[object, Any] = {}
    for one in _one_by_one((*forms, topics)):
        if isinstance(one, str):
            wanted[one] = 1
        elif hasattr(one, "items"):
            wanted.update(one.items())
        else:
            raise ArgumentError(
                f"{argument}: {one!r} is no name of a topic, and no dict as {{'orders': 3}}"
            )
    specs: dict[str, TopicSpec] = {}
    for name, spec in wanted.items():
        if not isinstance(name, str):
            raise ArgumentError(f"{argument}: {name!r} is no name of a topic")
        try:
            specs[name] = spec if isinstance(spec, TopicSpec) else TopicSpec.of(spec)
        except ValueError as error:
            raise ArgumentError(f"{argument}: {name}: {error}") from None
    return specs


def _one_by_one(forms: Any) -> Iterator[Any]:
    for form in forms:
        if isinstance(form, (list, tuple, set, frozenset)):
            yield from _one_by_one(form)
        else:
            yield form


def broker_config(
    settings: Mapping[str, object],
    data_dir: Path | str | None = None,
    security: Mapping[str, str] | None = None,
) -> Config:
    """Return a broker's configuration.

    `security` has the settings of its TLS, logins and access rules. Raises ConfigError, and
    ValueError for settings that are not a dict.
    """
    settings = _dict("settings", settings, '{"num.partitions": 3}')
    for name in settings:
        if not isinstance(name, str):
            raise ArgumentError(f"settings: {name!r} is no name of a setting")
        if name in OWN_SETTINGS:
            raise ConfigError(f"{name} is not for a broker of tests to be given")
    kept = {"kgw.backend": "memory"}
    if data_dir is not None:
        if not isinstance(data_dir, (str, PathLike)):
            raise ArgumentError(f"data_dir is a path, not {data_dir!r}")
        kept = {"kgw.backend": "embedded", "log.dirs": str(Path(data_dir).absolute())}
    given = {name: _text(value) for name, value in settings.items()}
    texts = {**DEFAULT_SETTINGS, **(security or {}), **given, **kept}
    if any(name in texts for name in ("super.users", "authorizer.class.name")):
        # The broker's own methods need no access rule.
        texts["super.users"] = f"{texts.get('super.users', '')};{TEST_ITSELF}"
    return load_config(overrides=[(name, text, "kgw_settings") for name, text in texts.items()])


def _dict(what: str, given: Any, example: str) -> dict[str, Any]:
    if not hasattr(given, "items"):
        raise ValueError(f"{what} are a dict, as {example}, not {given!r}")
    return dict(given.items())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
