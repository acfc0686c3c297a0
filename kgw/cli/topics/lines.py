"""Reads records from a file or pipe without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from functools import partial
from typing import IO, TYPE_CHECKING

from kgw.cli.shared.formats import InputRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.cli.shared.formats import InputFormat

# Lines are passed to the event loop in bundles: passing one costs more than parsing it.
_BUNDLE_LINES = 500
_BUNDLES_AHEAD = 20
_CHUNK_BYTES = 256 << 10

_Handed = list[InputRecord] | Exception | None


class InputLines:
    """Reads records in a thread of its own, since reading input may block.

    `advance` is called in that thread with the number of bytes that were read.
    """

    def __init__(
        self, stream: IO[bytes], input_format: InputFormat, advance: Callable[[int], None]
    ) -> None:
        """Start the thread. Needs a running event loop."""
        self._stream = stream
        self._format = input_format
        self._advance = advance
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[_Handed] = asyncio.Queue()
        self._room = threading.Semaphore(_BUNDLES_AHEAD)
        # A daemon thread: when the command is interrupted, it may block in a read for ever.
        threading.Thread(target=self._read, name="input", daemon=True).start()

    async def next(self, timeout_s: float | None) -> list[InputRecord] | None:
        """Return the next records; an empty list after the timeout, None at the end of the input.

        Raises CommandError for an invalid line, and OSError if the input cannot be read.
        """
        try:
            async with asyncio.timeout(timeout_s):
                bundle = await self._queue.get()
        except TimeoutError:
            return []
        self._room.release()
        if isinstance(bundle, Exception):
            raise bundle
        return bundle

    def _read(self) -> None:
        try:
            for bundle in self._bundles():
                self._hand_over(bundle)
        except Exception as error:  # noqa: BLE001 - it is raised in the loop's thread instead
            self._hand_over(error)
        else:
            self._hand_over(None)

    def _hand_over(self, bundle: _Handed) -> None:
        self._room.acquire()
        # After an interruption the loop is closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._queue.put_nowait, bundle)

    def _bundles(self) -> Iterator[list[InputRecord]]:
        if self._format.format == "raw":
            content = b"".join(iter(_reader(self._stream), b""))
            yield [InputRecord(None, None, content, None, self._format.headers)]
            return
        number = 0
        for lines in _bundled_lines(self._stream):
            records = []
            for line in lines:
                number += 1
                # Skip blank lines between JSON documents; in text, a blank line is an empty record.
                if line or self._format.format != "json":
                    try:
                        records.append(self._format.read_line(line, number))
                    except Exception:
                        # Records before the invalid line are still stored.
                        yield records
                        raise
            yield records
            self._advance(sum(map(len, lines)) + len(lines))


def _bundled_lines(stream: IO[bytes]) -> Iterator[list[bytes]]:
    """Yield lists of lines without line ends, one list for each read: slow input is not delayed."""
    read = _reader(stream)
    rest = b""
    while chunk := read():
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        for start in range(0, len(lines), _BUNDLE_LINES):
            yield lines[start : start + _BUNDLE_LINES]
    if rest:
        yield [rest]


def _reader(stream: IO[bytes]) -> Callable[[], bytes]:
    """Return a function that waits for some bytes and returns them, or b"" at the end.

    The function bypasses Python's buffer: a blocked thread that holds the buffer's lock would keep
    the interpreter from ending after Ctrl-C.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return partial(getattr(stream, "read1", stream.read), _CHUNK_BYTES)
    return partial(os.read, descriptor, _CHUNK_BYTES)
