"""Gateways that a Prometheus scrapes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from kgw.client import AsyncClient
from kgw.testing.process import SERVE, GatewayProcess
from tests.monitoring.prometheus import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tests.monitoring.prometheus import Prometheus

JOB = "kgw"
OFTEN = (
    "kgw.lag.interval.ms=1000",
    "log.initial.task.delay.ms=500",
    "log.cleaner.backoff.ms=500",
)
"""What is looked at once a minute, or later, is looked at sooner."""


class Stage:
    """Where gateways are started, scraped and ended."""

    def __init__(self, directory: Path, prometheus: Prometheus) -> None:
        self.directory = directory
        self.prometheus = prometheus
        self._gateways: dict[str, GatewayProcess] = {}
        self.jobs: dict[str, str] = {}

    async def start(
        self,
        name: str,
        *settings: str,
        command: Sequence[str] = SERVE,
        env: Mapping[str, str] | None = None,
        backend: str = "",
        job: str = JOB,
    ) -> GatewayProcess:
        """Start a gateway and have it scraped. Its admin listener keeps its port."""
        port = free_port()
        gateway = GatewayProcess(
            self.directory / name,
            *OFTEN,
            f"kgw.admin.listeners=127.0.0.1:{port}",
            *settings,
            command=command,
            env=env,
            backend=backend,
        )
        await asyncio.to_thread(gateway.start)
        self._gateways[name] = gateway
        self.jobs[name] = job
        self.prometheus.scrape(name, f"127.0.0.1:{port}", job)
        await self.scraped(name)
        return gateway

    async def restart(self, name: str, meanwhile: Callable[[], object]) -> None:
        """Stop a gateway, do something, and start it again. It is not scraped meanwhile."""
        gateway = self._gateways[name]
        target = self.prometheus.forget(name)
        await asyncio.to_thread(gateway.stop)
        meanwhile()
        await asyncio.to_thread(gateway.start)
        self.prometheus.scrape(name, *target)
        await self.scraped(name)

    async def scraped(self, name: str) -> None:
        """Return once a server has been scraped, with success, a second from now or later."""
        since_s, until_s = time.time(), time.monotonic() + 30
        while time.monotonic() < until_s:
            await asyncio.sleep(0.5)
            found = await self.prometheus.query(f'timestamp(up{{instance="{name}"}} == 1)')
            if found and float(found[0]["value"][1]) > since_s + 1:
                return
        raise RuntimeError(f"{name} is not scraped")

    async def end(self, name: str) -> None:
        """Scrape a gateway no longer, and kill it; or none, where it did not start."""
        gateway = self._gateways.pop(name, None)
        if gateway is not None:
            self.prometheus.forget(name)
            if gateway.running:
                await asyncio.to_thread(gateway.kill)

    async def end_all(self) -> None:
        """End what is left."""
        for name in list(self._gateways):
            await self.end(name)


def client_of(gateway: GatewayProcess) -> AsyncClient:
    """Return kgw's own client of a gateway, to be opened."""
    return AsyncClient([(gateway.host, gateway.port)])
