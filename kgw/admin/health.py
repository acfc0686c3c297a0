"""Liveness, readiness and metrics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.admin.answers import Status, Text
from kgw.metrics import TIME_BUCKETS_S
from kgw.problems import count_by_reason, is_ready, texts
from kgw.series import take_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.admin.answers import Answer
    from kgw.admin.parameters import QueryParameters
    from kgw.admin.rights import Viewer
    from kgw.gateway import Gateway
    from kgw.series import Series

PROBLEMS_LISTED = 100
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


async def live(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    return {"live": True}


async def ready(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    found = await gateway.problem_watch.look()
    answer = {
        "ready": is_ready(found),
        "leadership": gateway.backend.lease.status.value,
        "reasons": [name for name, count in count_by_reason(found).items() if count],
        "problems": texts(found)[:PROBLEMS_LISTED],
        "problem_count": len(found),
    }
    return answer if answer["ready"] else Status(503, answer)


async def metrics(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    await gateway.sample_metrics()
    # In a thread: importing prometheus_client takes 40 ms, and there may be many groups.
    return Text(await asyncio.to_thread(_as_text, take_snapshot(gateway.metrics)), PROMETHEUS)


def _as_text(taken: Sequence[Series]) -> bytes:
    # Imported at the first request, because it takes 5 MB of memory.
    from kgw.admin.exposition import render

    return render(taken)


async def loop(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
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
