"""How busy the machine is with what is no part of a campaign: times taken then say less."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from kgw.testing.process import GatewayProcess


def _busy_s() -> float:
    """Return the processor time that all processes have used, and what the host took away."""
    user, nice, system, _idle, _wait, irq, soft_irq, steal, *_ = (
        int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    ticks = user + nice + system + irq + soft_irq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


class Others:
    """What processes other than this one and a gateway use, from `__enter__` to `__exit__`."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self._began = (0.0, 0.0, 0.0)
        self.cores = 0.0
        """How many cores they kept busy."""

    def _now(self) -> tuple[float, float, float]:
        own_s = time.process_time() + self._gateway.usage().cpu_s
        return time.monotonic(), _busy_s(), own_s

    def __enter__(self) -> Self:
        self._began = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        elapsed_s, busy_s, own_s = (
            now - before for now, before in zip(self._now(), self._began, strict=True)
        )
        self.cores = max(0.0, busy_s - own_s) / elapsed_s

    def __str__(self) -> str:
        return f"other processes kept {self.cores:.1f} of {os.cpu_count()} cores busy"


class RunQueueWaits:
    """For how long the threads of this process could run and had no processor, by the kernel.

    Each thread is followed by itself: what an ended one had waited is in no sum any more, and the
    difference of two sums would take it from what the others waited.
    """

    def __init__(self, threads: Path = Path("/proc/self/task")) -> None:
        self._threads = threads
        self._waited_ns: dict[str, int] = {}
        self.take_s()

    def take_s(self) -> float:
        """Return what all threads have waited since this was asked last."""
        before, self._waited_ns = self._waited_ns, {}
        added_ns = 0
        for thread in self._threads.iterdir():
            try:
                waited_ns = int((thread / "schedstat").read_text().split()[1])
            except OSError:
                continue  # it has ended
            self._waited_ns[thread.name] = waited_ns
            known_ns = before.get(thread.name, 0)
            # Less than before is another thread, with the id of one that has ended.
            added_ns += waited_ns - known_ns if waited_ns >= known_ns else waited_ns
        return added_ns / 1e9


def waited_for_processors_s() -> float:
    """Return for how long anything on the machine has waited for a processor, by the kernel."""
    some = Path("/proc/pressure/cpu").read_text().split("\n", 1)[0]
    return int(some.rsplit("total=", 1)[1]) / 1e6
