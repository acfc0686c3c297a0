"""A part of a plan: some groups, some topics, so that a migration goes step by step."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from kgw.migrate.errors import MigrationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.migrate.plan import Plan


class Selection(NamedTuple):
    """Names and patterns of groups and topics; without any, all are meant.

    A pattern is a shell's: `*` stands for any characters, `?` for one, `[ab]` for one of them.
    """

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    def part_of(self, plan: Plan) -> Plan:
        """Return the plan with what is meant alone. Pure.

        Of groups that are named only those partitions count that they have read. Raises
        MigrationError for a name or pattern that the plan has nothing of.
        """
        _require(self.groups, {one["group"] for one in plan["groups"]}, "group")
        _require(self.topics, {one["topic"] for one in plan["partitions"]}, "topic")
        groups = [
            one
            for one in plan["groups"]
            if _has(self.groups, one["group"]) and _has(self.topics, one["topic"])
        ]
        read = {(one["topic"], one["partition"]) for one in groups}
        if self.groups and not groups:
            raise MigrationError(
                f"no group of {', '.join(self.groups)} has read topic {', '.join(self.topics)}"
            )
        part = plan.copy()
        part["groups"] = groups
        part["partitions"] = [
            one
            for one in plan["partitions"]
            if _has(self.topics, one["topic"])
            and (not self.groups or (one["topic"], one["partition"]) in read)
        ]
        return part


def _has(patterns: tuple[str, ...], name: str) -> bool:
    """Whether a name is meant: by itself, whatever characters it has, or by a pattern."""
    return not patterns or name in patterns or any(fnmatchcase(name, one) for one in patterns)


def _require(patterns: Iterable[str], names: set[str], what: str) -> None:
    unknown = [one for one in patterns if not any(_has((one,), name) for name in names)]
    if unknown:
        raise MigrationError(f"the plan has no {what} {', '.join(unknown)}")
