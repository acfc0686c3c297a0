"""Makes a seaweedmq backend from a configuration; needs the packages of `kgw-broker[seaweedmq]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.seaweedmq.address import parse_address
from kgw.backend.seaweedmq.backend import SeaweedMqBackend, private_directory
from kgw.backend.seaweedmq.channel.channel import FilerChannel
from kgw.backend.seaweedmq.channel.options import ChannelOptions, security_of
from kgw.backend.seaweedmq.entries.layouts import Layout
from kgw.backend.seaweedmq.lease.lease import FilerLease
from kgw.backend.seaweedmq.lease.run_files import RunFiles
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.backend.seaweedmq.state.offset_mirror import OffsetMirror
from kgw.backend.seaweedmq.state.placed_state import PlacedStateStore
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.config.memory import request_memory_bytes
from kgw.state.sql.stores import configured_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.seaweedmq.backend import MakeNative
    from kgw.backend.seaweedmq.native.topics import NativeTopics
    from kgw.backend.seaweedmq.shell import Shell
    from kgw.clock import Clock
    from kgw.config import Config
    from kgw.metrics import Metrics


def seaweedmq_backend(config: Config, clock: Clock, metrics: Metrics) -> SeaweedMqBackend:
    """Return the configured backend; it is not open yet. Raises ConfigError."""
    address = parse_address(config.backend)
    filer = filer_channel(config, clock, metrics)
    chain = ChainStateStore(filer, clock, f"{private_directory(address.namespace)}/state")
    state: ChainStateStore | PlacedStateStore = chain
    if config.state_url:
        state = PlacedStateStore(
            chain, lambda url: configured_store(config, clock, url), config.state_url
        )
    backend = SeaweedMqBackend(
        filer,
        address.namespace,
        state,
        SeaweedMqOptions(
            layout=Layout(config.seaweedmq_layout),
            cache_bytes=config.cache_bytes,
            waiting_bytes=_waiting_bytes(config),
            checkpoint_bytes=config.checkpoint_bytes,
        ),
        clock,
        FilerLease(
            filer,
            clock,
            private_directory(address.namespace),
            config.seaweedmq_lease_ms,
            run_files=RunFiles(),
        ),
        native=_native(config, filer) if config.seaweedmq_native else None,
    )
    chain.on_lost = lambda _: backend.doubt()
    if isinstance(state, PlacedStateStore):
        state.on_lost = backend.doubt
    if config.seaweedmq_mirror_offsets:
        mirror = OffsetMirror(filer, clock, metrics, backend.directory_of)
        state.on_commit = mirror.note
        backend.mirror = mirror
    return backend


def _waiting_bytes(config: Config) -> int:
    given = config.seaweedmq_waiting_bytes
    return request_memory_bytes(config) if given < 0 else given


def _native(config: Config, filer: FilerChannel) -> MakeNative:
    """Return the factory of the object that serves the topics led by SMQ's broker."""
    # Imported late, because most namespaces have no such topics.
    from kgw.backend.seaweedmq.native.broker import BrokerChannel
    from kgw.backend.seaweedmq.native.topics import ACKS_BROKER, NativeOptions, NativeTopics

    options = NativeOptions(
        config.seaweedmq_native, config.seaweedmq_native_write, config.seaweedmq_acks
    )

    def make(shell: Shell, on_change: Callable[[], None]) -> NativeTopics:
        broker = None
        if options.is_writable or options.acks == ACKS_BROKER:
            broker = BrokerChannel(lambda: filer.nodes("broker"), filer.connect)
        return NativeTopics(shell, options, broker, on_change)

    return make


def filer_channel(config: Config, clock: Clock, metrics: Metrics) -> FilerChannel:
    """Return the configured filer; it is not open yet. Raises ConfigError."""
    address = parse_address(config.backend)
    options = ChannelOptions(
        address.filer,
        # With the slash at the end, rules for paths below the directory apply.
        path=f"/topics/{address.namespace}/",
        collection=config.seaweedmq_collection,
        replication=config.seaweedmq_replication,
        disk_type=config.seaweedmq_disk_type,
        is_synced=config.seaweedmq_fsync,
        security=security_of(config.seaweedmq_security_file, "kgw.seaweedmq.security.file"),
        tls_name=config.seaweedmq_tls_name,
    )
    return FilerChannel(options, clock, metrics)
