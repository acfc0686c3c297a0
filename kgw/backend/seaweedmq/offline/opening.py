"""Reaching a namespace, and holding one that no gateway serves, for tools."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.address import parse_address
from kgw.backend.seaweedmq.backend import private_directory
from kgw.backend.seaweedmq.channel.channel import FilerChannel
from kgw.backend.seaweedmq.channel.options import (
    ChannelOptions,
    Security,
    SecurityError,
    load_security,
)
from kgw.backend.seaweedmq.fence import check_filers
from kgw.backend.seaweedmq.lease import Lease
from kgw.backend.seaweedmq.placed_state import PlacedStateStore
from kgw.backend.seaweedmq.state_store import ChainStateStore
from kgw.clock import SystemClock
from kgw.config import ConfigError
from kgw.config.listeners import format_address
from kgw.errors import DataDirectoryError
from kgw.metrics import Metrics
from kgw.state.sql.stores import store_for_tools

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.backend.seaweedmq.address import SeaweedMqAddress
    from kgw.backend.seaweedmq.filer import Filer
    from kgw.clock import Clock
    from kgw.state.base import StateStore

LEASE_MS: Final = 10_000
_PATIENCE_S: Final = 5.0
"""Longer than a lease that a killed gateway has left."""


class Namespace(NamedTuple):
    """A namespace, and the filer by which it is reached."""

    filer: Filer
    name: str
    clock: Clock

    def state(self) -> PlacedStateStore:
        """Return its state, on the filer or in a database; it is not open."""
        chain = ChainStateStore(self.filer, self.clock, state_directory(self.name))
        return PlacedStateStore(chain, store_for_tools)


def state_directory(namespace: str) -> str:
    """Return where the state of a namespace is."""
    return f"{private_directory(namespace)}/state"


@asynccontextmanager
async def reached(url: str) -> AsyncIterator[Namespace]:
    """Reach a namespace that a gateway may serve meanwhile: for who reads only.

    Raises ConfigError for an address that cannot be meant; DataDirectoryError when nothing answers.
    """
    address = parse_address(url)
    clock = SystemClock()
    filer = FilerChannel(channel_options(address), clock, Metrics())
    await filer.open()
    async with aclosing(filer):
        yield Namespace(filer, address.namespace, clock)


@asynccontextmanager
async def held(url: str) -> AsyncIterator[Namespace]:
    """Hold a namespace, as a gateway does.

    Raises as `reached`, and DataDirectoryError when a gateway serves it or there are other
    filers.
    """
    async with reached(url) as namespace:
        filer, clock = namespace.filer, namespace.clock
        await check_filers(filer, clock.monotonic_s())
        lease = Lease(filer, clock, private_directory(namespace.name), LEASE_MS)
        async with aclosing(lease):
            try:
                async with asyncio.timeout(LEASE_MS / 1000 + _PATIENCE_S):
                    await lease.acquire()
            except TimeoutError:
                raise DataDirectoryError(f"a gateway serves {url}: stop it first") from None
            yield namespace


@asynccontextmanager
async def opened_state(url: str) -> AsyncIterator[StateStore]:
    """Hold a namespace and open its state. Raises as `held`, and DamagedStateError."""
    async with held(url) as namespace:
        state = namespace.state()
        await state.open()
        async with aclosing(state):
            yield state


def channel_options(address: SeaweedMqAddress) -> ChannelOptions:
    """Return how a tool reaches a filer: with the security that the environment names."""
    # As `kgw serve` names these settings; a tool has no other configuration.
    security_path = environ.get("KGW_SEAWEEDMQ_SECURITY_FILE", "")
    try:
        security = load_security(Path(security_path)) if security_path else Security()
    except SecurityError as error:
        raise ConfigError(f"KGW_SEAWEEDMQ_SECURITY_FILE: {error}") from error
    return ChannelOptions(
        format_address(address.host, address.port),
        path=f"/topics/{address.namespace}",
        security=security,
        tls_name=environ.get("KGW_SEAWEEDMQ_TLS_NAME", ""),
    )
