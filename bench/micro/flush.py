"""What one group of appends costs, by the way in which it is made durable.

Each round appends `--bytes` to each of N files and makes all of it durable: one fdatasync after the
other, several threads at it, one syncfs, one sync of a pre-written journal, or the store itself as
it decides. Times a round, in milliseconds. What docs/decisions/0002-journal.md rests on.

    scripts/bench --micro flush [--rounds N] [--bytes B ...] [--files N ...] [--directory DIR]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.backend.base import LogSettings
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.store import Store
from kgw.testing.batches import make_batch
from kgw.types import PartitionKey, TopicId, TopicName

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE_BYTES = 4096
JOURNAL_BYTES = 64 << 20
THREADS = 16


class Files:
    """N files to append to, and a pre-written journal."""

    def __init__(self, directory: Path, count: int, size_bytes: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        self.data = os.urandom(size_bytes)
        self.descriptors = [os.open(directory / f"file-{n}", flags) for n in range(count)]
        self.journal = os.open(directory / "journal", flags)
        os.pwrite(self.journal, bytes(JOURNAL_BYTES), 0)
        os.fsync(self.journal)
        self._journal_position = 0
        self._executor = ThreadPoolExecutor(THREADS)
        self._libc = ctypes.CDLL(None, use_errno=True)

    def write(self) -> None:
        for descriptor in self.descriptors:
            os.write(descriptor, self.data)

    def sync_each(self) -> None:
        self.write()
        for descriptor in self.descriptors:
            os.fdatasync(descriptor)

    def sync_in_threads(self) -> None:
        self.write()
        list(self._executor.map(os.fdatasync, self.descriptors))

    def sync_file_system(self) -> None:
        self.write()
        if self._libc.syncfs(self.journal):
            raise OSError(ctypes.get_errno(), "syncfs")

    def sync_journal(self) -> None:
        self.write()
        size_bytes = len(self.descriptors) * len(self.data)
        padding = -size_bytes % PAGE_BYTES
        if self._journal_position + size_bytes + padding > JOURNAL_BYTES:
            self._journal_position = 0
        buffers = [self.data] * len(self.descriptors) + [bytes(padding)]
        for start in range(0, len(buffers), 1000):
            piece = buffers[start : start + 1000]
            os.pwritev(self.journal, piece, self._journal_position)
            self._journal_position += sum(map(len, piece))
        os.fdatasync(self.journal)

    def close(self) -> None:
        self._executor.shutdown()
        for descriptor in [*self.descriptors, self.journal]:
            os.close(descriptor)


def store_round(directory: Path, count: int, size_bytes: int) -> tuple[Store, Callable[[], None]]:
    """Return a store and a function that appends one batch to each of N partitions of it."""
    store = Store(RealFs(), str(directory), EmbeddedOptions(min_free_bytes=0))
    store.open()
    store.prepare_journal()
    topic_id = TopicId(os.urandom(16))
    topic = TopicName("bench")
    logs = [
        store.create_log(PartitionKey(topic_id, number), topic, LogSettings())
        for number in range(count)
    ]
    value = os.urandom(max(size_bytes - 70, 1))

    def one_round() -> None:
        for log in logs:
            store.writes.submit(log, [make_batch([value])])
        group = store.writes.take_group()
        store.writes.write_group(group)
        store.writes.complete_group(group)
        for append in group:
            if append.error is not None:
                raise append.error

    return store, one_round


def measure(one_round: Callable[[], None], rounds: int) -> dict[str, float]:
    times_ms: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        one_round()
        times_ms.append((time.perf_counter() - began) * 1e3)
    times_ms.sort()
    return {
        "p50_ms": round(times_ms[len(times_ms) // 2], 3),
        "p99_ms": round(times_ms[min(len(times_ms) * 99 // 100, len(times_ms) - 1)], 3),
        "max_ms": round(times_ms[-1], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--bytes", type=int, nargs="+", default=[200, 16 << 10, 256 << 10])
    parser.add_argument("--files", type=int, nargs="+", default=[1, 4, 16, 100])
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="bench-flush-", dir=arguments.directory))
    try:
        for size_bytes in arguments.bytes:
            for count in arguments.files:
                # The same bytes for each way, and no more than a gigabyte in all.
                rounds = max(min(arguments.rounds, (200 << 20) // (size_bytes * count)), 10)
                result: dict[str, object] = {"bytes": size_bytes, "files": count, "rounds": rounds}
                files = Files(base, count, size_bytes)
                for name in ("sync_each", "sync_in_threads", "sync_file_system", "sync_journal"):
                    result[name] = measure(getattr(files, name), rounds)
                    os.sync()
                files.close()
                directory = base / "store"
                directory.mkdir()
                store, one_round = store_round(directory, count, size_bytes)
                result["store"] = measure(one_round, rounds)
                store.abandon()
                shutil.rmtree(directory)
                print(json.dumps(result), flush=True)
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
