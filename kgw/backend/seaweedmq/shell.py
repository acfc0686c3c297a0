"""What the partitions of a gateway share: the filer, threads, caches, a place for complaints."""

from __future__ import annotations

from asyncio import Lock, get_running_loop
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from kgw.backend.hot_cache import HotCache
from kgw.backend.seaweedmq.chain import TroubledChains
from kgw.backend.seaweedmq.chunks import ChunkReader
from kgw.backend.seaweedmq.room import Room
from kgw.logs import EventLogger
from kgw.problems import STORAGE, Refusals, Reports, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.seaweedmq.chain import Chain, ChainFile
    from kgw.backend.seaweedmq.filer import Filer
    from kgw.backend.seaweedmq.options import SeaweedMqOptions
    from kgw.clock import Clock
    from kgw.problems import Problem, Reason

_Result = TypeVar("_Result")

_THREADS: Final = 2
"""They verify and rewrite, which takes a processor; waiting is done in the loop."""

_log = EventLogger(__name__)


class FreshMemory:
    """Room for answers, from the system each time."""

    def take(self, size_bytes: int) -> memoryview:
        """Return room for so many bytes."""
        return memoryview(bytearray(size_bytes))


class Shell:
    """One gateway's way to its SeaweedFS. Used in the event loop alone."""

    def __init__(
        self,
        filer: Filer,
        clock: Clock,
        options: SeaweedMqOptions,
        on_lost: Callable[[], None] = lambda: None,
        on_much_to_replay: Callable[[], None] = lambda: None,
    ) -> None:
        """Say what is called, and when.

        `on_lost` when another gateway turns out to write a partition, `on_much_to_replay` when the
        next start would read much again, until `to_replay_bytes` is made less.
        """
        self.on_lost = on_lost
        self._on_much_to_replay = on_much_to_replay
        self.to_replay_bytes = 0
        """Appended or replayed, over all partitions, since snapshots were last asked for."""
        self.filer = filer
        self.clock = clock
        self.options = options
        self.cache = HotCache(options.cache_bytes)
        self.chunks = ChunkReader(options, self.run, clock)
        self.joining = Lock()
        """One partition's files are joined at a time: they are in memory meanwhile."""
        self.answer_memory = FreshMemory()
        self.append_room = Room(options.waiting_bytes)
        """For appends that SeaweedFS has not taken yet."""
        self.troubled_chains = TroubledChains()
        self._reports = Reports()
        self.refusals = Refusals(clock.monotonic_s)
        self._threads = ThreadPoolExecutor(_THREADS, "kgw-seaweedmq")
        self._loaded: dict[int, tuple[Chain, ChainFile]] = {}

    @property
    def too_much_waits(self) -> str:
        """Why no append is taken when there is no room for it."""
        return (
            f"{self.append_room.used_bytes} bytes of all partitions wait for SeaweedFS; no more is "
            "taken (kgw.seaweedmq.waiting.bytes)"
        )

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Have something done in a thread."""
        return await get_running_loop().run_in_executor(self._threads, work)

    def add_to_replay(self, size_bytes: int) -> None:
        """Count what a start after a kill would read again."""
        self.to_replay_bytes += size_bytes
        if self.to_replay_bytes >= self.options.checkpoint_bytes:
            self._on_much_to_replay()

    async def load(self, chain: Chain, file: ChainFile) -> None:
        """Have a file's list of chunks at hand, and that of the one used longest ago no more."""
        await chain.load(file)
        # Dictionaries keep their order of insertion: the last one in was used last.
        self._loaded.pop(id(file), None)
        self._loaded[id(file)] = (chain, file)
        while len(self._loaded) > self.options.loaded_files:
            other_chain, other = self._loaded.pop(next(iter(self._loaded)))
            other_chain.unload(other)

    @property
    def problems(self) -> list[str]:
        """The sentences of what was reported."""
        return texts(self._reports.problems)

    @property
    def found(self) -> tuple[Problem, ...]:
        """What was reported, and what was refused lately."""
        return (*self.refusals.problems, *self._reports.problems)

    def report(
        self, problem: str, reason: Reason = STORAGE, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """Tell whoever looks after the gateway, once, and until it `is_over`."""
        if self._reports.add(reason, problem, is_over):
            _log.warning("storage problem", problem=problem)

    async def aclose(self) -> None:
        """Let go of threads and of what is on its way to readers."""
        await self.chunks.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)
