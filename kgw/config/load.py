"""Loads the configuration from a file, the environment and flags; later ones take precedence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.config.config import Config, Given, server_setting
from kgw.config.server_settings import SERVER_ALIASES, SERVER_SETTINGS
from kgw.config.setting import ConfigError, suggest
from kgw.config.topic_settings import TOPIC_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

PREFIX = "KGW_"
# Variables that other modules read: server addresses for the command line, and the file's name.
CLIENT_VARIABLES = frozenset(
    {"KGW_ADMIN", "KGW_ADMIN_TOKEN_FILE", "KGW_BOOTSTRAP", "KGW_COMMAND_CONFIG"}
)
"""Variables for commands that talk to a server."""
_OTHER_VARIABLES = CLIENT_VARIABLES | {"KGW_CONFIG"}
# If there is a Kubernetes service called kgw, every pod has KGW_PORT, KGW_SERVICE_HOST and more.
_SERVICE_LINKS = ("KGW_PORT", "KGW_SERVICE_")
# Flags of `kgw serve` that users may take for settings; the settings have Kafka's names.
_NAMED_LIKE_FLAGS = {
    "KGW_ADVERTISE": "KGW_ADVERTISED_LISTENERS",
    "KGW_DATADIR": "KGW_LOG_DIRS",
    "KGW_DATA_DIR": "KGW_LOG_DIRS",
    "KGW_LISTEN": "KGW_LISTENERS",
}
# Names of Kafka's clients and tools for what kgw calls `KGW_BOOTSTRAP`.
_NAMED_LIKE_KAFKAS = dict.fromkeys(
    ("KGW_BOOTSTRAP_SERVER", "KGW_BOOTSTRAP_SERVERS", "KGW_BROKER", "KGW_BROKERS"), "KGW_BOOTSTRAP"
)
_NEAR_A_CLIENT_VARIABLE = 0.8


def load_config(
    file: Path | str | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[tuple[str, str, str]] = (),
) -> Config:
    """Load the configuration from a TOML file, the environment and flags.

    `overrides` are tuples (name, text, origin); later ones take precedence. Raises ConfigError with
    a one-line message that names the file, variable or flag.
    """
    given: dict[str, Given] = {}
    if file is not None:
        _read_file(file, given)
    warnings = tuple(_read_environment(environ or {}, given))
    for name, text, origin in overrides:
        _take(given, name, text, origin)
    return Config(given, warnings=warnings)


def environment_name(name: str) -> str:
    """Return the environment variable of a setting, e.g. KGW_NUM_PARTITIONS or KGW_CACHE_BYTES."""
    return PREFIX + name.removeprefix("kgw.").replace(".", "_").upper()


def check_client_variables(environ: Mapping[str, str]) -> None:
    """Raise ConfigError for a variable with nearly the name of one in `CLIENT_VARIABLES`.

    Otherwise commands would ignore it, and connect to a server on this machine. Other variables are
    ignored: other programs may use the prefix KGW_, too.
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
    """Map environment variables to settings, including those of older names."""
    known = {environment_name(name): name for name in SERVER_SETTINGS}
    return known | {environment_name(alias): name for alias, name in SERVER_ALIASES.items()}


def split_assignment(text: str) -> tuple[str, str]:
    """Split `KEY=VALUE` into name and value. Raises ConfigError."""
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
    """Yield settings by full name, however the file writes them: quoted, dotted or as tables."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _read_environment(environ: Mapping[str, str], given: dict[str, Given]) -> Iterator[str]:
    """Store the settings from the environment, and yield warnings about unknown variables."""
    ours = sorted(name for name in environ if name.startswith(PREFIX))
    if not ours:
        return
    known = _known()
    for variable in ours:
        if variable in known:
            _take(given, known[variable], environ[variable], f"environment variable {variable}")
        elif variable not in _OTHER_VARIABLES and not variable.startswith(_SERVICE_LINKS):
            # Refuse a setting without effect here, too, as in a file and in --set.
            name = variable.removeprefix(PREFIX).lower().replace("_", ".")
            for known_name in filter(_is_refused, (name, f"kgw.{name}")):
                _take(given, known_name, environ[variable], f"environment variable {variable}")
            meant = _NAMED_LIKE_FLAGS.get(variable)
            near = f"; did you mean {meant}?" if meant else suggest(variable, known, cutoff=0.9)
            if near:
                raise ConfigError(f"environment variable {variable} is no setting{near}")
            # An unknown variable is only a warning: other programs and versions may use the prefix.
            near = _near_client_variable(variable)
            yield f"environment variable {variable} is no setting{near}"


def _is_refused(name: str) -> bool:
    """Return whether Kafka or topics have a setting of this name, and the server does not."""
    # Imported here: most environments have no such name.
    from kgw.config.refused import REFUSED_TOPIC_SETTINGS, why_refused

    return name in TOPIC_SETTINGS or name in REFUSED_TOPIC_SETTINGS or why_refused(name) is not None
