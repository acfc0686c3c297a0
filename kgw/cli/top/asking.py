"""The repeated requests of `kgw top` to the admin listener."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kgw.cli.shared.admin_http import get, get_all, get_pages
from kgw.cli.top.figures import Sample

if TYPE_CHECKING:
    from kgw.cli.shared.admin_http import Address
    from kgw.cli.top.figures import Row

REST = 20
"""Wait this many times the duration of a request before the next one, so that requests take at most
about a twentieth of the server's time."""
_ALARMS_LISTED = 100


class Asker:
    """Takes samples of one server."""

    def __init__(self, admin: Address, rest: int = REST) -> None:
        """After a request for partitions, wait `rest` times its duration before the next one."""
        self._admin = admin
        self._rest = rest
        self._partitions: list[Row] = []
        self._partitions_at_s = 0.0
        self._next_partitions_s = 0.0

    def sample(self) -> Sample:
        """Make all requests once, and return the sample.

        Raises CommandError for an error, and if no kgw answers.
        """
        admin = self._admin
        began_s = time.monotonic()
        server = get(admin, "/api/v1/server")
        numbers = get(admin, "/api/v1/metrics")
        groups, sampled_ms, anomalies = None, 0, None
        if server["started"]:
            self._look_at_partitions()
            groups, sampled_ms = self._groups()
            anomalies = get(admin, "/api/v1/lag/anomalies", limit=_ALARMS_LISTED)
        return Sample(
            began_s,
            time.time_ns() // 1_000_000,
            server,
            numbers["metrics"],
            numbers["bucket_ends_s"],
            self._partitions if server["started"] else None,
            self._partitions_at_s,
            groups,
            sampled_ms,
            anomalies,
        )

    def _groups(self) -> tuple[list[Row], int]:
        """Return the lag of every group, and when the server measured it."""
        pages = [*get_pages(self._admin, "/api/v1/lag")]
        return [row for page in pages for row in page["groups"]], pages[-1]["sampled_ms"]

    def _look_at_partitions(self) -> None:
        began_s = time.monotonic()
        if began_s < self._next_partitions_s:
            return
        self._partitions = get_all(self._admin, "/api/v1/offsets", "partitions")
        ended_s = time.monotonic()
        self._partitions_at_s = began_s
        self._next_partitions_s = ended_s + self._rest * (ended_s - began_s)
