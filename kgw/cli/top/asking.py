"""The requests of `kgw top` to the admin side, repeated regularly."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kgw.cli.shared.admin_http import get, get_all, get_pages
from kgw.cli.top.figures import Sample

if TYPE_CHECKING:
    from kgw.cli.shared.admin_http import Address
    from kgw.cli.top.figures import Row

REST = 20
"""However many partitions there are, these requests take a twentieth of the server's time."""
_ALARMS_LISTED = 100


class Asker:
    """Takes samples of one server."""

    def __init__(self, admin: Address, rest: int = REST) -> None:
        """Partitions are requested again after `rest` times the duration of the last request."""
        self._admin = admin
        self._rest = rest
        self._partitions: list[Row] = []
        self._partitions_at_s = 0.0
        self._next_partitions_s = 0.0

    def sample(self) -> Sample:
        """Make all requests once. Raises CommandError without an answer of kgw, or for an error."""
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
        """Return the lag of every group, and the time of the server's sample."""
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
