"""What logs and runs of compaction ask of the backend that has opened them.

`EmbeddedBackend` describes each of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from kgw.backend.embedded.files.read_buffers import ReadBuffers
    from kgw.backend.embedded.read.cache import CachedTail
    from kgw.backend.embedded.read.reading import Reader
    from kgw.backend.embedded.write.append import Append

_Result = TypeVar("_Result")


class Shell(Protocol):
    """The event loop's side of a data directory."""

    read_buffers: ReadBuffers
    reader: Reader

    def take(self, append: Append) -> None: ...

    def forget_cached(self, tail: CachedTail, offset: int) -> None: ...

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None: ...

    def reschedule_flushes(self) -> None: ...

    async def checkpoint(self) -> None: ...

    async def run_in_flusher(self, function: Callable[[], _Result]) -> _Result: ...

    async def run_between_checkpoints(self, function: Callable[[], _Result]) -> _Result: ...

    async def run_in_io(self, function: Callable[[], _Result]) -> _Result: ...

    async def write_in_io(self, function: Callable[[], _Result]) -> _Result: ...

    async def note(self, function: Callable[[], _Result]) -> _Result: ...

    async def maintain(self, function: Callable[[], _Result]) -> _Result: ...

    async def run_until_closed(self, work: Coroutine[None, None, _Result]) -> _Result: ...
