"""What campaigns share: a process of Spark that is killed, and records that come all the time."""

from __future__ import annotations

import asyncio
import queue
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Self

from kgw.client import NewRecord, Producer
from kgw.pipeline.wire import WireClient
from tests import patience
from tests.signals import send_to_group

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PARTITIONS = 3


class Killable:
    """A Python program in a process group of its own, with its Java runtime.

    Spark's Python workers belong to the same session of the kernel, and to a group of their own:
    they end, a moment later, because the Java runtime is no more.

    It says in a line of its own whenever something has ended.
    """

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._said: list[bytes] = []
        self._lines: queue.Queue[bool] = queue.Queue()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Of the program itself; what it starts belongs to the kernel's session of this number."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, by itself or killed."""
        return self._process.poll() is not None

    @property
    def output(self) -> bytes:
        """What it has said so far; all of it once it was killed, or has ended and was closed."""
        return b"".join(self._said)

    def interrupt(self) -> None:
        """Press Ctrl-C: program and Java runtime are told."""
        send_to_group(self._process.pid, signal.SIGINT)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line)
            if line.strip():
                self._lines.put(True)
        self._lines.put(False)

    def wait_for_line(self, timeout_s: float = 90) -> bool:
        """Return when one more line has come; False where the program has ended."""
        return self._lines.get(timeout=patience.seconds(timeout_s))

    def result(self, timeout_s: float) -> int:
        """Return the exit code of a program that ends by itself."""
        return self._process.wait(patience.seconds(timeout_s))

    def kill(self) -> None:
        """End driver and Java runtime without a word to anybody."""
        send_to_group(self._process.pid, signal.SIGKILL)
        self._process.wait(patience.seconds(30))
        self._listener.join(patience.seconds(30))
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


class Producing:
    """Numbered records, produced all the time in a thread."""

    def __init__(self, address: str, topic: str) -> None:
        self._address = address
        self._topic = topic
        self._ends = threading.Event()
        self.counts = [0] * PARTITIONS
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(patience.seconds(120))
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with WireClient(self._address, retry_s=60.0) as wire:
                wire.call(self._produce(wire))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._failure = error

    async def _produce(self, wire: WireClient) -> None:
        async with Producer(wire.client) as producer:
            while not self._ends.is_set():
                for partition in range(PARTITIONS):
                    first = self.counts[partition]
                    records = [
                        NewRecord(b"%d" % one, b"%d-%d" % (partition, one), 0)
                        for one in range(first, first + 50)
                    ]
                    await (await producer.send(self._topic, partition, records))
                    self.counts[partition] += len(records)
                await asyncio.sleep(0.1)
