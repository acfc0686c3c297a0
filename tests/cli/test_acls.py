from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
import pytest

from kgw.cli.acls.acls import add, delete, list_rules
from kgw.cli.acls.options import OPERATION, PATTERN, PERMISSION
from kgw.cli.completion.suggestions import teach
from kgw.cli.main import main
from kgw.cli.shared.errors import ExitCode
from tests.cli.conftest import Commands
from tests.client.serving import ServerThread

if TYPE_CHECKING:
    from collections.abc import Iterator

RULE = {
    "resource_type": "TOPIC",
    "resource_name": "orders",
    "pattern_type": "LITERAL",
    "principal": "User:alice",
    "host": "*",
    "operation": "READ",
    "permission_type": "ALLOW",
}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    """A server with access rules that these tests may change."""
    with ServerThread(super_users="User:ANONYMOUS") as thread:
        yield thread


@pytest.fixture
def kgw(server: ServerThread) -> Commands:
    """Commands for a server without rules."""
    commands = Commands(server.address)
    for one in ("allow", "deny"):
        commands.run("acls", "delete", "--permission", one, "-y")
    return commands


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands take standard input for a terminal."""
    stdin = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("kgw.cli.shared.client.sys", SimpleNamespace(stdin=stdin))


def add_rule(kgw: Commands, *options: str, operation: str = "read") -> list[dict[str, str]]:
    """Add rules for alice, and return them as --json prints them."""
    added: list[dict[str, str]] = kgw.json(
        "acls", "add", "--allow", "User:alice", "--operation", operation, *options
    )
    return added


def listed(kgw: Commands, *options: str) -> list[dict[str, str]]:
    """Return the rules that the server has, as --json prints them."""
    found: list[dict[str, str]] = kgw.json("acls", "list", *options)
    return found


def rights(rules: list[dict[str, str]]) -> set[tuple[str, str, str]]:
    """Return type, name and operation of each rule."""
    return {(one["resource_type"], one["resource_name"], one["operation"]) for one in rules}


def test_a_rule_comes_and_goes(kgw: Commands) -> None:
    """Add, list and delete, for people and for programs."""
    command = ("acls", "add", "--allow", "User:alice", "--operation", "Read", "--topic", "orders")
    line = "ALLOW User:alice READ topic orders (literal), host *\n"
    # The second time the rule is there already.
    for _ in range(2):
        assert f"In force: {line}" == kgw.succeed(*command)
    assert [RULE] == kgw.json(*command)
    assert [RULE] == listed(kgw)
    assert [
        "RESOURCE  NAME    PATTERN  PRINCIPAL   HOST  OPERATION  PERMISSION",
        "TOPIC     orders  LITERAL  User:alice  *     READ       ALLOW",
    ] == kgw.succeed("acls", "list").splitlines()
    assert f"Deleted: {line}" == kgw.succeed("acls", "delete", "--topic", "orders")
    assert [] == listed(kgw)
    for asked in (("acls", "list"), ("acls", "delete", "--topic", "orders")):
        result = kgw.run(*asked)
        assert (0, "", "There are no such access rules.\n") == (
            result.exit_code,
            result.stdout,
            result.stderr,
        )
    assert [] == kgw.json("acls", "delete", "--topic", "orders")


def test_json_is_stable(kgw: Commands) -> None:
    """The rules come in one order, with the same fields in the same order."""
    for name in ("b", "a"):
        for operation in ("WRITE", "READ"):
            add_rule(kgw, "--topic", name, operation=operation)
    add_rule(kgw, "--group", "a")
    found = kgw.succeed("acls", "list", "--json")
    assert found == kgw.succeed("acls", "list", "--json")
    rules = json.loads(found)
    assert list(RULE) == list(rules[0])
    assert [
        ("TOPIC", "a", "READ"),
        ("TOPIC", "a", "WRITE"),
        ("TOPIC", "b", "READ"),
        ("TOPIC", "b", "WRITE"),
        ("GROUP", "a", "READ"),
    ] == [(one["resource_type"], one["resource_name"], one["operation"]) for one in rules]
    assert rules == kgw.json("acls", "delete", "--permission", "allow")


def test_every_resource_and_principal_gets_every_operation(kgw: Commands) -> None:
    """A rule for each combination; what is named twice is added once."""
    rules = kgw.json(
        *("acls", "add", "--deny", "User:alice", "--deny", "User:bob"),
        *("--operation", "describe", "--operation", "ALL", "--operation", "all"),
        *("--topic", "t", "--topic", "u", "--group", "g", "--transactional-id", "x"),
        *("--cluster", "--user", "User:carol", "--delegation-token", "d", "--host", "10.0.0.1"),
    )
    resources = {
        ("TOPIC", "t"),
        ("TOPIC", "u"),
        ("GROUP", "g"),
        ("TRANSACTIONAL_ID", "x"),
        ("CLUSTER", "kafka-cluster"),
        ("USER", "User:carol"),
        ("DELEGATION_TOKEN", "d"),
    }
    assert rules == listed(kgw)
    assert 2 * 2 * len(resources) == len(rules)
    expected = {(*one, operation) for one in resources for operation in ("DESCRIBE", "ALL")}
    assert expected == rights(rules)
    for field, values in {
        "principal": {"User:alice", "User:bob"},
        "host": {"10.0.0.1"},
        "permission_type": {"DENY"},
        "pattern_type": {"LITERAL"},
    }.items():
        assert values == {one[field] for one in rules}


def test_prefixed_is_for_every_name_but_the_clusters(kgw: Commands) -> None:
    """There is one cluster, and its name is whole."""
    add_rule(kgw, "--prefixed", "--topic", "ord", "--cluster", operation="create")
    assert {"TOPIC": "PREFIXED", "CLUSTER": "LITERAL"} == {
        one["resource_type"]: one["pattern_type"] for one in listed(kgw)
    }


def test_a_shortcut_gives_what_kafkas_gives(kgw: Commands) -> None:
    """A producer, one with transactions, an idempotent one, and a consumer."""
    base = ("acls", "add", "--allow", "User:alice", "--topic", "t")
    of_topic = {("TOPIC", "t", one) for one in ("WRITE", "DESCRIBE", "CREATE")}
    of_id = {("TRANSACTIONAL_ID", "x", one) for one in ("WRITE", "DESCRIBE")}
    of_cluster = {("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE")}
    read = {("TOPIC", "t", "READ"), ("TOPIC", "t", "DESCRIBE"), ("GROUP", "g", "READ")}
    for options, expected in (
        (("--producer",), of_topic),
        (("--producer", "--transactional-id", "x"), of_topic | of_id),
        (("--producer", "--idempotent"), of_topic | of_cluster),
        (("--consumer", "--group", "g"), read),
        (("--consumer", "--group", "g", "--producer"), of_topic | read),
    ):
        kgw.run("acls", "delete", "--permission", "allow")
        rules = kgw.json(*base, *options)
        assert expected == rights(rules)
        assert rules == listed(kgw)


@pytest.fixture
def several(kgw: Commands) -> Commands:
    """Commands for a server with a rule of each kind that filters tell apart."""
    add_rule(kgw, "--topic", "orders")
    add_rule(kgw, "--topic", "ord", "--prefixed", operation="write")
    add_rule(kgw, "--topic", "*", "--host", "::1")
    for resource in (
        ("--group", "orders"),
        ("--transactional-id", "orders"),
        ("--user", "User:orders"),
        ("--delegation-token", "orders"),
        ("--cluster",),
    ):
        add_rule(kgw, *resource, operation="all")
    kgw.succeed("acls", "add", "--deny", "User:bob", "--operation", "ALTER", "--cluster")
    return kgw


FOUND = {
    ("--topic", "orders"): [("orders", "READ")],
    ("--topic", "ord"): [("ord", "WRITE")],
    ("--topic", "ord", "--pattern", "literal"): [],
    ("--topic", "ord", "--pattern", "PREFIXED"): [("ord", "WRITE")],
    ("--topic", "*"): [("*", "READ")],
    ("--topic", "orders", "--pattern", "match"): [
        ("*", "READ"),
        ("orders", "READ"),
        ("ord", "WRITE"),
    ],
    ("--pattern", "prefixed"): [("ord", "WRITE")],
    ("--group", "orders"): [("orders", "ALL")],
    ("--transactional-id", "orders"): [("orders", "ALL")],
    ("--delegation-token", "orders"): [("orders", "ALL")],
    ("--user", "User:orders"): [("User:orders", "ALL")],
    ("--cluster",): [("kafka-cluster", "ALL"), ("kafka-cluster", "ALTER")],
    ("--cluster", "--principal", "User:bob"): [("kafka-cluster", "ALTER")],
    ("--principal", "User:bob"): [("kafka-cluster", "ALTER")],
    ("--principal", "User:*"): [],
    ("--host", "::1"): [("*", "READ")],
    ("--operation", "write"): [("ord", "WRITE")],
    ("--permission", "deny"): [("kafka-cluster", "ALTER")],
}


@pytest.mark.parametrize("options", FOUND, ids=" ".join)
def test_filters_find_rules(several: Commands, options: tuple[str, ...]) -> None:
    """Listed, shown as what would be deleted, and deleted: the same rules, and no other one."""
    every = listed(several)
    found = listed(several, *options)
    assert sorted(FOUND[options]) == sorted(
        (one["resource_name"], one["operation"]) for one in found
    )
    assert found == several.json("acls", "delete", *options, "--dry-run")
    assert every == listed(several)
    assert found == several.json("acls", "delete", *options)
    assert [one for one in every if one not in found] == listed(several)


def test_a_dry_run_changes_nothing(kgw: Commands) -> None:
    """It says what would be added, and what would be deleted."""
    line = "DENY User:bob WRITE topic ord (prefixed), host *\n"
    command = ("acls", "add", "--deny", "User:bob", "--operation", "write", "--topic", "ord")
    assert f"Would add: {line}" == kgw.succeed(*command, "--prefixed", "--dry-run")
    assert [] == listed(kgw)
    added = kgw.json(*command, "--prefixed")
    assert f"Would delete: {line}" == kgw.succeed("acls", "delete", "--topic", "ord", "--dry-run")
    assert added == listed(kgw)


def test_a_dry_run_of_an_addition_asks_no_server(offline: Commands) -> None:
    """What would be added is known without one."""
    (found,) = offline.json(
        *("acls", "add", "--allow", "User:alice", "--operation", "READ", "--topic", "orders"),
        "--dry-run",
    )
    assert RULE == found


@pytest.mark.usefixtures("terminal")
def test_a_deletion_asks(kgw: Commands) -> None:
    """The rules are shown first; they stay unless the user agrees."""
    add_rule(kgw, "--topic", "orders")
    line = "ALLOW User:alice READ topic orders (literal), host *"
    command = ("acls", "delete", "--topic", "orders")
    result = kgw.run(*command, data="n\n")
    assert ExitCode.INTERRUPTED == result.exit_code
    assert [line, "Delete this access rule? [y/N]: n"] == result.stderr.splitlines()[:2]
    assert [RULE] == listed(kgw)
    add_rule(kgw, "--topic", "orders", operation="write")
    result = kgw.run(*command, "--json", data="y\n")
    assert (0, 2) == (result.exit_code, len(json.loads(result.stdout)))
    assert "Delete these 2 access rules? [y/N]: y" in result.stderr
    assert [] == listed(kgw)


@pytest.mark.usefixtures("terminal")
def test_nothing_is_asked_without_need(kgw: Commands) -> None:
    """With -y, with --dry-run, and if there is no such rule."""
    add_rule(kgw, "--topic", "orders")
    assert (
        "There are no such access rules."
        == kgw.run("acls", "delete", "--topic", "other").stderr.rstrip()
    )
    assert [RULE] == kgw.json("acls", "delete", "--topic", "orders", "--dry-run")
    assert [RULE] == kgw.json("acls", "delete", "--topic", "orders", "-y")


@pytest.mark.parametrize(
    "options", [(), ("-y",), ("--pattern", "any"), ("--dry-run",)], ids=" ".join
)
def test_a_deletion_needs_a_filter(kgw: Commands, options: tuple[str, ...]) -> None:
    """Nothing deletes every rule by a slip."""
    add_rule(kgw, "--topic", "orders")
    message = kgw.fail(ExitCode.USAGE, "acls", "delete", *options)
    assert message.startswith("say which rules: give --topic")
    assert [RULE] == listed(kgw)


ADD = ("add", "--allow", "User:alice", "--operation", "READ", "--topic", "t")
PRODUCER = ("add", "--allow", "User:alice", "--producer")
CONSUMER = ("add", "--allow", "User:alice", "--consumer")
WRONG = {
    (*ADD, "--allow", "alice"): "'alice' is not TYPE:NAME",
    (*ADD, "--allow", ""): "'' is not TYPE:NAME",
    (*ADD, "--allow", "User:"): "'User:' is not TYPE:NAME",
    (*ADD, "--deny", "User:bob"): "give either --allow PRINCIPAL or --deny PRINCIPAL",
    ("add", "--operation", "READ", "--topic", "t"): "give either --allow",
    ("add", "--deny", "bob", "--operation", "READ", "--topic", "t"): "'bob' is not TYPE:NAME",
    ADD[:3]: "give --operation OP, --producer or --consumer",
    ADD[:5]: "give a resource, as in --topic NAME",
    (*ADD, "--operation", "reed"): "'reed' is none of ALL, READ, WRITE, CREATE",
    (*ADD, "--operation", "any"): "'any' is none of ALL",
    (*ADD, "--operation", "unknown"): "'unknown' is none of ALL",
    (*ADD, "--operation", ""): "'' is none of ALL",
    (*ADD, "--topic", ""): "'--topic': it cannot be empty",
    (*ADD, "--group", ""): "'--group': it cannot be empty",
    (*ADD, "--transactional-id", ""): "'--transactional-id': it cannot be empty",
    (*ADD, "--user", ""): "'--user': it cannot be empty",
    (*ADD, "--delegation-token", ""): "'--delegation-token': it cannot be empty",
    (*ADD, "--host", ""): "'--host': it cannot be empty",
    (*ADD, "--producer"): "--producer and --consumer stand for operations",
    (*ADD, "--consumer"): "--producer and --consumer stand for operations",
    (*ADD, "--idempotent"): "--idempotent is for --producer",
    ("add", "--deny", "User:bob", "--producer", "--topic", "t"): "give --allow PRINCIPAL",
    PRODUCER: "--producer needs a topic",
    (*PRODUCER, "--transactional-id", "x"): "--producer needs a topic",
    (*PRODUCER, "--topic", "t", "--group", "g"): "no operation for the resource type GROUP",
    (*PRODUCER, "--topic", "t", "--cluster"): "no operation for the resource type CLUSTER",
    (*CONSUMER, "--topic", "t"): "--consumer needs a topic and a group",
    (*CONSUMER, "--group", "g"): "--consumer needs a topic and a group",
    (*CONSUMER, "--topic", "t", "--group", "g", "--transactional-id", "x"): "TRANSACTIONAL_ID",
    ("list", "--topic", "t", "--group", "g"): "give one resource",
    ("list", "--topic", ""): "'--topic': it cannot be empty",
    ("list", "--user", ""): "'--user': it cannot be empty",
    ("list", "--host", ""): "'--host': it cannot be empty",
    ("list", "--principal", "alice"): "'alice' is not TYPE:NAME",
    ("list", "--operation", "reed"): "'reed' is none of ALL, READ",
    ("list", "--permission", "any"): "'any' is none of DENY, ALLOW",
    ("list", "--pattern", "regex"): "'regex' is none of ANY, MATCH, LITERAL, PREFIXED",
    ("list", "--pattern", "match"): "--pattern match needs the name of a resource",
    ("delete", "--pattern", "match"): "--pattern match needs the name of a resource",
    ("delete", "--principal", ""): "'' is not TYPE:NAME",
    ("delete", "--topic", ""): "'--topic': it cannot be empty",
    ("delete", "--topic", "t", "--cluster"): "give one resource",
    ("delete", "--force"): "Did you mean '--yes'?",
    ("add", "--allow-principal", "User:a"): "Did you mean '--allow'?",
    ("list", "--resource-pattern-type", "match"): "Did you mean '--pattern'?",
}


@pytest.mark.parametrize("options", WRONG, ids=" ".join)
def test_wrong_options_are_refused(offline: Commands, options: tuple[str, ...]) -> None:
    """Each with a sentence about it; no server is asked."""
    assert WRONG[options] in offline.fail(ExitCode.USAGE, "acls", *options)


OPERATIONS = (*ADD[:3], "--dry-run", "--operation")
WARNINGS = {
    (*OPERATIONS, "WRITE", "--group", "g"): "WRITE of a group is nothing that a client can do, so "
    "the rule does nothing; there are ALTER_CONFIGS, DELETE, DESCRIBE, DESCRIBE_CONFIGS, READ",
    (
        *OPERATIONS,
        "READ",
        "--prefixed",
        "--topic",
        "*",
    ): "with --prefixed, * is the first character",
    (*OPERATIONS, "READ", "--topic", "ord-*"): "ord-* is taken as it stands, with its asterisk",
    (*OPERATIONS, "ALL", "--user", "carol"): "carol names no user",
    (*OPERATIONS, "READ", "--topic", "t", "--host", "example.org"): "example.org is no IP address",
}


@pytest.mark.parametrize("options", WARNINGS, ids=" ".join)
def test_a_rule_that_does_nothing_is_warned_of(offline: Commands, options: tuple[str, ...]) -> None:
    """The command goes on; the warning is an object for programs."""
    result = offline.run("acls", *options)
    (warning,) = result.stderr.splitlines()
    assert 0 == result.exit_code
    assert warning.startswith(f"warning: {WARNINGS[options]}")
    result = offline.run("acls", *options, "--json")
    (told,) = result.stderr.splitlines()
    assert {"warning": warning.removeprefix("warning: ")} == json.loads(told)


@pytest.mark.parametrize(
    "options",
    [
        ("ALL", "--group", "g"),
        ("READ", "--topic", "*"),
        ("READ", "--topic", "ord", "--prefixed"),
        ("DescribeTokens", "--user", "*"),
        ("CREATE_TOKENS", "--user", "User:carol", "--host", "fe80::1"),
        ("ALTER", "--cluster", "--prefixed"),
        ("TwoPhaseCommit", "--transactional-id", "x"),
    ],
    ids=" ".join,
)
def test_a_rule_that_does_something_is_not_warned_of(
    offline: Commands, options: tuple[str, ...]
) -> None:
    """Neither ALL, nor a pattern, nor an address."""
    result = offline.run("acls", *OPERATIONS, *options)
    assert (0, "") == (result.exit_code, result.stderr)


@pytest.mark.parametrize(
    "options", [ADD, ("list",), ("delete", "--topic", "t")], ids=("add", "list", "delete")
)
def test_a_server_without_rules_says_what_switches_them_on(options: tuple[str, ...]) -> None:
    """The setting is named, and the code of Kafka is there for programs."""
    with ServerThread() as server:
        kgw = Commands(server.address)
        message = kgw.fail(ExitCode.FAILED, "acls", *options)
        assert "access rules are off: the server's setting super.users" in message
        told = json.loads(kgw.run("acls", *options, "--json").stderr)
        assert "SECURITY_DISABLED" == told["kafka_error"]


@pytest.mark.parametrize(
    "options", [ADD, ("list",), ("delete", "--topic", "t")], ids=("add", "list", "delete")
)
def test_who_may_not_change_rules_is_told(options: tuple[str, ...]) -> None:
    """By the code of the server."""
    with ServerThread(super_users="User:admin") as server:
        message = Commands(server.address).fail(ExitCode.FAILED, "acls", *options)
        assert "CLUSTER_AUTHORIZATION_FAILED" in message


@pytest.mark.parametrize("command", [add, list_rules, delete], ids=lambda one: one.name)
def test_words_are_suggested(command: click.Command) -> None:
    """In the case of what is typed; the names of resources are asked of a server."""
    context = click.Context(command)
    assert ["DESCRIBE", "DESCRIBE_CONFIGS", "DESCRIBE_TOKENS"] == _suggested(
        OPERATION, context, "DES"
    )
    assert ["delete", "describe", "describe_configs", "describe_tokens"] == _suggested(
        OPERATION, context, "de"
    )
    assert ["DENY", "ALLOW"] == _suggested(PERMISSION, context, "")
    assert ["match"] == _suggested(PATTERN, context, "m")


def _suggested(kind: Any, context: click.Context, typed: str) -> list[str]:
    (param,) = [one for one in add.params if one.name == "operations"]
    return [one.value for one in kind.shell_complete(context, param, typed)]


def test_topics_and_principals_are_suggested(
    kgw: Commands, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the server knows."""
    kgw.succeed("topics", "create", "orders")
    kgw.succeed("users", "add", "alice", "--password-file", "-", data="secret")
    for param in add.params:
        monkeypatch.setattr(param, "type", param.type)
    teach(main, ["acls", "add"])
    context = click.Context(add)
    host, _, port = server.address.rpartition(":")
    context.params["bootstrap"] = [(host, int(port))]
    for option, typed, expected in (
        ("--topic", "or", "orders"),
        ("--allow", "User:a", "User:alice"),
        ("--deny", "", "User:alice"),
    ):
        (param,) = [one for one in add.params if option in one.opts]
        found = param.type.shell_complete(context, param, typed)
        assert [expected] == [one.value for one in found]
