"""Liveness, readiness, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.admin.answers import Status, Text
from kgw.metrics import TIME_BUCKETS_S

if TYPE_CHECKING:
    from kgw.admin.answers import Answer
    from kgw.admin.parameters import Query
    from kgw.gateway import Gateway

PROBLEMS_LISTED = 100
METRICS_FRESH_S = 5.0
"""What is sampled rather than counted is no older than this when it is read."""
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


async def live(gateway: Gateway, query: Query) -> Answer:
    return {"live": True}


async def ready(gateway: Gateway, query: Query) -> Answer:
    health = gateway.backend.health
    # Those of the log manager are named, and the answer stays 200: everybody is served.
    found = [*health.problems, *gateway.log_manager.problems]
    problems = found[:PROBLEMS_LISTED]
    if gateway.is_stopping:
        problems.insert(0, "the process is stopping")
    is_ready = health.writable and not gateway.is_stopping
    answer = {"ready": is_ready, "problems": problems, "problem_count": len(found)}
    return answer if is_ready else Status(503, answer)


async def metrics(gateway: Gateway, query: Query) -> Answer:
    from kgw.metrics import render

    if gateway.config.lag_interval_ms:
        await gateway.lag.fresh(METRICS_FRESH_S)
    return Text(render(gateway.metrics), PROMETHEUS)


async def loop(gateway: Gateway, query: Query) -> Answer:
    metrics = gateway.metrics
    looks = metrics.loop_lag.counts
    return {
        "looks": sum(looks),
        "lag_max_ms": round(metrics.loop_lag_max_s * 1000, 3),
        "lag_sum_ms": round(metrics.loop_lag.sum_s * 1000, 3),
        "buckets": [
            {"up_to_ms": round(end_s * 1000, 3), "looks": count}
            for end_s, count in zip(TIME_BUCKETS_S, looks, strict=False)
        ],
        "later": looks[-1],
    }
