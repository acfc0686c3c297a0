"""Gateways over one SeaweedFS in memory, for tests of the seaweedmq backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.chain import ChainOptions
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.state.memory import MemoryStateStore
from kgw.testing.backend_harness import KEY, SETTINGS, TOPIC
from kgw.testing.clock import ManualClock
from kgw.testing.filer import FilerStore, MemoryFiler

if TYPE_CHECKING:
    from kgw.backend.base import LogSettings, PartitionLog
    from kgw.types import PartitionKey

REFUSE_AT_ONCE: Final = SeaweedMqOptions(chain=ChainOptions(refuse_after_s=0))
"""What fails once is refused, as after half a minute."""


class Gateway:
    """One gateway: its filer with its faults, its clock, its backend."""

    def __init__(
        self,
        store: FilerStore,
        state: MemoryStateStore,
        clock: ManualClock,
        options: SeaweedMqOptions,
    ) -> None:
        self.filer = MemoryFiler(store, clock)
        self.backend = SeaweedMqBackend(self.filer, "kafka", state, options, clock)

    async def log(self, key: PartitionKey = KEY, settings: LogSettings = SETTINGS) -> PartitionLog:
        """Open a partition that is there."""
        return await self.backend.open_partition(key, TOPIC, settings)

    async def create(
        self, key: PartitionKey = KEY, settings: LogSettings = SETTINGS
    ) -> PartitionLog:
        """Create a partition."""
        return await self.backend.create_partition(key, TOPIC, settings)


class Cluster:
    """What gateways share. All of them are closed at the end."""

    def __init__(self, options: SeaweedMqOptions = REFUSE_AT_ONCE) -> None:
        self.store = FilerStore()
        self.clock = ManualClock()
        self._options = options
        self._state = MemoryStateStore()
        self._gateways: list[Gateway] = []

    async def gateway(self, options: SeaweedMqOptions | None = None) -> Gateway:
        """Start another one, beside those that run."""
        gateway = Gateway(self.store, self._state, self.clock, options or self._options)
        await gateway.backend.open()
        self._gateways.append(gateway)
        return gateway

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for gateway in self._gateways:
            await gateway.backend.aclose()
