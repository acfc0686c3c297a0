"""Liveness, readiness, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.admin.answers import Status, Text
from kgw.backend.base import Leadership
from kgw.metrics import TIME_BUCKETS_S
from kgw.server.standing import why_not_leading

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
    leadership = gateway.backend.leadership
    if gateway.is_started:
        health = gateway.backend.health
        # Those of the catalogue and the log manager are named, and the answer stays 200: all others
        # are served.
        found = [*health.problems, *gateway.catalog.problems, *gateway.log_manager.problems]
        is_ready = health.writable and leadership is Leadership.LEADING
    else:
        found = ["the process is starting"] if leadership is Leadership.LEADING else []
        is_ready = False
    problems = found[:PROBLEMS_LISTED]
    if leadership is not Leadership.LEADING:
        problems.insert(0, why_not_leading(gateway.backend))
    if gateway.is_stopping:
        problems.insert(0, "the process is stopping")
        is_ready = False
    answer = {
        "ready": is_ready,
        "leadership": leadership.value,
        "problems": problems,
        "problem_count": len(found),
    }
    return answer if is_ready else Status(503, answer)


async def metrics(gateway: Gateway, query: Query) -> Answer:
    from kgw.metrics import render

    if gateway.config.lag_interval_ms and gateway.is_started and not gateway.is_replaced:
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
