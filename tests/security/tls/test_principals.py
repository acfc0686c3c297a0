"""Rules for the names of clients."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from kgw.security.principal import Principal
from kgw.security.tls.errors import TlsSettingError
from kgw.security.tls.principals import (
    MappingRule,
    NoPrincipalError,
    PrincipalMapper,
    parse_rules,
)
from kgw.testing.certificates import DAY_S
from tests.security.tls.handshakes import NOW_S, pki

NAME = "CN=Duke,OU=ServiceUsers,O=Org,C=US"

# Rules, a name, and what `SslPrincipalMapper` of Kafka 4.4.0 makes of it; null if it raises.
JAVA_RULES = json.loads(Path(__file__).with_name("java_rules.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("rules", "name", "kafka"), JAVA_RULES)
def test_a_rule_makes_the_name_that_kafka_makes(rules: str, name: str, kafka: str | None) -> None:
    """Splitting, matching, references and case are Kafka's."""
    try:
        mapped = PrincipalMapper(rules).name_of(name)
    except (TlsSettingError, NoPrincipalError):
        assert kafka is None
    else:
        assert kafka == mapped


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("DEFAULT", [MappingRule(None)]),
        (" ,,DEFAULT , ,DEFAULT,", [MappingRule(None)] * 2),
        ("RULE:a/b/", [MappingRule("a", "b")]),
        (
            "RULE:a/b/L,RULE:c//U , DEFAULT",
            [MappingRule("a", "b", "L"), MappingRule("c", "", "U"), MappingRule(None)],
        ),
        ("RULE:a,b\\/c/$1,\\/d/", [MappingRule("a,b\\/c", "$1,\\/d")]),
        ("RULE: /  /", [MappingRule(" ", "  ")]),
    ],
)
def test_rules_are_split(text: str, rules: list[MappingRule]) -> None:
    """A comma within a rule belongs to it, and empty rules are ignored."""
    assert rules == parse_rules(text)


@pytest.mark.parametrize(
    "text",
    [
        "default",
        "DEFAULT/L",
        "RULE:a",
        "RULE:a/b",
        "RULE:a/b/x",
        "RULE:a/b/L/U",
        "RULE:a/b/LU",
        "rule:a/b/",
        "DEFAULT DEFAULT",
        "RULE:a\\/b\\/",
    ],
)
def test_a_text_that_is_no_rule_is_refused(text: str) -> None:
    """The sentence has the setting, the text and the form of a rule."""
    with pytest.raises(TlsSettingError) as raised:
        parse_rules(text, "listener.name.a.ssl.principal.mapping.rules")
    assert str(raised.value) == (
        f"listener.name.a.ssl.principal.mapping.rules has {text!r}; a rule is DEFAULT or"
        " RULE:pattern/replacement/ with L or U behind it or nothing, and a comma separates rules."
    )


@pytest.mark.parametrize("text", ["", " , "])
def test_no_rule_is_refused(text: str) -> None:
    """Kafka would close each connection."""
    with pytest.raises(TlsSettingError, match="has no rule; no client could have a name"):
        PrincipalMapper(text)


def test_the_first_match_wins() -> None:
    """Later rules are not asked, DEFAULT neither."""
    rules = "RULE:CN=x.*/no/,RULE:CN=(.*?),OU=.*/$1/L,RULE:CN=(.*?),.*/second-$1/,DEFAULT"
    mapper = PrincipalMapper(rules)
    assert mapper.name_of(NAME) == "duke"
    assert mapper.name_of("CN=Duke,O=Org") == "second-Duke"
    assert mapper.name_of("O=Org") == "O=Org"
    assert PrincipalMapper(f"DEFAULT,{rules}").name_of(NAME) == NAME


def test_a_partial_match_is_none() -> None:
    """Otherwise a name that contains another one could be taken for it."""
    mapper = PrincipalMapper("RULE:CN=admin/admin/,DEFAULT")
    assert mapper.name_of("CN=admin") == "admin"
    assert mapper.name_of("CN=admin,O=Strangers") == "CN=admin,O=Strangers"
    assert mapper.name_of("OU=a,CN=admin") == "OU=a,CN=admin"


