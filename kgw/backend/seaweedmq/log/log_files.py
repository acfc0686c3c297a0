"""Changes one partition's files and the detail in its leader entry, one change at a time."""

from __future__ import annotations

from asyncio import Lock, ensure_future, shield
from contextlib import suppress
from typing import TYPE_CHECKING

from kgw.backend.seaweedmq.chain import Payload
from kgw.backend.seaweedmq.entries.layouts import Layout
from kgw.backend.seaweedmq.log.reading import FilesChangedError, LogReader
from kgw.errors import CorruptionError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from kgw.backend.base import LogSettings
    from kgw.backend.seaweedmq.chain import Chain, ChainFile
    from kgw.backend.seaweedmq.entries.layouts import Encoded
    from kgw.backend.seaweedmq.log.detail import PartitionDetail
    from kgw.backend.seaweedmq.shell import Shell
    from kgw.types import PartitionKey


def payload_of(encoded: Encoded) -> Payload:
    """Return the payload of encoded batches for a chain."""
    return Payload(
        encoded.pieces,
        encoded.size_bytes,
        encoded.batches[0].base_offset,
        encoded.batches[-1].next_offset,
        encoded.largest_timestamp_ms,
        encoded.batch_bytes,
    )


class LogFiles:
    """The chain of a partition, of which this gateway is the writer."""

    def __init__(
        self,
        key: PartitionKey,
        chain: Chain,
        detail: PartitionDetail,
        settings: LogSettings,
        shell: Shell,
    ) -> None:
        self.key = key
        self.chain = chain
        self.detail = detail
        self.settings = settings
        self.shell = shell
        self.reader = LogReader(key, chain, shell)
        self._changing = Lock()
        self._held_end = 0

    @property
    def layout(self) -> Layout:
        """The layout of batches that are written now."""
        return Layout(self.settings.layout or self.shell.options.layout)

    @property
    def sealed(self) -> Sequence[ChainFile]:
        """All files but the active one."""
        return self.chain.files[:-1]

    @property
    def held_end(self) -> int:
        """Files that begin below this offset are held by a run, and are not joined."""
        return self._held_end

    async def hold(self, is_source: Callable[[ChainFile], bool]) -> list[ChainFile]:
        """Return the sealed files for a run, and hold them: they are not joined until `release`."""
        async with self._changing:
            sources = [file for file in self.sealed if is_source(file)]
            if sources:
                self._held_end = sources[-1].end_offset
            return sources

    def release(self) -> None:
        """Let files be joined again."""
        self._held_end = 0

    async def save(self, change: Callable[[PartitionDetail], PartitionDetail]) -> None:
        """Store another detail, durably. Raises StorageError."""

        async def save() -> None:
            detail = change(self.detail)
            if detail != self.detail:
                await self.chain.save_detail(detail.encode())
                self.detail = detail

        await self._change(save)

    async def drop_before(self, offset: int, then: Callable[[int], object]) -> None:
        """Move the log start to `offset`, and remove the files before it.

        `then` is called with the new log start, even if the caller was cancelled. Raises
        StorageError.
        """

        async def drop() -> None:
            log_start_offset = self.detail.log_start_offset
            count = sum(1 for file in self.chain.files[1:] if file.base_offset <= offset)
            if offset < log_start_offset or (offset == log_start_offset and not count):
                return
            detail = self.detail.raised(offset)
            await self.chain.drop_files(count, detail.encode())
            self.detail = detail
            then(offset)

        await self._change(drop)

    async def replace(
        self,
        sources: Sequence[ChainFile],
        payloads: Sequence[Payload],
        change: Callable[[PartitionDetail], PartitionDetail] = lambda detail: detail,
        *,
        is_join: bool = False,
    ) -> None:
        """Replace neighbouring sealed files by one file with these payloads.

        The new file is read back before the old files are removed. A join fails if a run holds one
        of the files. Raises FilesChangedError, StorageError.
        """
        chain = self.chain

        async def replace() -> None:
            first = self._place_of(sources)
            if is_join and sources[0].base_offset < self._held_end:
                raise FilesChangedError
            detail = change(self.detail)
            await chain.replace_files(first, len(sources), [written], detail.encode())
            self.detail = detail

        written = await chain.write_file(payloads, sources[0].begun_ms)
        try:
            await self._compare(written, payloads)
            await self._change(replace)
        except BaseException:
            # If the file is listed after all, this writer has lost the chain.
            with suppress(StorageError):
                await chain.discard_files([written])
            raise

    async def _change(self, change: Callable[[], Coroutine[None, None, None]]) -> None:
        """Make and record a change, one at a time, even if the caller is cancelled.

        The chain finishes the change anyway, and the next change must be based on its result.
        """

        async def make() -> None:
            try:
                await change()
            finally:
                self._changing.release()

        await self._changing.acquire()
        await shield(ensure_future(make()))

    async def _compare(self, written: ChainFile, payloads: Sequence[Payload]) -> None:
        """Raise CorruptionError unless a file holds these payloads, one after the other."""
        pieces = (piece for payload in payloads for piece in payload.pieces if len(piece))
        for number in range(len(written.chunks)):
            data = memoryview(await self.chain.read(written, number))
            while data:
                # A chunk holds whole payloads, and so whole buffers.
                piece = next(pieces, b"")
                if not len(piece) or data[: len(piece)] != piece:
                    raise CorruptionError(
                        f"{self.chain.directory}/{written.name} cannot be read as it was written"
                    )
                data = data[len(piece) :]

    def _place_of(self, sources: Sequence[ChainFile]) -> int:
        files = self.chain.files
        for number in range(len(files) - len(sources)):
            if all(files[number + at] is source for at, source in enumerate(sources)):
                return number
        raise FilesChangedError
