"""Holding a namespace that no gateway serves, for tools."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kgw.backend.seaweedmq.address import parse_address
from kgw.backend.seaweedmq.backend import private_directory
from kgw.backend.seaweedmq.channel.channel import FilerChannel
from kgw.backend.seaweedmq.channel.options import (
    ChannelOptions,
    Security,
    SecurityError,
    load_security,
)
from kgw.backend.seaweedmq.lease import Lease
from kgw.backend.seaweedmq.state_store import ChainStateStore
from kgw.clock import SystemClock
from kgw.config import ConfigError
from kgw.config.listeners import format_address
from kgw.errors import DataDirectoryError
from kgw.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.backend.seaweedmq.address import SeaweedMqAddress
    from kgw.state.base import StateStore

LEASE_MS: Final = 10_000
_PATIENCE_S: Final = 5.0
"""Longer than a lease that a killed gateway has left."""


@asynccontextmanager
async def opened_state(url: str) -> AsyncIterator[StateStore]:
    """Hold a namespace, as a gateway does, and open its state.

    Raises ConfigError for an address that cannot be meant; DataDirectoryError when nothing answers
    there, or a gateway serves the namespace; DamagedStateError.
    """
    address = parse_address(url)
    clock = SystemClock()
    filer = FilerChannel(_options(address), clock, Metrics())
    directory = private_directory(address.namespace)
    await filer.open()
    async with aclosing(filer):
        lease = Lease(filer, clock, directory, LEASE_MS)
        async with aclosing(lease):
            try:
                async with asyncio.timeout(LEASE_MS / 1000 + _PATIENCE_S):
                    await lease.acquire()
            except TimeoutError:
                raise DataDirectoryError(f"a gateway serves {address}: stop it first") from None
            state = ChainStateStore(filer, clock, f"{directory}/state")
            await state.open()
            async with aclosing(state):
                yield state


def _options(address: SeaweedMqAddress) -> ChannelOptions:
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