def test_a_certificate_without_a_name_has_no_principal() -> None:
    """No rule matches, or a rule or an empty subject makes an empty name."""
    with pytest.raises(NoPrincipalError, match="no rule gives the certificate 'CN=b' a name"):
        PrincipalMapper("RULE:CN=a/a/").name_of("CN=b")
    with pytest.raises(NoPrincipalError, match="a rule gives the certificate 'CN=b' an empty name"):
        PrincipalMapper("RULE:CN=(a?).*/$1/,DEFAULT").name_of("CN=b")
    with pytest.raises(NoPrincipalError, match="an empty name"):
        PrincipalMapper().name_of("")


@pytest.mark.parametrize("name", ["*", "ANONYMOUS"])
def test_no_client_has_a_reserved_name(name: str) -> None:
    """In access rules one means every principal, and the other clients without a login."""
    with pytest.raises(NoPrincipalError, match=f"the name {re.escape(name)}, which no client"):
        PrincipalMapper(r"RULE:^CN=(.*)$/$1/").name_of(f"CN={name}")


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028", "\u2029"])
def test_no_pattern_matches_a_line_end(end: str) -> None:
    """Java's dot matches no line end."""
    mapper = PrincipalMapper("RULE:CN=.*/a/,DEFAULT")
    assert f"CN=a{end}b" == mapper.name_of(f"CN=a{end}b")


@pytest.mark.parametrize(
    ("name", "lower", "upper"),
    [("Ii\u0130\u0131ßΣ", "iii\u0307\u0131ßς", "II\u0130ISSΣ"), ("aB", "ab", "AB")],
)
def test_case_does_not_depend_on_the_locale(name: str, lower: str, upper: str) -> None:
    """The results are those of Java's `Locale.ENGLISH`."""
    assert lower == PrincipalMapper("RULE:(.+)/$1/L").name_of(name)
    assert upper == PrincipalMapper("RULE:(.+)/$1/U").name_of(name)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("(?=CN)CN=.*", "the look-around (?=...)"),
        ("(?!CN)OU=.*", "the look-around (?!...)"),
        ("CN=.*(?<=a)", "the look-around (?<=...)"),
        ("CN=.*(?<!a)", "the look-around (?<!...)"),
        ("CN=(.)\\1", "the back-reference \\1"),
        ("CN=(.)\\12", "the back-reference \\1"),
        ("CN=(?<a>.)\\k<a>", "\\k, a back-reference"),
        ("CN=.*+", "the possessive quantifier *+"),
        ("CN=.++a", "the possessive quantifier ++"),
        ("CN=.?+", "the possessive quantifier ?+"),
        ("CN=.{1,2}+", "the possessive quantifier {1,2}+"),
        ("CN=(?>a)", "the atomic group (?>...)"),
        ("CN=[a-z&&[^b]]", "the intersection && of character classes"),
        ("CN=[a[bc]]", "a character class within another one"),
        ("CN=[]a]", "a character class that begins with ]"),
        ("CN=[^\\Qa]", "\\Q in a character class"),
        ("CN=[a\\1]", "the back-reference \\1"),
        ("(?U)CN=a", "the flags (?U)"),
        ("(?x:CN)=a", "the flags (?x:"),
        ("CN=(?P<a>a)", "the group (?P...), which Java does not know"),
        ("CN=a\\Z", "\\Z, the end before a line break"),
        ("CN=[a", "a character class without an end"),
    ],
)
def test_a_pattern_that_needs_java_is_refused(pattern: str, found: str) -> None:
    """RE2 refuses some of them by itself, and gives another meaning to others."""
    with pytest.raises(TlsSettingError) as raised:
        PrincipalMapper(f"RULE:{pattern}/a/")
    assert str(raised.value) == (
        f"ssl.principal.mapping.rules has the rule {f'RULE:{pattern}/a/'!r} with {found}; write the"
        " pattern without it, as kgw matches in linear time."
    )


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("CN=\\Q(?=a)++[\\E", "CN=(?=a)++["),
        ("CN=\\(\\?=\\++", "CN=(?=++"),
        ("CN=[+*?&(]+", "CN=+*?&("),
        ("CN=(?:a|b)+?$", "CN=ab"),
        ("(?i)cn=a", "CN=A"),
        ("CN=(?<who>a)", "CN=a"),
        ("CN=[^,\\]]+", "CN=a["),
        ("CN=\\p{Lu}\\d\\.", "CN=A1."),
        ("CN=a\\Qb", "CN=ab"),
    ],
)
def test_a_pattern_that_only_looks_like_javas_is_used(pattern: str, name: str) -> None:
    """Quoted and escaped characters have no meaning of their own."""
    assert PrincipalMapper(f"RULE:{pattern}/ok/").name_of(name) == "ok"


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("RULE:(/a/", "whose pattern cannot be used: missing ): (."),
        ("RULE:CN=.*/$1/", "its replacement has $1, but its pattern has no group"),
        ("RULE:(.*)/a$/", "its replacement has a $ or \\ that means nothing"),
        ("RULE:(.*)/${b}/", "its replacement names the group 'b', which does not exist"),
    ],
)
def test_a_rule_that_could_never_work_is_refused(rule: str, reason: str) -> None:
    """Kafka notices some of them only when a client connects."""
    with pytest.raises(TlsSettingError) as raised:
        PrincipalMapper(rule)
    assert str(raised.value).startswith("ssl.principal.mapping.rules has the rule 'RULE:")
    assert reason in str(raised.value)


