"""Creates the backend that the configuration names.

`kgw.backend` is `embedded` (the data directory), `memory`, `seaweedmq://FILER:PORT/NAMESPACE`, or
the name or URL of an installed backend: an entry point in the group `kgw.backends` whose name is
the URL's scheme. The entry point is called with the configuration and a clock, and returns a
Backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from kgw.backend.base import Backend
    from kgw.backend.embedded.state_place import ServerState
    from kgw.clock import Clock
    from kgw.config import Config
    from kgw.metrics import Metrics

_MOST_UNSYNCED: Final = 2048
_DESCRIPTOR_SHARE: Final = 16
ENTRY_POINT_GROUP: Final = "kgw.backends"


def open_backend(config: Config, clock: Clock, metrics: Metrics | None = None) -> Backend:
    """Return the backend that the configuration names, not opened yet.

    It records its counts in `metrics`. Raises DataDirectoryError if no backend of that name is
    installed, ConfigError if the backend does not accept its address or settings.
    """
    name = config.backend.partition(":")[0]
    if name == "embedded":
        return _embedded(config, clock)
    if name == "memory":
        if config.state_url:
            raise DataDirectoryError(
                "kgw.state.url is for a data directory: kgw.backend=memory keeps nothing"
            )
        from kgw.backend.memory import MemoryBackend

        return MemoryBackend(clock)
    if name == "seaweedmq":
        return _seaweedmq(config, clock, metrics)
    # Imported late: reading the metadata of installed packages takes tens of milliseconds.
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        backend: Backend = entry_point.load()(config, clock)
        return backend
    raise DataDirectoryError(
        f"no backend is installed for kgw.backend={config.backend}: embedded, memory or "
        "seaweedmq://FILER:PORT/NAMESPACE is expected"
    )


def _seaweedmq(config: Config, clock: Clock, metrics: Metrics | None) -> Backend:
    try:
        from kgw.backend.seaweedmq.from_config import seaweedmq_backend
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("kgw"):
            raise
        from kgw.version import install_command

        raise DataDirectoryError(
            f"kgw.backend={config.backend} needs the package {error.name}: "
            f"{install_command('seaweedmq')}"
        ) from error
    if metrics is None:
        from kgw.metrics import Metrics

        metrics = Metrics()
    return seaweedmq_backend(config, clock, metrics)


def _embedded(config: Config, clock: Clock) -> Backend:
    from kgw.backend.embedded.backend import EmbeddedBackend
    from kgw.backend.embedded.options import EmbeddedOptions

    options = EmbeddedOptions(
        cache_bytes=config.cache_bytes,
        min_free_bytes=config.min_free_bytes,
        checkpoint_bytes=config.checkpoint_bytes,
        may_share_directory=config.data_dir_shared,
        **file_limits()._asdict(),
    )
    return EmbeddedBackend(
        config.data_dir, options, server_state=_server_state(config, clock), clock=clock
    )


def _server_state(config: Config, clock: Clock) -> ServerState | None:
    if not config.state_url:
        return None
    from kgw.backend.embedded.state_place import ServerState
    from kgw.state.sql.stores import configured_store

    return ServerState(config.state_url, configured_store(config, clock))


class FileLimits(NamedTuple):
    """Limits for open files of segments, by the reason why the files are open."""

    unsynced_segments: int
    dirty_segments: int
    open_files: int


def file_limits() -> FileLimits:
    """Return the limits for the embedded backend that leave enough descriptors for connections.

    A sixteenth of the process's limit of descriptors, which a server raises to its maximum, is for
    segments of relaxed partitions that wait for a sync. Another sixteenth is for the segments with
    bytes in each journal file. An eighth is for other files that stay open. With a low limit, half
    of the descriptors may be used for files with unsynced bytes.
    """
    fewest_open, fewest_unsynced, fewest_dirty = 512, 256, 128
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        share = _MOST_UNSYNCED
    else:
        share = soft // _DESCRIPTOR_SHARE
        # The other descriptors are for files that are open briefly, for example by a compaction
        # process.
        fewest_open = min(fewest_open, soft // 2)
        fewest_unsynced = min(fewest_unsynced, soft // 4)
        fewest_dirty = min(fewest_dirty, soft // 8)
    share = min(share, _MOST_UNSYNCED)
    return FileLimits(
        max(share, fewest_unsynced), max(share, fewest_dirty), max(2 * share, fewest_open)
    )
