"""Selects groups and topics of a plan, for a migration in steps."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from kgw.migrate.errors import MigrationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.migrate.plan import MigrationPlan


class Selection(NamedTuple):
    """Names and patterns of groups and topics; if there are none, everything is selected.

    Patterns are shell patterns: `*` matches any characters, `?` one, and `[ab]` one of the listed.
    If a text is a name in the plan, it is not treated as a pattern.
    """

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    def part_of(self, plan: MigrationPlan) -> MigrationPlan:
        """Return the selected part of a plan. Pure.

        If groups are selected, only partitions that these have read are included. Raises
        MigrationError for a name or pattern that matches nothing.
        """
        meant_groups = _meant(self.groups, {one["group"] for one in plan["groups"]}, "group")
        topics = {one["topic"] for one in (*plan["partitions"], *plan["groups"])}
        meant_topics = _meant(self.topics, topics, "topic")
        groups = [
            one
            for one in plan["groups"]
            if one["group"] in meant_groups and one["topic"] in meant_topics
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
            if one["topic"] in meant_topics
            and (not self.groups or (one["topic"], one["partition"]) in read)
        ]
        return part


def _meant(patterns: Sequence[str], names: set[str], what: str) -> set[str]:
    """Return the names that match; all names if there are no patterns."""
    if not patterns:
        return names
    by_pattern = {
        one: {one} if one in names else {name for name in names if fnmatchcase(name, one)}
        for one in patterns
    }
    unknown = [one for one, found in by_pattern.items() if not found]
    if unknown:
        raise MigrationError(f"the plan has no {what} {', '.join(unknown)}")
    return set().union(*by_pattern.values())
