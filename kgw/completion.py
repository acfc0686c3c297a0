"""The one type for what is done later: an append, a reply of a group, the reads of a Fetch."""

from __future__ import annotations

from asyncio import get_running_loop
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from kgw.logs import EventLogger

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Generator

ResultT = TypeVar("ResultT")

_log = EventLogger(__name__)


class Due(Protocol):
    """What can be waited for by a callback: a `Completion`, whatever its result."""

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to wait for."""

    def when_done(self, callback: Callable[[object], object]) -> None:
        """Have something called, in the loop, once it is done, which it must not be yet."""


class Completion(Generic[ResultT]):
    """Something that is done later, in the event loop's thread: much of a future, for less.

    A future's callbacks take a turn of the loop each, and there are ten thousand of these a second.
    Here they are called from within `finish`, in the order in which they came: they are brief, and
    what one raises is logged. It cannot be cancelled, and may be awaited where speed does not
    count.
    """

    __slots__ = ("_callbacks", "error", "is_done", "result")

    result: ResultT
    """It counts only once `is_done`, with `error` None."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        """Why there is no result."""
        self.is_done = False
        self._callbacks: list[Callable[[Any], object]] | None = None

    def when_done(self, callback: Callable[[Self], object]) -> None:
        """Have something called with this when it is done, which it must not be yet."""
        if self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def then(self, callback: Callable[[Self], object]) -> None:
        """Have something called with this: now if it is done, else when it is."""
        if self.is_done:
            callback(self)
        else:
            self.when_done(callback)

    def finish(self) -> None:
        """Declare it done, once, `result` or `error` being set, and tell who waits."""
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                try:
                    callback(self)
                except Exception as error:  # noqa: BLE001 - others wait for this or for the next
                    _log.error("told that something is done, a callback failed", error=error)

    def set_result(self, result: ResultT) -> None:
        """Finish it with a result."""
        self.result = result
        self.finish()

    def finish_as(self, other: Completion[ResultT]) -> None:
        """Finish it with what another one, which is done, came to."""
        self.error = other.error
        if other.error is None:
            self.result = other.result
        self.finish()

    def __await__(self) -> Generator[object, None, ResultT]:
        if not self.is_done:
            yield from _told(self)
        if self.error is not None:
            raise self.error
        return self.result


async def until_done(due: Due) -> None:
    """Wait for what tells by a callback that it is done."""
    if not due.is_done:
        await _told(due)


def _told(due: Due) -> Future[None]:
    """Return a future that is done when something is."""
    told: Future[None] = get_running_loop().create_future()
    due.when_done(lambda _: None if told.done() else told.set_result(None))
    return told
