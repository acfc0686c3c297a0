"""One setting: its type, default, limits and description, and the parsing of its values."""

from __future__ import annotations

from enum import IntEnum
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, overload

from kgw.errors import KgwError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ValueT = TypeVar("ValueT", bool, int, float, str, tuple[str, ...])
Value: TypeAlias = bool | int | float | str | tuple[str, ...]
"""The value of a setting. Lists are tuples, so that a configuration is immutable."""

HIDDEN = "[hidden]"
"""The text that is shown instead of a password."""

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

# Powers of 1024 for every unit: users write "100 MB" for Kafka's 104857600.
_SIZE_FACTORS = {
    "b": 1,
    "kb": 1 << 10,
    "kib": 1 << 10,
    "mb": 1 << 20,
    "mib": 1 << 20,
    "gb": 1 << 30,
    "gib": 1 << 30,
    "tb": 1 << 40,
    "tib": 1 << 40,
}
_TIME_FACTORS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_NONE: Mapping[str, int] = MappingProxyType({})
_FACTORS = {"bytes": _SIZE_FACTORS, "ms": _TIME_FACTORS}


class ConfigError(KgwError):
    """A setting has an invalid value; the one-line message has the setting, source and reason."""


class SettingType(IntEnum):
    """The types of settings, with their numbers in DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9
    """A string that is never shown again."""


_TYPES: dict[type, SettingType] = {
    bool: SettingType.BOOLEAN,
    str: SettingType.STRING,
    int: SettingType.INT,
    float: SettingType.DOUBLE,
    tuple: SettingType.LIST,
}


_NUMBERS = frozenset({SettingType.INT, SettingType.LONG, SettingType.DOUBLE})


class TypedSetting(Generic[ValueT]):
    """One row of a settings table.

    Server settings are attributes of the base classes of `Config`, so that a type checker knows the
    type of each attribute: that of the default.

    `allowed` lists the accepted values; other values that Kafka accepts are refused with `reason`.
    `server_setting` names the broker setting that gives a topic setting its default. If that is not
    set, `coarser_settings` do, in their order, each with its unit in milliseconds. A `dynamic`
    setting can change while the server runs (IncrementalAlterConfigs). `attribute` is the setting's
    name in `Config`. `type` is the type of the default, unless LONG or PASSWORD is given. A number
    is at least 0, unless `minimum` is given. `unit` is ms or bytes if the name contains that word,
    unless it is given.
    """

    def __init__(
        self,
        name: str,
        default: ValueT,
        doc: str,
        *,
        type_: SettingType | None = None,
        unit: str | None = None,
        minimum: float | None = None,
        maximum: float | None = None,
        allowed: tuple[Value, ...] = (),
        reason: str = "",
        check: Callable[[Value], None] | None = None,
        dynamic: bool = False,
        server_setting: str = "",
        coarser_settings: Mapping[str, int] = _NONE,
    ) -> None:
        self.name = name
        self.type = _TYPES[type(default)] if type_ is None else type_
        self.default: Value = default
        self.doc = doc
        if unit is None:
            unit = next((word for word in name.split(".") if word in _FACTORS), "")
        self.unit = unit
        if maximum is None and self.type is SettingType.INT:
            maximum = INT_MAX
        elif maximum is None and self.type is SettingType.LONG:
            maximum = LONG_MAX
        if minimum is None and self.type in _NUMBERS and not allowed:
            minimum = 0
        self.minimum = minimum
        self.maximum = maximum
        self.allowed = allowed
        self.reason = reason
        self.check = check
        self.dynamic = dynamic
        self.server_setting = server_setting
        self.coarser_settings = coarser_settings
        self.attribute = attribute_name(name)

    @overload
    def __get__(self, config: None, owner: type) -> Self: ...
    @overload
    def __get__(self, config: object, owner: type) -> ValueT: ...
    def __get__(self, config: object, owner: type) -> Any:
        # Only for access on a class: an instance of Config has values as its own attributes.
        return self

    def __repr__(self) -> str:
        return f"Setting({self.name})"

    @property
    def is_fixed(self) -> bool:
        """Whether the setting can have only one value."""
        return len(self.allowed) == 1

    @property
    def is_sensitive(self) -> bool:
        """Whether the setting's value is never shown."""
        return self.type is SettingType.PASSWORD

    def parse(self, text: str, *, suffixes: bool = False) -> Value:
        """Parse a value from text.

        With `suffixes`, sizes and times may have a unit ("64MB", "10s"); Kafka clients send plain
        numbers. Raises ConfigError without the source, which the caller adds.
        """
        text = text.strip()
        value: Value
        match self.type:
            case SettingType.BOOLEAN:
                if text.lower() not in {"true", "false"}:
                    raise ConfigError(f"{self.name}: {text!r} is neither true nor false")
                value = text.lower() == "true"
            case SettingType.INT | SettingType.LONG:
                value = self._parse_integer(text, suffixes=suffixes)
            case SettingType.DOUBLE:
                try:
                    value = float(text)
                except ValueError:
                    raise ConfigError(f"{self.name}: {text!r} is not a number") from None
            case SettingType.LIST:
                value = tuple(item.strip() for item in text.split(",") if item.strip())
            case _:
                value = text
        return self.validate(value)

    def convert(self, raw: object) -> Value:
        """Return the setting's value for a TOML value, which may be text with a unit."""
        if isinstance(raw, str):
            return self.parse(raw, suffixes=True)
        if isinstance(raw, list) and self.type is SettingType.LIST:
            return self.validate(tuple(str(item) for item in raw))
        if isinstance(raw, bool):
            if self.type is SettingType.BOOLEAN:
                return self.validate(raw)
        elif isinstance(raw, int) and self.type in {SettingType.INT, SettingType.LONG}:
            return self.validate(raw)
        elif isinstance(raw, (int, float)) and self.type is SettingType.DOUBLE:
            try:
                return self.validate(float(raw))
            except OverflowError:
                raise ConfigError(f"{self.name}: {raw} is out of range") from None
        shown = HIDDEN if self.is_sensitive else repr(raw)
        raise ConfigError(f"{self.name}: {shown} is not {_TYPE_WORDS[self.type]}")

    def validate(self, value: Value) -> Value:
        """Return a value that is within the setting's limits; otherwise raise ConfigError."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            # Not for integers: a very large integer would raise OverflowError.
            if isinstance(value, float) and not isfinite(value):
                raise ConfigError(f"{self.name}: {value} is not a number to calculate with")
            if self.minimum is not None and value < self.minimum:
                raise ConfigError(f"{self.name}: {value} is below the minimum of {self.minimum}")
            if self.maximum is not None and value > self.maximum:
                raise ConfigError(f"{self.name}: {value} is above the maximum of {self.maximum}")
        if self.allowed and value not in self.allowed:
            raise ConfigError(self._not_allowed(value))
        if self.check is not None:
            try:
                self.check(value)
            except ValueError as error:
                raise ConfigError(f"{self.name}: {error}") from None
        return value

    def format(self, value: Value) -> str:
        """Return a value as text in Kafka's form, as for DescribeConfigs."""
        if self.is_sensitive:
            return HIDDEN if value else ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def _parse_integer(self, text: str, *, suffixes: bool) -> int:
        digits = text.removeprefix("-")
        # `isdigit` alone also accepts superscripts and digits of other scripts.
        if digits.isascii() and digits.isdigit():
            if len(digits) > 20:
                raise ConfigError(f"{self.name}: {text[:24]}... is out of range")
            return int(text)
        factors = _FACTORS.get(self.unit)
        if suffixes and factors:
            number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ").strip()
            factor = factors.get(text[len(number) :].strip().lower())
            if factor and number.isascii() and number.isdigit() and len(number) <= 20:
                return int(number) * factor
            example = "64MB" if self.unit == "bytes" else "10s"
            raise ConfigError(
                f"{self.name}: {text!r} is not a whole number of {self.unit}, nor like {example}"
            )
        raise ConfigError(f"{self.name}: {text!r} is not a whole number")

    def _not_allowed(self, value: Value) -> str:
        allowed = " or ".join(self.format(one) or '""' for one in self.allowed)
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.name}: {self.format(value)!r} is refused, only {allowed} is served{why}"


