"""Prints the ways of requests through kgw as a traced run takes them, for docs/architecture.md.

A gateway with the embedded backend, strict, serves in this process. Of a warm request, every
function is printed that is called from another folder of `kgw/` than its own, in order, indented
below the function that led to it, for each thread. A request is traced some times, since a timer or
another thread may come in between: every way that was seen is printed, the most common one first.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.micro.calls import Wire, kinds  # noqa: E402 - found by the line above
from kgw.backend.registry import open_backend  # noqa: E402
from kgw.clock import SystemClock  # noqa: E402
from kgw.config import Config  # noqa: E402
from kgw.config.listeners import Listener  # noqa: E402
from kgw.gateway import Gateway  # noqa: E402
from kgw.handlers.dispatch import Dispatcher  # noqa: E402
from kgw.server.limits import limits_from  # noqa: E402
from kgw.server.server import Server  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType, FrameType

PACKAGE = f"{ROOT}/kgw/"
WAYS = {
    "Produce": "produce",
    "Fetch": "fetch, cached",
    "JoinGroup": "join",
    "OffsetCommit": "commit",
}
# What everybody uses on the way says nothing about it.
EVERYWHERE = frozenset(("clock.py", "metrics.py", "turns.py"))
WARM = 20
TRACED = 25
SETTLING_S = 0.01


class Step(NamedTuple):
    """A function that was called: how many folders deep, its file, its name."""

    depth: int
    path: str
    name: str


Way = tuple[tuple[Step, ...], ...]


class Trace:
    """Notes calls between folders of kgw, in this thread and those that are started after it."""

    def __init__(self) -> None:
        self.is_on = False
        self._steps: dict[int, list[Step]] = {}
        self._beginnings: dict[CodeType, int] = {}

    def install(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    @staticmethod
    def remove() -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def take(self) -> Way:
        """Return what was noted since the last time: one list for each thread."""
        steps, self._steps = self._steps, {}
        return tuple(tuple(_without_repeats(thread)) for thread in steps.values())

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        beginning = self._beginnings.setdefault(code, frame.f_lasti)
        if not self.is_on:
            return
        path = code.co_filename[len(PACKAGE) :]
        folders = [Path(path).parent, *_folders_of_callers(frame)]
        is_called = len(folders) > 1
        is_resumed = frame.f_lasti > beginning
        if path in EVERYWHERE or (is_called and (is_resumed or folders[0] == folders[1])):
            return
        depth = sum(callee != caller for callee, caller in pairwise(folders))
        self._steps.setdefault(threading.get_ident(), []).append(
            Step(depth, path, code.co_qualname)
        )


def _folders_of_callers(frame: FrameType) -> Iterator[Path]:
    caller = frame.f_back
    while caller is not None:
        name = caller.f_code.co_filename
        if name.startswith(PACKAGE) and name[len(PACKAGE) :] not in EVERYWHERE:
            yield Path(name[len(PACKAGE) :]).parent
        caller = caller.f_back


def _without_repeats(steps: Iterable[Step]) -> Iterator[Step]:
    last = None
    for step in steps:
        if step != last:
            yield step
        last = step


async def trace_ways(directory: Path, trace: Trace) -> dict[str, list[Way]]:
    """Return the ways of each request that were seen, the most common one first."""
    config = Config.of(log_dirs=str(directory), lag_interval_ms=0)
    clock = SystemClock()
    gateway = Gateway(config, open_backend(config, clock), clock)
    await gateway.start()
    found: dict[str, list[Way]] = {}
    try:
        gateway.placement.advertise({"PLAINTEXT": Listener("PLAINTEXT", "127.0.0.1", 9092)})
        server = Server(Dispatcher(gateway), limits_from(config), clock, gateway.metrics)
        wire = Wire(server)
        requests = await kinds(gateway, wire)
        for api, kind in WAYS.items():
            seen: Counter[Way] = Counter()
            for number in range(WARM + TRACED):
                await requests[kind].before(wire)
                frame = requests[kind].frame()
                await asyncio.sleep(SETTLING_S)
                trace.is_on = number >= WARM
                await wire.ask(frame)
                await asyncio.sleep(SETTLING_S)
                trace.is_on = False
                seen[trace.take()] += 1
            del seen[()]  # of those that were not traced
            found[api] = [way for way, _ in seen.most_common()]
        wire.lose()
    finally:
        await gateway.aclose()
    return found


def text_of(way: Way) -> str:
    """Return a way as lines: the name of each function, and its file in a column of its own."""
    threads = []
    for thread in way:
        names = ["  " * step.depth + step.name for step in thread]
        width = max(map(len, names))
        files = [step.path for step in thread]
        lines = zip(names, files, strict=True)
        threads.append("".join(f"{name:<{width}}  {path}\n" for name, path in lines))
    return "in a thread:\n".join(threads)


def main() -> None:
    """Print a JSON object: the texts of each API's ways."""
    trace = Trace()
    trace.install()
    try:
        with tempfile.TemporaryDirectory(prefix="kgw-ways-") as directory:
            ways = asyncio.run(trace_ways(Path(directory), trace))
    finally:
        trace.remove()
    print(json.dumps({api: list(map(text_of, seen)) for api, seen in ways.items()}))


if __name__ == "__main__":
    main()
