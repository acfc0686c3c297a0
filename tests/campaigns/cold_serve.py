"""The gateway without memory of what it has stored: every read asks the volume servers.

`python -m tests.campaigns.cold_serve serve --backend seaweedmq://… --set kgw.cache.bytes=0`
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from kgw.backend.seaweedmq.chunks import ChunkReader
from kgw.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.backend.seaweedmq.entries.layouts import DecodedChunk
    from kgw.backend.seaweedmq.options import SeaweedMqOptions
    from kgw.clock import Clock

COMMAND: Final = (sys.executable, "-m", "tests.campaigns.cold_serve", "serve")
SETTINGS: Final = ("kgw.cache.bytes=0",)
"""What keeps recent batches out of memory; older chunks are kept out here."""

_init = ChunkReader.__init__


def _init_without_memory(
    self: ChunkReader,
    options: SeaweedMqOptions,
    run: Callable[[Callable[[], DecodedChunk]], Awaitable[DecodedChunk]],
    clock: Clock,
) -> None:
    _init(self, options._replace(chunk_cache_bytes=0), run, clock)


if __name__ == "__main__":
    ChunkReader.__init__ = _init_without_memory  # type: ignore[method-assign]
    main(prog_name="kgw")