def test_a_pattern_takes_linear_time() -> None:
    """A matcher that goes back, as Java's does, would need centuries for this name."""
    mapper = PrincipalMapper("RULE:CN=(a*)*b/x/,DEFAULT")
    name = "CN=" + "a" * 1_021
    assert name == mapper.name_of(name)


def test_a_long_name_has_no_principal() -> None:
    """A rule replaces each of its matches, so its time grows with the square of the length."""
    mapper = PrincipalMapper("DEFAULT")
    assert "CN=" + "a" * 1_021 == mapper.name_of("CN=" + "a" * 1_021)
    with pytest.raises(NoPrincipalError, match="has 1025 characters"):
        mapper.name_of("CN=" + "a" * 1_022)


def test_default_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other rule names the extra."""
    monkeypatch.setitem(sys.modules, "re2", None)
    assert PrincipalMapper("DEFAULT").name_of(NAME) == NAME
    with pytest.raises(
        TlsSettingError, match=r"mapping.rules has a rule other .* 'kgw-broker\[tls\]'"
    ):
        PrincipalMapper("RULE:a/b/")


def test_a_certificate_that_has_expired_has_no_principal() -> None:
    """A session that is resumed shows a certificate that OpenSSL has verified earlier."""
    client = pki().authority.issue_client([("CN", "a")], not_after_s=NOW_S + DAY_S)
    der = client.certificate.public_bytes(Encoding.DER)
    assert PrincipalMapper().principal_of(der, NOW_S) == Principal("User", "CN=a")
    with pytest.raises(NoPrincipalError, match="the certificate 'CN=a' has expired"):
        PrincipalMapper().principal_of(der, NOW_S + 2 * DAY_S)


@given(
    st.text(st.sampled_from("RULE:DFAT/\\,$1{}()[]&+*?.LU aé"), max_size=30), st.text(max_size=9)
)
def test_any_text_is_refused_or_maps(rules: str, name: str) -> None:
    """Nothing but the two errors is raised."""
    try:
        mapped = PrincipalMapper(rules).name_of(name)
    except (TlsSettingError, NoPrincipalError):
        return
    assert mapped
