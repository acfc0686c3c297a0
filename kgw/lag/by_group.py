"""Metrics of lag by group: `limit` groups have their own series, all others share one."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

from kgw.offsets.lag import LagSum

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.lag.samples import LagSample

OTHER = "other"


def sum_of(parts: Iterable[LagSum]) -> LagSum:
    """Return the sum of several lags."""
    total = LagSum()
    for one in parts:
        total.merge(one)
    return total


def by_group(
    sample: LagSample, named_before: dict[str, int], limit: int
) -> tuple[dict[str, int], dict[str, float]]:
    """Return lag and time lag by group, for at most `limit` groups and all others together.

    A group keeps its series: if series came and went with the rank of groups, a series that returns
    would look like a reset counter. Free series go to the groups with the highest lags.
    """
    groups = sample.groups
    named = [group_id for group_id in named_before if group_id in groups][:limit]
    if len(named) < limit:
        nameless = groups.keys() - set(named)
        named += nsmallest(
            limit - len(named), nameless, key=lambda one: (-groups[one].total.lag, one)
        )
    totals = {group_id: groups[group_id].total for group_id in named}
    rest = groups.keys() - set(named)
    if rest:
        others = [groups[one].total for one in rest]
        totals[OTHER] = sum_of([*others, totals[OTHER]] if OTHER in totals else others)
    lags: dict[str, int] = {}
    ages: dict[str, float] = {}
    for group_id, total in totals.items():
        # Unknown values get no series, as 0 would mean that there is no lag.
        if total.known_lag is not None:
            lags[group_id] = total.lag
        if total.time_lag_ms is not None:
            ages[group_id] = total.time_lag_ms / 1000
    return lags, ages
