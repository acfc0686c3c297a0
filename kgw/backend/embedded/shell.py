"""The interface of the embedded backend for its logs, the creation of logs and compaction runs.

`EmbeddedBackend` documents the members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from kgw.backend.embedded.files.read_buffers import ReadBuffers
    from kgw.backend.embedded.read.reading import Reader
    from kgw.backend.embedded.threads import Threads
    from kgw.backend.embedded.write.flush_timer import FlushTimer

_Result = TypeVar("_Result")


class EmbeddedShell(Protocol):
    """The parts of the backend that logs use from the event loop."""

    threads: Threads
    read_buffers: ReadBuffers
    reader: Reader
    flush_timer: FlushTimer

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None: ...

    async def checkpoint(self) -> None: ...

    async def run_until_closed(self, work: Coroutine[None, None, _Result]) -> _Result: ...
