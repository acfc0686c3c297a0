"""From the start of the process to its first answer, and what it holds when it idles."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.scenario import Bar, Figure, Scenario
from bench.harness.servers import BUT_RELAXED
from bench.loads.frames import API_VERSIONS_V0, connect, exchange

if TYPE_CHECKING:
    from bench.harness.scenario import Stage
    from bench.harness.servers import Server

SETTLE_S = 1.0
TRIED_EVERY_S = 0.002
ANSWER_LIMIT_S = 60.0

FIRST_ANSWER_MS = Figure(
    name="first_answer_ms", title="first answer after", unit="ms", better="lower", decimals=0
)
FORMATTED_MS = Figure(
    name="formatted_ms",
    title="the same with making the directory ready before",
    unit="ms",
    better="lower",
    decimals=0,
)
IDLE_MB = Figure(
    name="idle_anonymous_mb", title="idle, anonymous memory", unit="MB", better="lower"
)
CPU_S = Figure(name="start_cpu_s", title="CPU until then", unit="s", better="lower", decimals=2)


def _first_answer(server: Server) -> tuple[float, float]:
    """Tries until ApiVersions is answered; when that was, and the processor time until then.

    Raises TimeoutError.
    """
    deadline_s = time.monotonic() + ANSWER_LIMIT_S
    while True:
        try:
            with connect(server.address) as connection:
                exchange(connection, API_VERSIONS_V0)
        except ConnectionError:
            if time.monotonic() > deadline_s:
                message = f"{server.name} did not answer within {ANSWER_LIMIT_S:.0f} s"
                raise TimeoutError(message) from None
            time.sleep(TRIED_EVERY_S)
        else:
            return time.monotonic(), server.usage().cpu_s


@dataclass(frozen=True, kw_only=True)
class Startup(Scenario):
    """On an empty directory, until ApiVersions is answered; it is asked from the beginning."""

    figures: tuple[Figure, ...] = (FIRST_ANSWER_MS, FORMATTED_MS, IDLE_MB, CPU_S)

    def measure(self, stage: Stage) -> dict[str, float]:
        server = stage.server
        with ThreadPoolExecutor(1) as asking:
            called_s = time.monotonic()
            asked = asking.submit(_first_answer, server)
            server.start()
            answered_s, cpu_s = asked.result()
        time.sleep(SETTLE_S)
        return {
            "first_answer_ms": (answered_s - server.began_s) * 1e3,
            "formatted_ms": (answered_s - called_s) * 1e3,
            "idle_anonymous_mb": server.usage().anonymous_bytes / 1e6,
            "start_cpu_s": cpu_s,
        }


SCENARIOS: tuple[Scenario, ...] = (
    Startup(
        name="startup/empty",
        title="on an empty directory",
        what=(
            "Process start to an answered ApiVersions, tried every 2 ms. Kafka's directory is"
            " formatted before, by a run of `kafka-storage format` that the second figure counts;"
            " kgw makes its own when it starts."
        ),
        limited_by=(
            "Importing some 130 modules of kgw and those of asyncio, ssl and click: most of its"
            " processor time. The journal's files are written once it has answered, and the code"
            " for groups is imported then where none is stored."
        ),
        would_lift="Importing less; an interpreter that maps its modules instead of reading them.",
        bars={
            "strict": (
                Bar(figure="first_answer_ms", at_most=0.07),
                Bar(figure="first_answer_ms", at_most=300, absolute=True),
                Bar(figure="idle_anonymous_mb", at_most=0.2),
            ),
            "synced": (Bar(figure="first_answer_ms", at_most=1.0),),
        },
        servers=BUT_RELAXED,
        start="unstarted",
    ),
)
