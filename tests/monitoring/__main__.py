"""The dashboard and the alerts beside a real Prometheus and real gateways.

First two healthy gateways, one over a SeaweedFS, are kept busy: each query of the dashboard has to
return numbers, and no alert may fire. Then each alert is given its cause on a gateway of its own,
and has to fire there, and no other one. `for` and ranges are short (`tests.monitoring.shortened`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from deploy.monitoring.alerts import ALERTS
from tests import patience
from tests.monitoring import binary, load
from tests.monitoring.grafana import label_query, put_in, queries, rate_interval
from tests.monitoring.misbehaving import CASES, SEAWEEDFS_CASE, Case, seaweedfs_case
from tests.monitoring.prometheus import SCRAPE_S, Prometheus
from tests.monitoring.shortened import LASTS_S, RANGE_S
from tests.monitoring.stage import JOB, Stage
from tests.seaweedfs.binary import NoWeedError, fetch
from tests.seaweedfs.cluster import Cluster

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "kgw.json"
HEALTHY = ("healthy", "healthy-seaweedfs")
_HEALTHY_RUN = "healthy"
AT_A_TIME = 5
OF_THE_MACHINE = "KgwLoopLate"
FIRES_WITHIN_S = 75.0
HOLDS_S = 5.0


class Run(NamedTuple):
    """What is to be done."""

    seconds: float
    only: list[str] | None
    tolerated: frozenset[str]
    """Alerts that may fire anywhere."""

    def has(self, part: str) -> bool:
        """Whether a part is done."""
        return self.only is None or part in self.only


class Verdict(NamedTuple):
    """What one part of the run found."""

    what: str
    is_good: bool
    detail: str


def main() -> int:
    """Run it; fetch what it needs before."""
    parser = argparse.ArgumentParser(prog="scripts/monitoring", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of load")
    parser.add_argument("--json", type=Path, help="write what was found there, too")
    parser.add_argument(
        "--only",
        action="append",
        choices=[_HEALTHY_RUN, *(case.name for case in CASES), SEAWEEDFS_CASE],
        help="this part alone; may be given several times",
    )
    parser.add_argument(
        "--busy-machine",
        action="store_true",
        help=f"let {OF_THE_MACHINE} fire anywhere: the machine has too much to do besides",
    )
    arguments = parser.parse_args()
    tolerated = frozenset({OF_THE_MACHINE} if arguments.busy_machine else ())
    try:
        binary.fetch()
        fetch()
    except (binary.NoPrometheusError, NoWeedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    # As Ctrl-C: whatever was started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began_s = time.monotonic()
    with TemporaryDirectory(prefix="kgw-monitoring-") as name:
        cluster = Cluster(Path(name) / "seaweedfs")
        with cluster.running("master", "volume", "filer"):
            run = Run(arguments.seconds, arguments.only, tolerated)
            found = asyncio.run(_run(Path(name), cluster, run))
    verdicts: list[Verdict] = found.pop("verdicts")
    width = max(len(one.what) for one in verdicts)
    for one in verdicts:
        print(f"{'ok  ' if one.is_good else 'FAIL'}  {one.what:<{width}}  {one.detail}")
    is_good = all(one.is_good for one in verdicts)
    took_s = time.monotonic() - began_s
    print(f"{'passed' if is_good else 'FAILED'} in {took_s:.0f} s")
    if arguments.json:
        summary = {
            **found,
            "passed": is_good,
            "seconds": round(took_s),
            "verdicts": [one._asdict() for one in verdicts],
        }
        arguments.json.write_text(json.dumps(summary, indent=2) + "\n")
    return 0 if is_good else 1


async def _run(directory: Path, cluster: Cluster, run: Run) -> dict[str, Any]:
    found: dict[str, Any] = {}
    verdicts: list[Verdict] = []
    async with AsyncExitStack() as stack:
        prometheus = await stack.enter_async_context(Prometheus(directory / "prometheus"))
        found["prometheus"] = await prometheus.version()
        _say(f"Prometheus {found['prometheus']}: `for` is {LASTS_S} s, ranges are {RANGE_S} s")
        stage = Stage(directory, prometheus)
        stack.push_async_callback(stage.end_all)
        cases = [one for one in (*CASES, seaweedfs_case(cluster)) if run.has(one.name)]
        if run.has(_HEALTHY_RUN):
            verdicts += await _healthy(stage, cluster, run, found)
        slots = asyncio.Semaphore(AT_A_TIME)
        verdicts += await asyncio.gather(
            *(_cause(stage, case, slots, run.tolerated) for case in cases)
        )
    if run.only is None:
        verdicts.append(_all_caused(cases))
    return {**found, "verdicts": verdicts}


# --- healthy gateways -----------------------------------------------------------------------------


async def _healthy(
    stage: Stage, cluster: Cluster, run: Run, found: dict[str, Any]
) -> list[Verdict]:
    """Keep healthy gateways busy; read every panel, and see that no alert fires."""
    embedded, shared = HEALTHY
    gateways = {
        embedded: await stage.start(embedded, *load.SETTINGS, "kgw.smq.agent.listener=127.0.0.1:0"),
        shared: await stage.start(shared, backend=cluster.url("healthy")),
    }
    topics = {
        embedded: set(load.TOPICS),
        shared: set(load.TOPICS) - load.ONLY_EMBEDDED,
    }
    for name, gateway in gateways.items():
        await load.prepare(gateway, topics[name])
    _say(f"two healthy gateways are kept busy for {run.seconds:.0f} s")
    from_s = time.time()
    await asyncio.gather(
        *(load.be_busy(gateway, topics[name], run.seconds) for name, gateway in gateways.items())
    )
    verdicts = await _panels(stage.prometheus, from_s, time.time(), found)
    for name in HEALTHY:
        fired = await stage.prometheus.fired(name, JOB, time.time() - from_s)
        verdicts.append(
            Verdict(
                f"{name}: no alert",
                fired <= run.tolerated,
                ", ".join(sorted(fired)) or "none fired",
            )
        )
        if fired:
            _say("what it warned of:")
            for line in gateways[name].log().splitlines():
                if '"level": "info"' not in line:
                    _say(f"  {line[:3_000]}")
        await stage.end(name)
    return verdicts


async def _panels(
    prometheus: Prometheus, from_s: float, to_s: float, found: dict[str, Any]
) -> list[Verdict]:
    dashboard = json.loads(DASHBOARD.read_text())
    values: dict[str, str | list[str]] = {"__rate_interval": rate_interval(SCRAPE_S, 1)}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = label_query(variable["definition"])
            chosen = await prometheus.label_values(label, put_in(selector, values))
            values[variable["name"]] = chosen
    verdicts, rows = [], []
    for asked in queries(dashboard):
        series = await prometheus.values(put_in(asked.expr, values), from_s, to_s)
        rows.append({**asked._asdict(), "series": len(series), "moved": any(map(any, series))})
        if not series:
            verdicts.append(Verdict(f"panel {asked.row}/{asked.panel}", False, asked.expr))
    panels = len({(one["row"], one["panel"]) for one in rows})
    with_data = sum(1 for one in rows if one["series"])
    moved = sum(1 for one in rows if one["moved"])
    found["panels"] = rows
    detail = f"{with_data} of {len(rows)} queries of {panels} panels; {moved} are not 0 throughout"
    return [Verdict("panels have data", with_data == len(rows), detail), *verdicts]


# --- gateways with something wrong ----------------------------------------------------------------


async def _cause(
    stage: Stage, case: Case, slots: asyncio.Semaphore, tolerated: frozenset[str]
) -> Verdict:
    """Give alerts their cause, and see that they fire, and no others."""
    what = f"{case.name}: {', '.join(sorted(case.alerts))}"
    async with slots:
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(patience.seconds(150)), case.cause(stage, case.name):
                fired = await _wait(stage, case)
                seconds = time.monotonic() - began_s
                await asyncio.sleep(HOLDS_S)
                fired |= await stage.prometheus.fired(
                    case.name, stage.jobs[case.name], time.monotonic() - began_s
                )
        except Exception as error:  # noqa: BLE001 - the other cases have their turn
            return Verdict(what, False, f"could not be caused: {error!r}")
        finally:
            await stage.end(case.name)
    missing, others = case.alerts - fired, fired - case.alerts - tolerated
    _say(f"{case.name}: {', '.join(sorted(fired)) or 'nothing fired'}")
    details = [f"after {seconds:.0f} s"]
    details += [f"did not fire: {one}" for one in sorted(missing)]
    details += [f"fired as well: {one}" for one in sorted(others)]
    return Verdict(what, not missing and not others, "; ".join(details))


async def _wait(stage: Stage, case: Case) -> set[str]:
    """Return what has fired once all that should have did, or their time is up."""
    until_s = time.monotonic() + FIRES_WITHIN_S
    fired: set[str] = set()
    while not case.alerts <= fired and time.monotonic() < until_s:
        await asyncio.sleep(1)
        fired |= await stage.prometheus.firing(case.name, stage.jobs[case.name])
    return fired


def _all_caused(cases: list[Case]) -> Verdict:
    """No alert is without a case."""
    uncaused = {alert.name for alert in ALERTS} - {name for case in cases for name in case.alerts}
    detail = f"without a case: {', '.join(sorted(uncaused))}" if uncaused else f"{len(ALERTS)} have"
    return Verdict("every alert has a case", not uncaused, detail)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
