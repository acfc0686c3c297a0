"""The objects that all partitions of a gateway share: filer, threads, caches, problems."""

from __future__ import annotations

from asyncio import Lock, get_running_loop
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from kgw.backend.hot_cache import HotCache
from kgw.backend.seaweedmq.byte_budget import ByteBudget
from kgw.backend.seaweedmq.chain import TroubledChains
from kgw.backend.seaweedmq.chunks import ChunkReader
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
"""Number of threads, which verify and rewrite batches. Waiting is done in the event loop."""

_log = EventLogger(__name__)


class FreshMemory:
    """Allocates memory for responses anew each time."""

    def take(self, size_bytes: int) -> memoryview:
        """Return new memory of this size."""
        return memoryview(bytearray(size_bytes))


class Shell:
    """The connection of one gateway to its SeaweedFS. Used in the event loop alone."""

    def __init__(
        self,
        filer: Filer,
        clock: Clock,
        options: SeaweedMqOptions,
        on_lost: Callable[[], None] = lambda: None,
        on_much_to_replay: Callable[[], None] = lambda: None,
    ) -> None:
        """Connect the filer, the options and the callbacks.

        `on_lost` is called if another gateway has written to a partition. `on_much_to_replay` is
        called while `to_replay_bytes` is so large that the next start would take long.
        """
        self.on_lost = on_lost
        self._on_much_to_replay = on_much_to_replay
        self.to_replay_bytes = 0
        """Bytes appended or replayed, over all partitions, since snapshots were last requested."""
        self.filer = filer
        self.clock = clock
        self.options = options
        self.cache = HotCache(options.cache_bytes)
        self.chunks = ChunkReader(options, self.run, clock)
        self.joining = Lock()
        """Held while a partition joins files. Only one partition does so at a time, because the
        files are in memory."""
        self.answer_memory = FreshMemory()
        self.append_room = ByteBudget(options.waiting_bytes)
        """The memory budget of appends that SeaweedFS has not stored yet."""
        self.troubled_chains = TroubledChains()
        self._reports = Reports()
        self.refusals = Refusals(clock.monotonic_s)
        self._threads = ThreadPoolExecutor(_THREADS, "kgw-seaweedmq")
        self._loaded: dict[int, tuple[Chain, ChainFile]] = {}

    @property
    def too_much_waits(self) -> str:
        """The error text for an append that exceeds the budget."""
        return (
            f"{self.append_room.used_bytes} bytes of all partitions wait for SeaweedFS; no more is "
            "taken (kgw.seaweedmq.waiting.bytes)"
        )

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Run a function in a thread."""
        return await get_running_loop().run_in_executor(self._threads, work)

    def add_to_replay(self, size_bytes: int) -> None:
        """Count bytes that a start after a kill would replay."""
        self.to_replay_bytes += size_bytes
        if self.to_replay_bytes >= self.options.checkpoint_bytes:
            self._on_much_to_replay()

    async def load(self, chain: Chain, file: ChainFile) -> None:
        """Load a file's list of chunks, and drop the least recently used list."""
        await chain.load(file)
        # Dictionaries keep their order of insertion, so the last item was used last.
        self._loaded.pop(id(file), None)
        self._loaded[id(file)] = (chain, file)
        while len(self._loaded) > self.options.loaded_files:
            other_chain, other = self._loaded.pop(next(iter(self._loaded)))
            other_chain.unload(other)

    @property
    def problems(self) -> list[str]:
        """The texts of the reported problems."""
        return texts(self._reports.problems)

    @property
    def found(self) -> tuple[Problem, ...]:
        """The reported problems, and the reasons why requests were refused lately."""
        return (*self.refusals.problems, *self._reports.problems)

    def report(
        self, problem: str, reason: Reason = STORAGE, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """Report a problem to the operator once, and keep it until `is_over` returns True."""
        if self._reports.add(reason, problem, is_over):
            _log.warning("storage problem", problem=problem)

    async def aclose(self) -> None:
        """Stop the threads, and cancel the fetches for readers."""
        await self.chunks.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)
