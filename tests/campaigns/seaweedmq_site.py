"""Gateways over a real SeaweedFS, for campaigns: started, killed, started again."""

from __future__ import annotations

import threading
import time
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
from tests import patience
from tests.seaweedfs.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from tests.campaigns.support import Report
    from tests.seaweedfs.cluster import Setup

LOOK_S = 0.1
START_S = 60.0
NO_FILER = "no filer of SeaweedFS answers"
LEASE_MS = 4_000
SETTINGS = (f"kgw.seaweedmq.lease.ms={LEASE_MS}",)


class Site:
    """A directory with a SeaweedFS, and gateways over it."""

    def __init__(self, directory: Path, cluster: Cluster, report: Report) -> None:
        self.directory = directory
        self.cluster = cluster
        self.report = report
        self.striking = threading.Lock()
        """Held by whoever ends processes of SeaweedFS on purpose, until they run again."""
        self._gateways = 0

    def gateway(
        self,
        url: str,
        command: Sequence[str] = (*SERVE, "--take-over"),
        *settings: str,
        env: Mapping[str, str] | None = None,
    ) -> GatewayProcess:
        """Return a gateway that is not started yet."""
        self._gateways += 1
        return GatewayProcess(
            self.directory / f"gateway-{self._gateways}",
            *SETTINGS,
            *settings,
            command=command,
            backend=url,
            env=env,
        )

    def start(self, gateway: GatewayProcess) -> None:
        """Start one, again when the filer had just ended by itself. Raises RuntimeError."""
        limit = patience.Limit(START_S)
        while True:
            ended = self.report.counts["filer_ended_by_itself"]
            try:
                gateway.start(START_S)
            except RuntimeError as error:
                last = str(error).strip().splitlines()[-1]
                # Whoever looks for it may not have seen yet that it has.
                time.sleep(2 * LOOK_S)
                has_ended = self.report.counts["filer_ended_by_itself"] > ended
                if NO_FILER not in last or not has_ended or limit.is_over:
                    raise
                self.report.count("starts_without_filer")
            else:
                self.report.count("gateway_starts")
                return

    def restart(self, gateway: GatewayProcess) -> bool:
        """Start one; whether it did, which is a failure otherwise."""
        try:
            self.start(gateway)
        except RuntimeError as error:
            self.report.fail(f"no unattended start: {str(error)[-2_000:]}")
            return False
        return True

    @contextmanager
    def supervised(self) -> Iterator[None]:
        """Start the filer again when it ends by itself, as a supervisor of services would.

        That of SeaweedFS 4.48 does, on a nil pointer, when a change is cancelled at the wrong
        moment, as all are that a killed gateway has under way.
        """
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.wait(LOOK_S):
                with self.striking:
                    if self.cluster.pid("filer") is None:
                        self.report.count("filer_ended_by_itself")
                        self.cluster.start("filer")

        # Its life is that of what it starts: a process of the cluster ends with the thread that
        # has started it.
        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            yield
        finally:
            is_over.set()
            watching.join()


@contextmanager
def a_site(report: Report, setup: Setup | None = None) -> Iterator[Site]:
    """Start a SeaweedFS, and kill it in the end. What a failed run leaves is kept."""
    directory = Path(mkdtemp(prefix="kgw-"))
    report.kept = directory
    with Cluster(directory / "seaweedfs", setup).running() as cluster:
        site = Site(directory, cluster, report)
        with site.supervised():
            yield site
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
