"""Reads the configuration: file, then environment, then flags; the last one wins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.config.config import Config, Given, server_setting
from kgw.config.refused import REFUSED_TOPIC_SETTINGS, why_refused
from kgw.config.server_settings import SERVER_ALIASES, SERVER_SETTINGS
from kgw.config.setting import ConfigError, suggest
from kgw.config.topic_settings import TOPIC_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

PREFIX = "KGW_"
# Variables that are read elsewhere: the command line's server addresses, the file's name.
CLIENT_VARIABLES = frozenset({"KGW_ADMIN", "KGW_ADMIN_TOKEN_FILE", "KGW_BOOTSTRAP"})
"""Variables of the commands that talk to a server."""
_OTHER_VARIABLES = CLIENT_VARIABLES | {"KGW_CONFIG"}
# Kubernetes sets KGW_PORT, KGW_SERVICE_HOST and more in every pod beside a service called kgw.
_SERVICE_LINKS = ("KGW_PORT", "KGW_SERVICE_")
# Flags of `kgw serve` that a user may take for settings: the settings have Kafka's names.
_NAMED_LIKE_FLAGS = {
    "KGW_ADVERTISE": "KGW_ADVERTISED_LISTENERS",
    "KGW_DATADIR": "KGW_LOG_DIRS",
    "KGW_DATA_DIR": "KGW_LOG_DIRS",
    "KGW_LISTEN": "KGW_LISTENERS",
}
# Names that Kafka's clients and tools use for `KGW_BOOTSTRAP`.
_NAMED_LIKE_KAFKAS = dict.fromkeys(
    ("KGW_BOOTSTRAP_SERVER", "KGW_BOOTSTRAP_SERVERS", "KGW_BROKER", "KGW_BROKERS"), "KGW_BOOTSTRAP"
)
_NEAR_A_CLIENT_VARIABLE = 0.8


def load_config(
    file: Path | str | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[tuple[str, str, str]] = (),
) -> Config:
    """Return the configuration made of a TOML file, the environment and flags.

    `overrides` are (name, text, origin); a later one wins over an earlier. Raises ConfigError with
    one line that names the file, variable or flag.
    """
    given: dict[str, Given] = {}
    if file is not None:
        _read_file(file, given)
    warnings = tuple(_read_environment(environ or {}, given))
    for name, text, origin in overrides:
        _take(given, name, text, origin)
    return Config(given, warnings=warnings)


def environment_name(name: str) -> str:
    """Return the environment variable of a setting: KGW_NUM_PARTITIONS, KGW_CACHE_BYTES."""
    return PREFIX + name.removeprefix("kgw.").replace(".", "_").upper()


def check_client_variables(environ: Mapping[str, str]) -> None:
    """Raise ConfigError for a variable whose name is near one of `CLIENT_VARIABLES`.

    Commands would ignore it and connect to a server on this machine. Other names are ignored: other
    programs may use this prefix, too.
    """
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and variable not in CLIENT_VARIABLES:
            near = _near_client_variable(variable)
            if near and not variable.startswith(_SERVICE_LINKS) and variable not in _known():
                raise ConfigError(f"environment variable {variable} is not known{near}")


def _near_client_variable(variable: str) -> str:
    meant = _NAMED_LIKE_KAFKAS.get(variable)
    if meant is not None:
        return f"; did you mean {meant}?"
    return suggest(variable, _OTHER_VARIABLES, cutoff=_NEAR_A_CLIENT_VARIABLE)


def _known() -> dict[str, str]:
    """Return the settings by their variables, also by those of older names."""
    known = {environment_name(name): name for name in SERVER_SETTINGS}
    return known | {environment_name(alias): name for alias, name in SERVER_ALIASES.items()}


def split_assignment(text: str) -> tuple[str, str]:
    """Return the name and value of `KEY=VALUE`. Raises ConfigError."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"{text!r} is not KEY=VALUE")
    return name.strip(), value


def _take(given: dict[str, Given], name: str, raw: object, origin: str) -> None:
    try:
        setting = server_setting(name)
        given[setting.name] = Given(setting.convert(raw), origin)
    except ConfigError as error:
        raise ConfigError(f"{error} ({origin})") from None


def _read_file(file: Path | str, given: dict[str, Given]) -> None:
    from tomllib import TOMLDecodeError, loads

    try:
        with open(file, encoding="utf-8") as stream:  # noqa: PTH123 - pathlib costs start-up time
            document = loads(stream.read())
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except (TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    origin = f"file {file}"
    for name, raw in _flatten(document, ""):
        _take(given, name, raw, origin)


def _flatten(document: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    """Yield settings by full name, whether written quoted, dotted or as tables."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _read_environment(environ: Mapping[str, str], given: dict[str, Given]) -> Iterator[str]:
    """Take the settings found, and yield warnings about variables without a meaning."""
    ours = sorted(name for name in environ if name.startswith(PREFIX))
    if not ours:
        return
    known = _known()
    for variable in ours:
        if variable in known:
            _take(given, known[variable], environ[variable], f"environment variable {variable}")
        elif variable not in _OTHER_VARIABLES and not variable.startswith(_SERVICE_LINKS):
            # As in a file, or in --set: a setting that would have no effect is refused by its name.
            name = variable.removeprefix(PREFIX).lower().replace("_", ".")
            for known_name in filter(_is_refused, (name, f"kgw.{name}")):
                _take(given, known_name, environ[variable], f"environment variable {variable}")
            meant = _NAMED_LIKE_FLAGS.get(variable)
            near = f"; did you mean {meant}?" if meant else suggest(variable, known, cutoff=0.9)
            if near:
                raise ConfigError(f"environment variable {variable} is no setting{near}")
            # Other programs, and other versions of this one, may use the prefix.
            near = _near_client_variable(variable)
            yield f"environment variable {variable} is no setting{near}"


def _is_refused(name: str) -> bool:
    """Return whether the name is a setting of Kafka, or of topics, that the server lacks."""
    return name in TOPIC_SETTINGS or name in REFUSED_TOPIC_SETTINGS or why_refused(name) is not None