Setting: TypeAlias = TypedSetting[Any]
"""A setting of any type."""

_TYPE_WORDS = {
    SettingType.BOOLEAN: "true or false",
    SettingType.STRING: "a string",
    SettingType.INT: "a whole number",
    SettingType.LONG: "a whole number",
    SettingType.DOUBLE: "a number",
    SettingType.LIST: "a list of strings",
    SettingType.PASSWORD: "a string",
}


def dynamic_setting(name: str, default: ValueT, doc: str, **options: Any) -> TypedSetting[ValueT]:
    """Return a setting that can change while the server runs."""
    return TypedSetting(name, default, doc, dynamic=True, **options)


def fixed(
    name: str,
    value: ValueT,
    doc: str,
    reason: str,
    *,
    type_: SettingType | None = None,
    dynamic: bool = False,
) -> TypedSetting[ValueT]:
    """Return a setting that has only one value in kgw.

    With `dynamic`, clients may set that value while the server runs, as they may set any value in
    Kafka.
    """
    return TypedSetting(
        name, value, doc, type_=type_, allowed=(value,), reason=reason, dynamic=dynamic
    )


def attribute_name(name: str) -> str:
    """Return the name of a setting's attribute, e.g. `cache_bytes` for `kgw.cache.bytes`."""
    return name.removeprefix("kgw.").replace(".", "_")


def suggest(name: str, known: Iterable[str], *, cutoff: float = 0.7) -> str:
    """Return "; did you mean X?" if a known name is similar, else ""."""
    from difflib import get_close_matches

    near: Sequence[str] = get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""


def rows(section: type) -> tuple[Setting, ...]:
    """Return the settings that a class defines, in order."""
    return tuple(one for one in vars(section).values() if isinstance(one, TypedSetting))


def table(*settings: Setting) -> dict[str, Setting]:
    """Return settings by name, in the given order. A repeated name is a bug in kgw."""
    by_name = {setting.name: setting for setting in settings}
    if len(by_name) != len(settings):
        raise ValueError("a setting is declared twice")
    return by_name
