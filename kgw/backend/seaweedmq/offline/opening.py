"""Opens a namespace for tools, either beside a gateway or with the lease."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from os import environ
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.address import parse_address
from kgw.backend.seaweedmq.backend import directories_of, private_directory, state_directories
from kgw.backend.seaweedmq.channel.channel import FilerChannel
from kgw.backend.seaweedmq.channel.options import ChannelOptions, security_of
from kgw.backend.seaweedmq.lease.lease import FilerLease
from kgw.backend.seaweedmq.path_rules import forbidden
from kgw.backend.seaweedmq.state.placed_state import PlacedStateStore
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.backend.seaweedmq.watch.fence import check_filers, check_version
from kgw.clock import SystemClock
from kgw.errors import DataDirectoryError, StorageError
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
"""Longer than a killed gateway's lease can still last."""


class Namespace(NamedTuple):
    """A namespace, and the filer that has it."""

    filer: Filer
    name: str
    clock: Clock

    def state(self) -> PlacedStateStore:
        """Return the namespace's unopened state, on the filer or in a database."""
        chain = ChainStateStore(self.filer, self.clock, state_directory(self.name))
        return PlacedStateStore(chain, store_for_tools)


def state_directory(namespace: str) -> str:
    """Return the directory of a namespace's state."""
    return state_directories(namespace)[0]


@asynccontextmanager
async def reached(url: str) -> AsyncIterator[Namespace]:
    """Open a namespace, for reading only: a gateway may serve it meanwhile.

    Raises ConfigError for an invalid address; DataDirectoryError when no filer answers there.
    """
    address = parse_address(url)
    clock = SystemClock()
    filer = FilerChannel(channel_options(address), clock, Metrics())
    await filer.open()
    async with aclosing(filer):
        yield Namespace(filer, address.namespace, clock)


@asynccontextmanager
async def held(url: str, *, writes: bool = True) -> AsyncIterator[Namespace]:
    """Hold the lease of a namespace, as a gateway does.

    `writes` is False if only the lease will be written. Raises as `reached` and `holding`.
    """
    async with reached(url) as namespace, holding(namespace, url, writes=writes):
        yield namespace


@asynccontextmanager
async def holding(namespace: Namespace, url: str, *, writes: bool) -> AsyncIterator[None]:
    """Hold the lease of a namespace that `reached` has opened.

    Raises DataDirectoryError if a gateway serves the namespace, there are other filers, or the
    filer is too old. With `writes`, also raises it if a rule of the filer forbids writes. If the
    block ends without an error, filers and rules are checked again, and DataDirectoryError is
    raised if the written data may be lost. Without `writes`, rules that let data expire are
    ignored, so that the data can still be copied elsewhere.
    """
    filer, clock = namespace.filer, namespace.clock
    check_version(filer)
    await check_filers(filer, clock.monotonic_s())
    if writes:
        await _check_rules(namespace)
    lease = FilerLease(filer, clock, private_directory(namespace.name), LEASE_MS)
    async with aclosing(lease):
        try:
            async with asyncio.timeout(LEASE_MS / 1000 + _PATIENCE_S):
                await lease.acquire()
        except TimeoutError:
            raise DataDirectoryError(f"a gateway serves {url}: stop it first") from None
        yield
        if writes:
            try:
                await check_filers(filer, clock.monotonic_s())
                await _check_rules(namespace)
            except DataDirectoryError as error:
                raise DataDirectoryError(
                    f"what was written to {url} may be lost: {error}. Put that right, remove what "
                    "was written and do it again"
                ) from error


async def _check_rules(namespace: Namespace) -> None:
    """Raise DataDirectoryError if a rule of the filer forbids writes to a namespace."""
    try:
        rules = await namespace.filer.rules()
    except StorageError as error:
        raise DataDirectoryError(f"the filer's rules by path are unknown: {error}") from error
    problem = forbidden(rules, directories_of(namespace.name))
    if problem is not None:
        raise DataDirectoryError(problem)


@asynccontextmanager
async def opened_state(url: str, *, writes: bool = True) -> AsyncIterator[StateStore]:
    """Hold a namespace and open its state. Raises as `held`, and DamagedStateError."""
    async with held(url, writes=writes) as namespace:
        state = namespace.state()
        await state.open()
        async with aclosing(state):
            yield state


def channel_options(address: SeaweedMqAddress) -> ChannelOptions:
    """Return the options of a tool's connection, with the environment's security file."""
    # The same variable as for `kgw serve`; tools have no other configuration.
    variable = "KGW_SEAWEEDMQ_SECURITY_FILE"
    return ChannelOptions(
        address.filer,
        path=f"/topics/{address.namespace}/",
        security=security_of(environ.get(variable, ""), variable),
        tls_name=environ.get("KGW_SEAWEEDMQ_TLS_NAME", ""),
    )
