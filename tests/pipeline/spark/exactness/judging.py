"""The comparison: what came out, record by record, beside what went in."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from tests.pipeline.spark.exactness.journal import Record


class View(NamedTuple):
    """What tells a record from all others, and what else of it must be the same."""

    identity: Callable[[Record], Hashable]
    content: Callable[[Record], object]
    is_ordered: bool = False
    """Whether records of a partition come out in the order in which they went in."""


AT_OFFSETS = View(lambda one: (one.partition, one.offset), lambda one: one)
"""Every column, offsets as well."""
COPIED = View(lambda one: one.timestamp_ms, lambda one: one._replace(offset=-1))
"""Every column but the offset: in another topic a record has another one."""
COPIED_IN_ORDER = COPIED._replace(is_ordered=True)


class Outcome(NamedTuple):
    """How what came out differs from what went in."""

    records_in: int
    records_out: int
    lost: int = 0
    doubled: int = 0
    altered: int = 0
    foreign: int = 0
    """Records that never went in, or that were aborted."""
    moved: int = 0
    """Records that come before one that they went in after."""
    findings: tuple[str, ...] = ()
    """What an audit says, where there is one."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is lost and nothing is altered; what is there twice does not matter."""
        return not (self.lost or self.altered or self.foreign or self.findings)

    @property
    def is_exact(self) -> bool:
        """Whether what came out equals what went in."""
        return self.is_complete and not (self.doubled or self.moved)


def judge(view: View, journal: Iterable[Record], found: Iterable[Record]) -> Outcome:
    """Compare what was found, in the order in which it is read, with a journal. Pure."""
    expected = {view.identity(one): one for one in journal}
    times: Counter[Hashable] = Counter()
    latest: dict[int, int] = {}
    altered = foreign = moved = 0
    for one in found:
        identity = view.identity(one)
        known = expected.get(identity)
        if known is None:
            foreign += 1
            continue
        times[identity] += 1
        altered += view.content(known) != view.content(one)
        if view.is_ordered:
            moved += one.timestamp_ms < latest.get(one.partition, 0)
            latest[one.partition] = max(one.timestamp_ms, latest.get(one.partition, 0))
    return Outcome(
        records_in=len(expected),
        records_out=times.total() + foreign,
        lost=len(expected) - len(times),
        doubled=times.total() - len(times),
        altered=altered,
        foreign=foreign,
        moved=moved,
    )
