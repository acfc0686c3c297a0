"""The services of the whole system, in the order in which they are started: the one table of them.

The twin starts these command lines as processes; `e2e/compose.yaml` has the same ones, which
`tests/system/test_services.py` compares.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2e.system.site import COPYING, LANGUAGES
from tests.seaweedfs.cluster import GRPC_ABOVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2e.system.site import Site

EMBEDDED, SEAWEEDMQ = "gateway", "gateway-seaweedmq"
GATEWAYS = (EMBEDDED, SEAWEEDMQ)
NAMESPACE = "kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One process, and what it runs behind its agent if it has one."""

    name: str
    command: Sequence[str]
    """With the agent, where there is one."""
    healthy: str
    """`http://HOST:PORT/PATH` that answers with 200, or `HOST:PORT` that takes connections."""
    needs: Sequence[str] = ()
    """The services that must be healthy before this one is started."""
    ends_by: signal.Signals = signal.SIGTERM
    """What ends it when all is over."""


def services(site: Site) -> list[Service]:
    """Return all services of a site but Grafana, which has no package, and the runner."""
    return [
        *_seaweedfs(site),
        _gateway(site, EMBEDDED, ["--data-dir", site.path("gateway")]),
        _gateway(
            site,
            SEAWEEDMQ,
            # One that is started after a kill does not wait for the lease of the one before.
            ["--backend", f"seaweedmq://{site.at('filer.http')}/{NAMESPACE}", "--take-over"],
            needs=["filer"],
        ),
        Service(
            name="prometheus",
            command=[
                *site.program("prometheus"),
                f"--config.file={site.path('prometheus.yaml')}",
                f"--web.listen-address={site.listen('prometheus.http')}",
                f"--storage.tsdb.path={site.path('prometheus')}",
            ],
            healthy=f"http://{site.at('prometheus.http')}/-/ready",
        ),
        *(
            _behind_agent(site, f"{role}-{language}", site.program(_program(language)))
            for role in ("producer", "consumer")
            for language in LANGUAGES
        ),
        *(
            _behind_agent(
                site,
                f"copier-{language}",
                site.program("python-copier" if language == "python" else language),
            )
            for language in COPYING
        ),
        _behind_agent(site, "spark", [*site.program("python"), "-m", "e2e.system.spark_driver"]),
    ]


def runner_command(site: Site) -> list[str]:
    """Return the command line of the service `runner`: what the twin calls itself."""
    return [*site.program("python"), "-m", "e2e.system.runner"]


def _program(language: str) -> str:
    return "python-client" if language == "python" else language


def _behind_agent(
    site: Site, name: str, program: Sequence[str], needs: Sequence[str] = (), healthy: str = ""
) -> Service:
    agent = f"{name}.agent"
    return Service(
        name=name,
        command=[*site.program("agent"), "--listen", site.listen(agent), "--", *program],
        healthy=healthy or site.at(agent),
        needs=needs,
    )


def _gateway(site: Site, name: str, kept: Sequence[str], needs: Sequence[str] = ()) -> Service:
    kafka, admin = f"{name}.kafka", f"{name}.admin"
    return _behind_agent(
        site,
        name,
        [
            *site.program("kgw"),
            "serve",
            *kept,
            *("--node-id", str(GATEWAYS.index(name))),
            *("--listen", site.listen(kafka), "--advertise", site.at(kafka)),
            *("--set", "kgw.listeners.without.login=true"),
            *("--set", f"kgw.admin.listeners={site.at(admin)}"),
        ],
        needs,
        site.at(kafka),
    )


def _seaweedfs(site: Site) -> list[Service]:
    """Return a SeaweedFS with the stores of its own: nothing here kills it, nor takes its power."""

    def server(name: str, options: Sequence[str], path: str, needs: Sequence[str]) -> Service:
        place = f"{name}.http"
        port = site.port(place)
        return Service(
            name=name,
            command=[
                *(*site.program("weed"), "-logtostderr=true", name),
                *(f"-ip={site.host(place)}", f"-ip.bind={site.any_address}"),
                *(f"-port={port}", f"-port.grpc={port + GRPC_ABOVE}"),
                *options,
            ],
            healthy=f"http://{site.at(place)}{path}",
            needs=needs,
            # Asked to end, a filer takes 15 seconds.
            ends_by=signal.SIGKILL,
        )

    masters = f"-master={site.at('master.http')}"
    return [
        server(
            "master",
            # Small volumes, and many: a collection begins with seven of them.
            [
                f"-mdir={site.path('master')}",
                *("-peers=none", "-telemetry=false", "-volumeSizeLimitMB=64"),
            ],
            "/cluster/status",
            [],
        ),
        server(
            "volume",
            [
                *(f"-dir={site.path('volume')}", masters, "-max=200"),
                *("-minFreeSpace=100MiB", "-preStopSeconds=1"),
            ],
            "/status",
            ["master"],
        ),
        server(
            "filer",
            [masters, f"-defaultStoreDir={site.path('filer')}"],
            "/?limit=1",
            ["master", "volume"],
        ),
    ]
