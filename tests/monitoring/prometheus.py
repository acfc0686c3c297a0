"""A real Prometheus that looks every second, and what is asked of it."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import aiohttp

from deploy.monitoring.alerts import ALERTS
from deploy.monitoring.rules import rules
from tests.monitoring.binary import program
from tests.monitoring.shortened import shortened

if TYPE_CHECKING:
    from pathlib import Path

SCRAPE_S = 1
_CONFIG = f"""
global:
  scrape_interval: {SCRAPE_S}s
  scrape_timeout: {SCRAPE_S}s
  evaluation_interval: {SCRAPE_S}s
rule_files: [alerts.yaml]
scrape_configs:
  - job_name: kgw
    file_sd_configs: [{{files: [targets.json], refresh_interval: 1s}}]
"""


class Target(NamedTuple):
    """What is scraped."""

    address: str
    job: str


class Prometheus:
    """One process, below a directory, with the project's rules as `shortened` makes them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._targets: dict[str, Target] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._url = ""

    async def __aenter__(self) -> Self:
        directory = self._directory
        directory.mkdir()
        (directory / "prometheus.yaml").write_text(_CONFIG)
        (directory / "alerts.yaml").write_text(rules(map(shortened, ALERTS)))
        self._write_targets()
        self._url = f"http://127.0.0.1:{free_port()}"
        with (directory / "log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - nothing else goes on yet
                [
                    program("prometheus"),
                    f"--config.file={directory / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address={self._url.removeprefix('http://')}",
                    "--log.level=warn",
                ],
                stdout=log,
                stderr=log,
            )
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        try:
            await self._ready()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
        if self._process is not None:
            self._process.terminate()
            await asyncio.to_thread(self._process.wait)

    async def _ready(self) -> None:
        assert self._session is not None
        assert self._process is not None
        until_s = time.monotonic() + 30
        while True:
            try:
                async with self._session.get(f"{self._url}/-/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            if time.monotonic() > until_s or self._process.poll() is not None:
                said = (self._directory / "log").read_text()
                raise RuntimeError(f"Prometheus does not start: {said[-2_000:]}")
            await asyncio.sleep(0.1)

    # --- what is scraped --------------------------------------------------------------------------

    def scrape(self, instance: str, address: str, job: str) -> None:
        """Scrape one more server."""
        self._targets[instance] = Target(address, job)
        self._write_targets()

    def forget(self, instance: str) -> Target:
        """Scrape a server no longer; return where it was."""
        target = self._targets.pop(instance)
        self._write_targets()
        return target

    def _write_targets(self) -> None:
        found = [
            {"targets": [one.address], "labels": {"instance": instance, "job": one.job}}
            for instance, one in self._targets.items()
        ]
        new = self._directory / "targets.new"
        new.write_text(json.dumps(found))
        new.replace(self._directory / "targets.json")

    # --- what is asked ----------------------------------------------------------------------------

    async def _ask(self, path: str, **parameters: str) -> Any:
        assert self._session is not None
        async with self._session.get(f"{self._url}/api/v1/{path}", params=parameters) as answer:
            found = await answer.json()
        if found["status"] != "success":
            raise RuntimeError(f"Prometheus: {found['error']} ({parameters})")
        return found["data"]

    async def version(self) -> str:
        """Return which one it is."""
        return str((await self._ask("status/buildinfo"))["version"])

    async def query(self, expr: str) -> list[dict[str, Any]]:
        """Return the series of an expression, now."""
        return list((await self._ask("query", query=expr))["result"])

    async def values(self, expr: str, from_s: float, to_s: float) -> list[list[float]]:
        """Return the values of each series of an expression over a time, those that are numbers."""
        found = await self._ask(
            "query_range", query=expr, start=f"{from_s:.3f}", end=f"{to_s:.3f}", step="1"
        )
        series = [[float(value) for _, value in one["values"]] for one in found["result"]]
        numbers = [[one for one in values if not math.isnan(one)] for values in series]
        return [values for values in numbers if values]

    async def label_values(self, label: str, match: str) -> list[str]:
        """Return the values of a label, as Grafana asks for those of a variable."""
        return list(await self._ask(f"label/{label}/values", **{"match[]": match}))

    async def firing(self, instance: str, job: str) -> set[str]:
        """Return the alerts that fire now for a server, or for the job that is its own."""
        return _names(await self.query('ALERTS{alertstate="firing"}'), instance, job)

    async def fired(self, instance: str, job: str, window_s: float) -> set[str]:
        """Return those that have fired at any time in the window that ends now."""
        over = f'max_over_time(ALERTS{{alertstate="firing"}}[{max(1, int(window_s))}s])'
        return _names(await self.query(over), instance, job)


def _names(found: list[dict[str, Any]], instance: str, job: str) -> set[str]:
    return {
        one["metric"]["alertname"]
        for one in found
        if one["metric"].get("instance", instance) == instance and one["metric"].get("job") == job
    }


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
