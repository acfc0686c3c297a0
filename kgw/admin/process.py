"""Describes this process: version, uptime, processor time and memory."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kgw import __version__
from kgw.admin.answers import Status
from kgw.admin.health import ready
from kgw.metrics import TIME_BUCKETS_S, Histogram
from kgw.series import take_snapshot

if TYPE_CHECKING:
    from kgw.admin.answers import Answer
    from kgw.admin.parameters import QueryParameters
    from kgw.admin.rights import Viewer
    from kgw.gateway import Gateway


async def server(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    placement = gateway.placement
    answer = await ready(gateway, query, viewer)
    readiness = answer.value if isinstance(answer, Status) else cast("dict[str, Any]", answer)
    return {
        "version": __version__,
        "started": gateway.is_started,
        "cluster_id": placement.cluster_id if gateway.is_started else None,
        "node_id": placement.here.node_id if gateway.is_started else None,
        "pid": os.getpid(),
        "uptime_ms": round((gateway.clock.monotonic_s() - gateway.began_s) * 1000),
        "processor_ms": round(time.process_time() * 1000),
        "resident_bytes": await asyncio.to_thread(_resident_bytes),
        **readiness,
    }


async def metrics(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    await gateway.sample_metrics()
    return {
        "metrics": {
            metric.name: [
                {"labels": dict(zip(metric.labels, key, strict=True)), **_number(number)}
                for key, number in numbers
            ]
            for metric, numbers in take_snapshot(gateway.metrics)
        },
        "bucket_ends_s": TIME_BUCKETS_S,
    }


def _number(number: float | Histogram) -> dict[str, Any]:
    if isinstance(number, Histogram):
        return {"counts": number.counts, "sum_s": number.sum_s}
    return {"value": number}


def _resident_bytes() -> int | None:
    """Return the resident memory of the process; None if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
