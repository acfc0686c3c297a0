"""Gateways over a real SeaweedFS, for campaigns: started, killed, started again."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from kgw.backend.seaweedmq.channel.channel import FilerChannel
from kgw.backend.seaweedmq.channel.options import ChannelOptions
from kgw.clock import SystemClock
from kgw.metrics import Metrics
from kgw.testing.process import SERVE, GatewayProcess
from tests.seaweedfs.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from tests.campaigns.support import Report
    from tests.seaweedfs.cluster import Setup

LEASE_MS = 4_000
SETTINGS = (f"kgw.seaweedmq.lease.ms={LEASE_MS}",)


class Site:
    """A directory with a SeaweedFS, and gateways over it."""

    def __init__(self, directory: Path, cluster: Cluster, report: Report) -> None:
        self.directory = directory
        self.cluster = cluster
        self.report = report
        self._gateways = 0

    def gateway(
        self, url: str, command: Sequence[str] = (*SERVE, "--take-over"), *settings: str
    ) -> GatewayProcess:
        """Return a gateway that is not started yet."""
        self._gateways += 1
        return GatewayProcess(
            self.directory / f"gateway-{self._gateways}",
            *SETTINGS,
            *settings,
            command=command,
            backend=url,
        )

    def restart(self, gateway: GatewayProcess) -> bool:
        """Start one; whether it did, which is a failure otherwise."""
        try:
            gateway.start(60)
        except RuntimeError as error:
            self.report.fail(f"no unattended start: {str(error)[-2_000:]}")
            return False
        self.report.count("gateway_starts")
        return True


@contextmanager
def a_site(report: Report, setup: Setup | None = None) -> Iterator[Site]:
    """Start a SeaweedFS, and kill it in the end. What a failed run leaves is kept."""
    directory = Path(mkdtemp(prefix="kgw-"))
    report.kept = directory
    with Cluster(directory / "seaweedfs", setup).running() as cluster:
        yield Site(directory, cluster, report)
    if not report.failure_count:
        report.kept = None
        rmtree(directory)


@contextmanager
def killed_in_the_end(*gateways: GatewayProcess) -> Iterator[None]:
    """Leave no gateway behind."""
    try:
        yield
    finally:
        for gateway in gateways:
            if gateway.running:
                gateway.kill()


@asynccontextmanager
async def open_filer(site: Site) -> AsyncIterator[FilerChannel]:
    """Look at what is there without a gateway."""
    filer = FilerChannel(ChannelOptions(site.cluster.address("filer")), SystemClock(), Metrics())
    await filer.open()
    try:
        yield filer
    finally:
        await filer.aclose()


async def partition_places(
    filer: FilerChannel, of_namespace: str, topic: str
) -> AsyncIterator[str]:
    """Yield the directory of each partition of a topic."""
    place = f"/topics/{of_namespace}/{topic}"
    (version,) = [one.name async for one in filer.list_entries(place) if one.name[0] == "v"]
    async for partition in filer.list_entries(f"{place}/{version}"):
        yield f"{place}/{version}/{partition.name}"
