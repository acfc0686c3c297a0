"""Access rules that a client lacks, and super users who do not exist."""

from __future__ import annotations

import shlex

import pytest

from kgw.cli.doctor.connecting import ClientSetup
from kgw.cli.doctor.rights import ResourceRights, right_problems, super_user_problems
from kgw.cli.doctor.security import principal_of
from kgw.security.acls.terms import AclOperation, ResourceType
from tests.docs.test_named_commands import problem
from tests.findings import findings_of, unplanted

ALL = frozenset(AclOperation)
TOPIC = ResourceRights(ResourceType.TOPIC, "orders", ALL)
GROUP = ResourceRights(ResourceType.GROUP, "billing", ALL)
OR_DENIED = ", or a rule denies that or DESCRIBE (kgw acls list --"
ADD = " -b kafka:9093 --command-config FILE, with the FILE of a super user"
WRONG = {
    "topic new ones does not exist: kgw topics create 'new ones' -b kafka:9093": [
        TOPIC._replace(name="new ones", operations=None)
    ],
    f"no rule allows User:alice to WRITE topic orders{OR_DENIED}topic orders --pattern match): kgw "
    f"acls add --allow User:alice --operation WRITE --topic orders{ADD}": [
        TOPIC._replace(operations=ALL - {AclOperation.WRITE})
    ],
    f"no rule allows User:alice to READ topic orders{OR_DENIED}topic orders --pattern match): kgw "
    f"acls add --allow User:alice --operation READ --topic orders{ADD}": [
        TOPIC._replace(operations=ALL - {AclOperation.READ})
    ],
    f"no rule allows User:alice to READ group billing{OR_DENIED}group billing --pattern match): "
    f"kgw acls add --allow User:alice --operation READ --group billing{ADD}": [
        GROUP._replace(operations=frozenset({AclOperation.DESCRIBE}))
    ],
}


@pytest.mark.parametrize("expected", WRONG)
def test_each_missing_right_is_named_alone(expected: str) -> None:
    """With a command that exists."""
    rights = [*WRONG[expected], TOPIC._replace(name="other"), GROUP._replace(name="other")]
    found = right_problems(rights, "User:alice", "kafka:9093", is_producer=True, is_consumer=True)
    assert [expected] == found
    command = "kgw" + expected.partition(": kgw")[2].partition(", with")[0]
    assert problem(command) is None
    assert shlex.split(command)


def test_each_sentence_is_planted() -> None:
    """Who adds a kind of problem adds rights that have it here."""
    assert 2 == len(findings_of(right_problems))
    assert [] == unplanted([right_problems], WRONG)


def test_only_what_is_wanted_is_looked_at() -> None:
    """A producer reads nothing, and a consumer writes nothing."""
    nothing = frozenset({AclOperation.DESCRIBE})
    rights = [TOPIC._replace(operations=nothing), GROUP._replace(operations=nothing)]

    def missing(*, is_producer: bool, is_consumer: bool) -> list[str]:
        found = right_problems(
            rights, "User:a b", "k:1", is_producer=is_producer, is_consumer=is_consumer
        )
        return [one.partition(" to ")[2].partition(",")[0] for one in found]

    assert ["WRITE topic orders"] == missing(is_producer=True, is_consumer=False)
    assert ["READ topic orders", "READ group billing"] == missing(
        is_producer=False, is_consumer=True
    )


@pytest.mark.parametrize(
    ("client", "own_name", "expected"),
    [
        (ClientSetup(user="alice", mechanism="PLAIN"), "CN=a", "User:alice"),
        (ClientSetup(), "CN=a", "User:CN=a"),
        (ClientSetup(), "", "User:ANONYMOUS"),
        (ClientSetup(mechanism="SCRAM-SHA-256"), "CN=a", "PRINCIPAL"),
    ],
)
def test_rules_are_for_who_the_client_is(client: ClientSetup, own_name: str, expected: str) -> None:
    """By login, certificate or neither; whose a token is, only the server knows."""
    assert expected == principal_of(client, own_name)


@pytest.mark.parametrize(
    ("super_users", "wrong"),
    [
        ("User:admin; User:ops", []),
        ("User:ANONYMOUS", []),
        ("", []),
        ("User:admln;User:ops", ["has User:admln, and no user is called so; did you mean admin?"]),
        ("user:admin", ["has user:admin, and no user is called so; did you mean admin?"]),
        ("User:zzz", ["has User:zzz, and no user is called so:"]),
    ],
)
def test_a_super_user_who_does_not_exist_is_told(super_users: str, wrong: list[str]) -> None:
    """Every one of them, with the name that is near."""
    found = super_user_problems(super_users, {"admin", "ops"}, "kafka:9093")
    assert len(wrong) == len(found)
    assert all(part in one for part, one in zip(wrong, found, strict=True))


def test_the_sentence_names_what_to_do() -> None:
    """Correct the setting, or make the user."""
    (found,) = super_user_problems("User:root", {"admin"}, "the server (kgw.toml:3)")
    assert (
        "super.users of the server (kgw.toml:3) has User:root, and no user is called so: correct "
        "it, or kgw users add root"
    ) == found
