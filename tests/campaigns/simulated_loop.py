"""An event loop whose time is simulated, and which waits for nothing: each seed is one run."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence


class SimulatedLoop(asyncio.BaseEventLoop):
    """Callbacks and timers in order; no sockets, no signals, no other threads.

    What is raised by a callback or a task is not swallowed when it is a KeyboardInterrupt.
    """

    def __init__(self, late_s: float = 0.0) -> None:
        """A control has timers that come too late."""
        super().__init__()
        self._late_s = late_s
        self.now_s = 0.0
        """Settable: what runs in the loop may take its time."""
        self._selector = self
        self.set_exception_handler(lambda *_: None)

    def time(self) -> float:
        return self.now_s

    def run_until(self, until_s: float) -> None:
        """Run what is due up to a time, each timer exactly when it is due."""
        while (due_s := self._due_s()) is not None and due_s <= until_s:
            self.now_s = max(self.now_s, due_s)
            self.call_soon(self.stop)
            self.run_forever()
        self.now_s = max(self.now_s, until_s)

    def forget_all(self) -> None:
        """Run nothing of what is due: whose process it was has been killed."""
        for task in asyncio.all_tasks(self):
            coroutine = cast("Coroutine[object, object, object]", task.get_coro())
            # Python warns of one that has not begun.
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]

    def __del__(self) -> None:
        """It holds nothing that must be given back."""

    def _due_s(self) -> float | None:
        """Return when something is to be run next."""
        if self._ready:  # type: ignore[attr-defined]
            return self.now_s
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        due_s = min((timer.when() for timer in timers if not timer.cancelled()), default=None)
        return None if due_s is None else due_s + self._late_s

    # --- what the base class asks of a loop ------------------------------------------------------

    def select(self, timeout: float | None) -> Sequence[object]:
        """Let the time pass until the next timer."""
        if timeout is None:
            raise RuntimeError("what is waited for never comes")
        self.now_s += timeout
        return ()

    def _process_events(self, _events: Sequence[object]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""
