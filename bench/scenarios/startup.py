"""From the start of the process to its first answer, and what it holds when it idles."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.scenario import Bar, Figure, Scenario
from bench.loads.frames import API_VERSIONS_V0, connect, exchange

if TYPE_CHECKING:
    from bench.harness.scenario import Stage

SETTLE_S = 1.0

FIRST_ANSWER_MS = Figure(
    name="first_answer_ms", title="first answer after", unit="ms", better="lower", decimals=0
)
IDLE_MB = Figure(
    name="idle_anonymous_mb", title="idle, anonymous memory", unit="MB", better="lower"
)
CPU_S = Figure(name="start_cpu_s", title="CPU until then", unit="s", better="lower", decimals=2)


@dataclass(frozen=True, kw_only=True)
class Startup(Scenario):
    """On an empty directory (Kafka's is formatted before), until ApiVersions is answered."""

    figures: tuple[Figure, ...] = (FIRST_ANSWER_MS, IDLE_MB, CPU_S)

    def measure(self, stage: Stage) -> dict[str, float]:
        server = stage.server
        server.start()
        began_s = time.perf_counter()
        with connect(server.address) as connection:
            exchange(connection, API_VERSIONS_V0)
        first_answer_s = server.ready_s + time.perf_counter() - began_s
        start_cpu_s = server.usage().cpu_s
        time.sleep(SETTLE_S)
        return {
            "first_answer_ms": first_answer_s * 1e3,
            "idle_anonymous_mb": server.usage().anonymous_bytes / 1e6,
            "start_cpu_s": start_cpu_s,
        }


SCENARIOS: tuple[Scenario, ...] = (
    Startup(
        name="startup/empty",
        title="on an empty directory",
        what="Process start to an answered ApiVersions; kgw is asked once it has said `ready`.",
        limited_by=(
            "Importing Python's modules. Asked without waiting for `ready`, kgw answers 70 ms"
            " sooner."
        ),
        bars={
            "strict": (
                Bar(figure="first_answer_ms", at_most=0.07),
                Bar(figure="first_answer_ms", at_most=300, absolute=True),
                Bar(figure="idle_anonymous_mb", at_most=0.2),
            )
        },
        servers=("kgw-strict", "kafka"),
        start="unstarted",
    ),
)
