"""What becomes of an append: much like a future, at a fraction of its cost."""

from __future__ import annotations

from asyncio import get_running_loop
from typing import TYPE_CHECKING, NamedTuple

from kgw.logs import EventLogger

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Generator

_log = EventLogger(__name__)


class AppendResult(NamedTuple):
    """Where an append landed. It exists only once the topic's durability is kept."""

    base_offset: int
    last_offset: int
    leader_epoch: int


class Append:
    """Batches on their way into a log; told of in the event loop's thread.

    As much of a future as an append needs. There are ten thousand a second, and each callback of a
    future is a turn of the loop; these are called from within `finish`, so they are brief and never
    append; what one raises is logged. It cannot be cancelled. May be awaited where speed does not
    count.
    """

    __slots__ = ("_callbacks", "error", "is_done", "result")

    result: AppendResult
    """Where the batches landed. It counts only once `is_done`, with `error` None."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        """Why they were refused."""
        self.is_done = False
        self._callbacks: list[Callable[[Append], object]] | None = None

    def done(self) -> bool:
        """Whether it is done, for those who wait for things of several kinds."""
        return self.is_done

    def when_done(self, callback: Callable[[Append], object]) -> None:
        """Have something called when this is done, which it must not be yet."""
        if self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def finish(self) -> None:
        """Declare it done, `result` or `error` being set: for the backend, once."""
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                try:
                    callback(self)
                except Exception as error:  # noqa: BLE001 - the appends behind it are waiting
                    _log.error("told of an append, it failed", error=error)

    def __await__(self) -> Generator[object, None, AppendResult]:
        if not self.is_done:
            done: Future[None] = get_running_loop().create_future()
            self.when_done(lambda _: None if done.done() else done.set_result(None))
            yield from done
        if self.error is not None:
            raise self.error
        return self.result


def refused_append(error: Exception) -> Append:
    """Return an append that was not taken."""
    append = Append()
    append.error = error
    append.is_done = True
    return append
