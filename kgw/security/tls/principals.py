r"""Names of clients from their certificates: `ssl.principal.mapping.rules` (KIP-371).

A rule sees the distinguished name in the form of RFC 2253, and the first rule that matches wins. As
in Kafka, the pattern must match the whole name, and its matches in the name are then replaced. The
patterns are matched by RE2: its time is linear, so that no certificate can block the event loop.
`\b` and `\w` know ASCII letters alone, as in Java 19 and newer.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from kgw.security.principal import RESERVED_NAMES, USER_TYPE, Principal
from kgw.security.tls.errors import TlsSettingError
from kgw.security.tls.java_patterns import java_only_syntax
from kgw.security.tls.x509 import distinguished_name, read_certificate
from kgw.version import install_command

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTING: Final = "ssl.principal.mapping.rules"
DEFAULT: Final = "DEFAULT"

_BLANK: Final = " \t\n\x0b\f\r"
_RULE: Final = "RULE:"
# Java's `.` matches none of them, and RE2's matches all but the first one.
_LINE_ENDS: Final = re.compile("[\n\r\x85\u2028\u2029]")
_REFERENCE: Final = re.compile(r"\\(.)|\$(?:(\d+)|\{(\w+)\})", re.DOTALL)


_LONGEST_NAME = 1_024
"""A replacement begins anew after each match, so its time is the square of the name's length."""


class NoPrincipalError(ValueError):
    """No rule gives this certificate a name: the connection must be closed."""


class MappingRule(NamedTuple):
    """One rule, as the setting has it. DEFAULT has no pattern."""

    pattern: str | None
    replacement: str = ""
    case: str = ""
    """`L`, `U` or nothing."""

    def __str__(self) -> str:
        """Return the text of the rule."""
        if self.pattern is None:
            return DEFAULT
        return f"{_RULE}{self.pattern}/{self.replacement}/{self.case}"


# --- reading the setting ---


def parse_rules(text: str, setting: str = SETTING) -> list[MappingRule]:
    """Read the setting, whose rules are separated by commas. Raises TlsSettingError."""
    rules: list[MappingRule] = []
    position = 0
    while position < len(text):
        if text[position] in _BLANK + ",":
            position += 1
            continue
        rule, end = _parse_rule(text, position, setting)
        after = text[end:].lstrip(_BLANK)
        if after and not after.startswith(","):
            _refuse_rule(text[position:], setting)
        rules.append(rule)
        position = len(text) - len(after)
    if not rules:
        raise TlsSettingError(f"{setting} has no rule; no client could have a name.")
    return rules


def _parse_rule(text: str, position: int, setting: str) -> tuple[MappingRule, int]:
    if text.startswith(DEFAULT, position):
        return MappingRule(None), position + len(DEFAULT)
    if not text.startswith(_RULE, position):
        _refuse_rule(text[position:], setting)
    pattern_start = position + len(_RULE)
    pattern_end = _slash(text, pattern_start)
    replacement_end = _slash(text, pattern_end + 1) if pattern_end >= 0 else -1
    if replacement_end < 0:
        _refuse_rule(text[position:], setting)
    end = replacement_end + 1
    case = text[end : end + 1]
    if case not in {"L", "U"}:
        case = ""
    pattern, replacement = text[pattern_start:pattern_end], text[pattern_end + 1 : replacement_end]
    return MappingRule(pattern, replacement, case), end + len(case)


def _slash(text: str, position: int) -> int:
    """Return the position of the next slash without a backslash before it, or -1."""
    while position < len(text):
        if text[position] == "/":
            return position
        position += 2 if text[position] == "\\" else 1
    return -1


def _refuse_rule(rest: str, setting: str) -> NoReturn:
    raise TlsSettingError(
        f"{setting} has {rest!r}; a rule is DEFAULT or RULE:pattern/replacement/ with L or U behind"
        " it or nothing, and a comma separates rules."
    )


# --- names ---


