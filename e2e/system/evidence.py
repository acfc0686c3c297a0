"""What one run of the story has seen of a gateway, for the verdict to be made of."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

PARTITIONS = 6


class Place(NamedTuple):
    """Where a record is in its topic."""

    partition: int
    offset: int


class Content(NamedTuple):
    """A record's bytes; a value is no other record's."""

    key: bytes
    value: bytes


class Stored(NamedTuple):
    """A record as a reader found it."""

    place: Place
    content: Content
    source: Place | None = None
    """Of a copy: the place of what it is a copy of, by its header."""


@dataclass
class Evidence:
    """Everything that was noted; threads add to it through its methods."""

    sent: set[bytes] = field(default_factory=set)
    """The values that were handed to a client library, whatever became of them."""
    acknowledged: list[tuple[str, Place, Content]] = field(default_factory=list)
    """By whom, where and what."""
    seen: defaultdict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))
    """What the consumers of each language were given."""
    assignments: defaultdict[str, list[list[int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Which partitions each consumer had, one after the other."""
    commits: list[dict[int, int]] = field(default_factory=list)
    """What the group had committed, by partition, one look after the other."""
    transactions: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How many transactions each copier has committed."""
    aborts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    errors: list[str] = field(default_factory=list)
    """What client libraries reported, and lived through."""
    stored: list[Stored] = field(default_factory=list)
    """What the topic had in the end."""
    copies: dict[str, list[Stored]] = field(default_factory=dict)
    """What each copier's topic had in the end, for a reader of committed records."""

    def __post_init__(self) -> None:
        self._noted = threading.Condition()
        self._by_place: dict[Place, Content] = {}

    def note_sent(self, values: Iterable[bytes]) -> None:
        """Note what is about to be sent."""
        with self._noted:
            self.sent.update(values)

    def note_acknowledged(self, who: str, found: Iterable[tuple[Place, Content]]) -> None:
        """Note what was acknowledged, and wake who waits for it."""
        with self._noted:
            for place, content in found:
                self.acknowledged.append((who, place, content))
                self._by_place[place] = content
            self._noted.notify_all()

    def note_seen(self, who: str, places: Iterable[Place], assigned: list[int]) -> None:
        """Note what a poll gave to a consumer."""
        with self._noted:
            self.seen[who].update(places)
            if self.assignments[who][-1:] != [assigned]:
                self.assignments[who].append(assigned)

    def note_commits(self, committed: dict[int, int]) -> None:
        """Note what the group has committed."""
        with self._noted:
            self.commits.append(committed)

    def note_error(self, error: object) -> None:
        """Note what a client library reported."""
        with self._noted:
            self.errors.append(str(error))

    def contents(self, places: list[Place], timeout_s: float) -> dict[Place, Content]:
        """Return what was acknowledged at places, as far as it is known in time."""

        def are_known() -> bool:
            return all(place in self._by_place for place in places)

        with self._noted:
            self._noted.wait_for(are_known, timeout_s)
            return {one: self._by_place[one] for one in places if one in self._by_place}

    def seen_places(self) -> set[Place]:
        """Return what the consumers of all languages were given, together."""
        with self._noted:
            return set().union(*self.seen.values())

    def acknowledged_count(self) -> int:
        """Return how many records were acknowledged so far."""
        with self._noted:
            return len(self.acknowledged)

    def sent_count(self) -> int:
        """Return how many records were handed to client libraries so far."""
        with self._noted:
            return len(self.sent)
