"""The arguments of `kgw_security` and of access rules: each mistake is named."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kgw.testing.arguments import ArgumentError
from kgw.testing.broker import Broker
from kgw.testing.security import BrokerSecurity, security_of

CANARY = "c4nary-s3cret"
USERS = {"alice": CANARY, "admin": CANARY}


def rules(security: BrokerSecurity) -> list[str]:
    """Return the rules in short: principal, permission, operation, resource, pattern, host."""
    return [
        f"{one.principal} {one.permission.name} {one.operation.name} {one.resource_type.name}:"
        f"{one.resource_name} {one.pattern_type.name} {one.host}"
        for one in security.rules
    ]


def test_a_rule_is_made_for_each_operation_on_each_resource() -> None:
    """Names may be prefixes; the cluster has one name."""
    plain = BrokerSecurity("SASL_SSL", users=USERS)
    security = (
        plain.allow("alice", "READ", "Describe", topic=["a", "b"], host="127.0.0.1")
        .deny("*", "DELETE", group="g-", prefixed=True)
        .allow("admin", "ALL", cluster=True, prefixed=True)
        .allow("alice", "WRITE", transactional_id="t")
        .allow("User:ANONYMOUS", "READ", topic="*")
    )
    assert [
        "User:alice ALLOW READ TOPIC:a LITERAL 127.0.0.1",
        "User:alice ALLOW READ TOPIC:b LITERAL 127.0.0.1",
        "User:alice ALLOW DESCRIBE TOPIC:a LITERAL 127.0.0.1",
        "User:alice ALLOW DESCRIBE TOPIC:b LITERAL 127.0.0.1",
        "User:* DENY DELETE GROUP:g- PREFIXED *",
        "User:admin ALLOW ALL CLUSTER:kafka-cluster LITERAL *",
        "User:alice ALLOW WRITE TRANSACTIONAL_ID:t LITERAL *",
        "User:ANONYMOUS ALLOW READ TOPIC:* LITERAL *",
    ] == rules(security)
    assert ((), []) == (security.super_users, rules(plain))
    assert plain.super_users is None


def test_users_of_a_listener_without_logins_are_names_in_certificates() -> None:
    """A super user, too."""
    security = BrokerSecurity("SSL", super_users=["admin"]).allow("alice", "READ", topic="a")
    assert ["User:CN=alice ALLOW READ TOPIC:a LITERAL *"] == rules(security)
    assert "User:CN=admin" == security.settings()["super.users"]


def test_no_password_is_shown() -> None:
    """Neither by the object nor by the settings of the server."""
    security = BrokerSecurity("SASL_SSL", users=USERS)
    assert "BrokerSecurity('SASL_SSL', users of ['admin', 'alice'])" == repr(security)
    assert CANARY not in str(security.settings())
    assert security is security_of(security)


@pytest.mark.parametrize(
    ("security", "said"),
    [
        ("SASL_SSL", "security is a BrokerSecurity or a dict, not 'SASL_SSL'"),
        ({}, "security has no protocol"),
        ({"protocol": "SSL", "user": USERS}, "security: 'user' is none of protocol, users, super"),
        ({"protocol": "TLS"}, "'TLS' is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"protocol": 3}, "protocol is a string, not 3"),
        ({"protocol": "SASL_SSL"}, "SASL_SSL needs users"),
        ({"protocol": "SSL", "users": USERS}, "users are for SASL_SSL and SASL_PLAINTEXT, not for"),
        ({"protocol": "SASL_SSL", "users": "alice"}, "users are a dict with their passwords"),
        ({"protocol": "SASL_SSL", "users": {"alice": ""}}, "the password of alice is no string"),
        ({"protocol": "SASL_SSL", "users": {"*": CANARY}}, r"a user cannot be called \*"),
        ({"protocol": "SASL_SSL", "users": {"a;b": CANARY}}, "'a;b' has a semicolon"),
        (
            {"protocol": "SASL_SSL", "users": USERS, "super_users": ["root"]},
            "super_users: 'root' is none of users",
        ),
    ],
)
def test_a_mistake_is_named(security: Any, said: str) -> None:
    """Before the broker starts, and without a password."""
    with pytest.raises(ArgumentError, match=said) as raised:
        Broker(security=security)
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize(
    ("operations", "resource", "said"),
    [
        (["READ"], {}, "a rule needs a topic, a group, a transactional_id or cluster=True"),
        ([], {"topic": "a"}, "a rule needs an operation"),
        (["REED"], {"topic": "a"}, "'REED' is none of"),
        (["ANY"], {"topic": "a"}, "ANY is none of READ, WRITE"),
        (["READ"], {"transactional_id": "a"}, "READ is none of WRITE, DESCRIBE, TWO_PHASE_COMMIT"),
        (["READ"], {"topic": 3}, "topic is a list, not 3"),
        (["READ"], {"topic": "a", "host": 3}, "host is a string, not 3"),
    ],
)
def test_a_rule_without_a_meaning_is_refused(
    operations: list[str], resource: dict[str, Any], said: str
) -> None:
    """Kafka's server would store an operation that a resource does not have."""
    with pytest.raises(ArgumentError, match=said):
        BrokerSecurity("SASL_SSL", users=USERS).allow("alice", *operations, **resource)


def test_a_broker_without_tls_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with TLS says what to install."""
    for name in [one for one in sys.modules if one.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "kgw.testing.certificates", raising=False)
    Broker(security={"protocol": "SASL_PLAINTEXT", "users": USERS})
    with pytest.raises(ArgumentError, match=r"SSL needs .* package cryptography.*kgw-broker\[tls"):
        Broker(security={"protocol": "SSL"})