class PrincipalMapper:
    """Maps the names of certificates to principals."""

    def __init__(self, rules: str = DEFAULT, setting: str = SETTING) -> None:
        """Raises TlsSettingError for rules that cannot be read, or that need another matcher."""
        self._rules = [
            None if rule.pattern is None else _Compiled(rule, rule.pattern, setting)
            for rule in parse_rules(rules, setting)
        ]

    def principal_of(self, certificate: bytes, now_s: float) -> Principal:
        """Return the principal of a client's verified certificate in DER.

        Raises NoPrincipalError if no rule matches or the certificate has expired, ValueError if it
        cannot be read.
        """
        read = read_certificate(certificate)
        name = distinguished_name(read.subject)
        # OpenSSL verifies dates, but not again when a client resumes a session of TLS 1.2.
        if now_s > read.not_after_s:
            raise NoPrincipalError(f"the certificate {name!r} has expired")
        return Principal(USER_TYPE, self.name_of(name))

    def name_of(self, name: str) -> str:
        """Return the name that the first matching rule gives to a distinguished name.

        Raises NoPrincipalError if there is none, or if it makes an empty or a reserved name.
        """
        if len(name) > _LONGEST_NAME:
            raise NoPrincipalError(f"the name in a certificate has {len(name)} characters")
        for rule in self._rules:
            mapped = name if rule is None else rule.apply(name)
            if mapped in RESERVED_NAMES:
                raise NoPrincipalError(
                    f"a rule gives the certificate {name!r} the name {mapped}, which no client may "
                    "have"
                )
            if mapped:
                return mapped
            if mapped is not None:
                raise NoPrincipalError(f"a rule gives the certificate {name!r} an empty name")
        raise NoPrincipalError(f"no rule gives the certificate {name!r} a name")


class _Compiled:
    """A rule with a pattern."""

    def __init__(self, rule: MappingRule, text: str, setting: str) -> None:
        if found := java_only_syntax(text):
            raise TlsSettingError(
                f"{setting} has the rule {str(rule)!r} with {found}; write the pattern without it,"
                " as kgw matches in linear time."
            )
        try:
            re2 = import_module("re2")
        except ImportError:
            raise TlsSettingError(
                f"{setting} has a rule other than DEFAULT, which needs an extra of kgw:"
                f" {install_command('tls')}"
            ) from None
        options = re2.Options()
        options.log_errors = False
        try:
            self._pattern: Any = re2.compile(text, options)
        except re2.error as error:
            reason = error.args[0] if error.args else ""
            shown = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
            raise TlsSettingError(
                f"{setting} has the rule {str(rule)!r}, whose pattern cannot be used: {shown}."
            ) from None
        try:
            self._replacement = _parse_replacement(
                rule.replacement, self._pattern.groups, self._pattern.groupindex
            )
        except ValueError as error:
            raise TlsSettingError(f"{setting} has the rule {str(rule)!r}: {error}.") from None
        self._case = rule.case

    def apply(self, name: str) -> str | None:
        """Return the name that the rule makes; None if it does not match the whole name."""
        if _LINE_ENDS.search(name) or self._pattern.fullmatch(name) is None:
            return None
        # As Java's `replaceAll` does: `RULE:.*/x/` gives "xx", as the pattern also matches the
        # empty end.
        pieces: list[str] = []
        position = 0
        for match in self._matches(name):
            pieces.append(name[position : match.start()])
            pieces += [
                one if isinstance(one, str) else match.group(one) or "" for one in self._replacement
            ]
            position = match.end()
        mapped = "".join(pieces) + name[position:]
        # Python's result does not depend on the locale, like that of Java's Locale.ENGLISH.
        if self._case == "L":
            return mapped.lower()
        return mapped.upper() if self._case == "U" else mapped

    def _matches(self, name: str) -> Iterator[Any]:
        last = (-1, -1)
        for match in self._pattern.finditer(name):
            # RE2's `finditer` repeats an empty match that it has found further on.
            if match.span() != last:
                yield match
            last = match.span()


def _parse_replacement(text: str, groups: int, names: dict[str, int]) -> list[str | int]:
    """Return texts and numbers of groups. Raises ValueError.

    As in Kafka, `$7` stands for itself if the pattern has groups, but fewer than seven.
    """
    parts: list[str | int] = []
    position = 0
    for found in _REFERENCE.finditer(text):
        parts.append(_literal(text[position : found.start()]))
        position = found.end()
        escaped, digits, name = found.groups()
        if escaped is not None:
            parts.append(escaped)
        elif name is not None:
            if name not in names:
                raise ValueError(f"its replacement names the group {name!r}, which does not exist")
            parts.append(names[name])
        else:
            number = int(digits[0])
            used = 1
            # Java takes the longest number of an existing group: `$12` may be `$1` and "2".
            while used < len(digits) and number * 10 + int(digits[used]) <= groups:
                number = number * 10 + int(digits[used])
                used += 1
            if number > groups and not groups:
                raise ValueError(f"its replacement has ${number}, but its pattern has no group")
            parts += ["$" + digits] if number > groups else [number, digits[used:]]
    parts.append(_literal(text[position:]))
    return parts


def _literal(text: str) -> str:
    if "$" in text or "\\" in text:
        raise ValueError("its replacement has a $ or \\ that means nothing: write \\$ or \\\\")
    return text
