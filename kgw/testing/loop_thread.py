"""An event loop in its own thread, for coroutines that other threads call."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

ResultT = TypeVar("ResultT")
ParamsT = ParamSpec("ParamsT")

_PORTS_KEPT = 1_000
"""Linux assigns about 7,000 ports: with a longer list, 5,000 tests could run out of unused
ports."""


class LoopThread:
    """Runs coroutines for other threads of the same process."""

    def __init__(self) -> None:
        self.ports_used: deque[int] = deque(maxlen=_PORTS_KEPT)
        """The ports of the latest brokers in this thread, which are not used again."""
        self._pid = os.getpid()
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="kgw-broker", daemon=True)
        self._thread.start()

    def call(
        self,
        function: Callable[ParamsT, Coroutine[object, object, ResultT]],
        *args: ParamsT.args,
        **kwargs: ParamsT.kwargs,
    ) -> ResultT:
        """Run a coroutine function in the loop, and return its result or raise its error.

        Raises RuntimeError in a forked process, which does not have the thread; in the thread
        itself; and after `close`.
        """
        self.check()
        waiting = asyncio.run_coroutine_threadsafe(function(*args, **kwargs), self._loop)
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()
            raise

    def check(self) -> None:
        """Raise RuntimeError if coroutines cannot be run."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"the broker runs in process {self._pid}, from which this one was forked: "
                "only clients can use it here"
            )
        if threading.current_thread() is self._thread:
            raise RuntimeError("the broker's event loop cannot wait for itself: this is its thread")
        if self._loop.is_closed():
            raise RuntimeError("the broker's thread has ended")

    def close(self) -> None:
        """End the loop and the thread."""
        if os.getpid() != self._pid or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        # asyncio.Runner also closes the loop and its executor's threads.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        from uvloop import Loop
    except ImportError:
        return asyncio.SelectorEventLoop()
    return Loop()
