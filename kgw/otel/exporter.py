"""Schedules exports of metrics, runs each one in a thread, and logs failures.

Each export contains the totals since the start. A failed export is not retried, as the next one
contains all of its values. Only one export runs at a time.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from kgw import __version__
from kgw.config import ConfigError
from kgw.config.otel_settings import parse_attributes, parse_headers
from kgw.logs import EventLogger
from kgw.otel.errors import ExportError
from kgw.series import take_snapshot
from kgw.version import install_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.config import Config
    from kgw.gateway import Gateway
    from kgw.series import Series

SEND_S = 10.0
"""The time limit of an export; the interval between exports is usually longer."""
FLUSH_S = 5.0
"""The time limit of the last export, for which the process waits before it exits."""
_LATER_S = 1.0
"""The thread's time limit is longer by this than that of the event loop, so that only the event
loop reports timeouts."""
METRICS_PATH = "/v1/metrics"

_log = EventLogger(__name__)


class Exporter:
    """Exports the metrics of one gateway on a schedule.

    Its methods run in the event loop's thread.
    """

    def __init__(self, gateway: Gateway) -> None:
        """Raise ConfigError if a package is missing."""
        config = gateway.config
        if not _is_installed():
            raise ConfigError(f"kgw.otel.endpoint needs a package: {install_command('otel')}")
        self._gateway = gateway
        self._clock = gateway.clock
        self._url = config.otel_endpoint.rstrip("/") + METRICS_PATH
        self._headers_path = config.otel_headers_file
        self._interval_s = config.otel_interval_ms / 1000
        self._resource = resource_of(config)
        self._start_ms = gateway.clock.wall_ms()
        self._task: asyncio.Task[None] | None = None
        self._sending: asyncio.Future[Exception | None] | None = None
        self._failing_since_s: float | None = None
        self._failed_before = 0

    def serve(self, gateway: Gateway) -> None:
        """Export the metrics of another gateway from now on, which uses the same counters."""
        self._gateway = gateway

    def start(self) -> None:
        """Export now, and then on schedule. Does nothing if the exporter was started before."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def aclose(self, flush_s: float = 0.0) -> None:
        """Stop the schedule, and export once more within `flush_s`.

        Does nothing if the exporter is stopped.
        """
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        ends_s = self._clock.monotonic_s() + min(flush_s, FLUSH_S)
        if flush_s > 0 and await self._until_sent(min(flush_s, FLUSH_S)):
            left_s = ends_s - self._clock.monotonic_s()
            if left_s > 0:
                await self.export(left_s)

    async def _run(self) -> None:
        due_s = self._clock.monotonic_s()
        while True:
            await self.export(SEND_S)
            due_s = max(due_s + self._interval_s, self._clock.monotonic_s())
            await self._clock.sleep_until(due_s)

    async def export(self, limit_s: float) -> None:
        """Export once, in at most `limit_s` seconds.

        If exports fail repeatedly, log only the first failure.
        """
        try:
            if self._is_sending:
                raise ExportError("the export before has not ended")
            await self._gateway.sample_metrics()
            await self._send(take_snapshot(self._gateway.metrics), limit_s)
        except (ExportError, ConfigError) as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 - nobody awaits the schedule
            self._gateway.report_internal_error("export of metrics", error)
            self._failed(error)
        else:
            self._succeeded()

    async def _send(self, series: list[Series], limit_s: float) -> None:
        """Send in a daemon thread, which does not delay the process's exit. Raises ExportError."""
        loop = asyncio.get_running_loop()
        sending = self._sending = loop.create_future()
        read_ns = self._clock.wall_ms() * 1_000_000

        def send() -> None:
            failure = None
            try:
                # Imported here, because this takes 40 ms.
                from kgw.otel.points import Times, request_of
                from kgw.otel.post import post

                times = Times(self._start_ms * 1_000_000, read_ns)
                body = request_of(series, self._resource, times)
                post(self._url, self.read_headers(), body, limit_s + _LATER_S)
            except Exception as error:  # noqa: BLE001 - told in the loop
                failure = error
            # The event loop may be closed by now.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(sending.set_result, failure)

        Thread(target=send, name="kgw-otel", daemon=True).start()
        if not await self._until_sent(limit_s):
            raise ExportError(f"no answer within {limit_s:g} s")
        failure = sending.result()
        if failure is not None:
            raise failure

    async def _until_sent(self, limit_s: float) -> bool:
        """Wait for the running export. Returns whether the export has ended."""
        if self._sending is not None:
            # If this task is cancelled, the thread continues the export.
            await asyncio.wait((self._sending,), timeout=limit_s)
        return not self._is_sending

    @property
    def _is_sending(self) -> bool:
        return self._sending is not None and not self._sending.done()

    def read_headers(self) -> dict[str, str]:
        """Return the headers of an export; read the file each time, as tokens may be replaced.

        Do not call this in the event loop's thread, because it reads a file. Raises ConfigError.
        """
        if not self._headers_path:
            return {}
        try:
            return parse_headers(Path(self._headers_path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"kgw.otel.headers.file: {self._headers_path}: {reason}") from None

    def _failed(self, error: Exception) -> None:
        metrics = self._gateway.metrics
        if self._failing_since_s is None:
            self._failing_since_s = self._clock.monotonic_s()
            self._failed_before = metrics.otel_export_failures
            _log.warning("metrics could not be exported", endpoint=self._url, why=error)
        metrics.otel_export_failures += 1

    def _succeeded(self) -> None:
        if self._failing_since_s is not None:
            _log.info(
                "metrics are exported again",
                endpoint=self._url,
                failed=self._gateway.metrics.otel_export_failures - self._failed_before,
                after_s=round(self._clock.monotonic_s() - self._failing_since_s, 1),
            )
            self._failing_since_s = None


def resource_of(config: Config) -> Mapping[str, str]:
    """Return the attributes that identify this process in each export."""
    port = config.bound_listeners[0].port or os.getpid()
    return {
        "service.name": "kgw",
        "service.version": __version__,
        "service.instance.id": f"{socket.gethostname()}:{port}",
        **parse_attributes(config.otel_resource_attributes),
    }


def _is_installed() -> bool:
    try:
        return find_spec("opentelemetry.proto.collector.metrics.v1") is not None
    except ImportError:
        return False
