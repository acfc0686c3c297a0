"""All scenarios, family by family, in the order in which they are measured and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.scenarios import (
    catch_up,
    commits,
    confluent,
    connections,
    groups,
    latency,
    metadata,
    recovery,
    small_requests,
    startup,
    throughput,
    topics,
    transactions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.harness.scenario import Scenario

FAMILIES: Mapping[str, tuple[Scenario, ...]] = {
    "throughput": throughput.SCENARIOS,
    "catch_up": catch_up.SCENARIOS,
    "latency": latency.SCENARIOS,
    "confluent": confluent.SCENARIOS,
    "small_requests": small_requests.SCENARIOS,
    "connections": connections.SCENARIOS,
    "groups": groups.SCENARIOS,
    "commits": commits.SCENARIOS,
    "transactions": transactions.SCENARIOS,
    "metadata": metadata.SCENARIOS,
    "topics": topics.SCENARIOS,
    "startup": startup.SCENARIOS,
    "recovery": recovery.SCENARIOS,
}


def all_scenarios() -> tuple[Scenario, ...]:
    """Every one, in order."""
    return tuple(scenario for family in FAMILIES.values() for scenario in family)
