"""Batches that no producer would send, sent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.cli.shared.client import parse_bootstrap
from kgw.client import AsyncClient

if TYPE_CHECKING:
    from collections.abc import Sequence


def send(bootstrap: str, topic: str, batches: Sequence[bytes | bytearray]) -> list[int]:
    """Produce batches as they are to partition 0, one request each; return their base offsets."""

    async def run() -> list[int]:
        async with AsyncClient(parse_bootstrap(bootstrap)) as client:
            return [(await client.produce(topic, 0, one)).base_offset for one in batches]

    return asyncio.run(run())
