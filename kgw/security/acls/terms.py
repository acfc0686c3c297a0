"""The words of access rules, with the codes that Kafka's messages use for them."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class CodedTerm(IntEnum):
    """A word with its code. Code 0 is UNKNOWN in each of Kafka's lists."""

    @classmethod
    def from_code(cls, code: int) -> Self:
        """Return the word with this code; UNKNOWN for a code that has no word, as Kafka does."""
        try:
            return cls(code)
        except ValueError:
            return cls(0)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the word that a Kafka tool would read in `text`. Raises ValueError.

        Case and underscores do not matter: `DescribeConfigs`, `DESCRIBE_CONFIGS`.
        """
        wanted = text.replace("_", "").upper()
        known = [term for term in cls if term]
        for term in known:
            if term.name.replace("_", "") == wanted:
                return term
        names = ", ".join(term.tool_name for term in known)
        raise ValueError(f"{text!r} is none of {names}")

    @property
    def tool_name(self) -> str:
        """The word as Kafka's tools take it and as Kafka's audit log prints it: `DescribeConfigs`.

        `kafka-acls --list` prints `name` instead: `DESCRIBE_CONFIGS`.
        """
        return "".join(part.capitalize() for part in self.name.split("_"))


class ResourceType(CodedTerm):
    """The type of the resource that a rule protects. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(CodedTerm):
    """How the resource name of a rule matches names. ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(CodedTerm):
    """Whether a rule allows or denies. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclOperation(CodedTerm):
    """What a rule allows or denies. ALL means every operation; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


SUPPORTED_OPERATIONS: Final[Mapping[ResourceType, frozenset[AclOperation]]] = {
    ResourceType.TOPIC: frozenset(
        {
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset(
        {
            AclOperation.READ,
            AclOperation.DELETE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(
        {
            AclOperation.CREATE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset(
        {
            AclOperation.WRITE,
            AclOperation.DESCRIBE,
            AclOperation.TWO_PHASE_COMMIT,
        }
    ),
    ResourceType.DELEGATION_TOKEN: frozenset({AclOperation.DESCRIBE}),
    ResourceType.USER: frozenset({AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS}),
}
"""The operations that mean something for a resource type, without ALL.

Kafka's tools refuse a rule with another operation; Kafka's broker stores the rule.
"""

IMPLIED_BY: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""A rule that allows one of these operations allows the key, too. A rule that denies does not."""
