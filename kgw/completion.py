"""The result type of operations that end later: an append, a group's reply, a Fetch's reads."""

from __future__ import annotations

from asyncio import get_running_loop
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from kgw.logs import EventLogger

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Generator

ResultT = TypeVar("ResultT")

_log = EventLogger(__name__)


class AnyCompletion(Protocol):
    """An operation that calls a callback at its end: a `Completion` with any result type."""

    @property
    def is_done(self) -> bool:
        """Whether the operation has ended."""

    def when_done(self, callback: Callable[[object], object]) -> None:
        """Call `callback` in the event loop when the operation ends. It must not have ended yet."""


class Completion(Generic[ResultT]):
    """The future result of an operation, in the event loop's thread; cheaper than a Future.

    The loop schedules each callback of a Future, and there are ten thousand operations a second.
    `finish` calls the callbacks directly, in the order in which they were added. So they must be
    short; an exception that a callback raises is logged. A completion cannot be cancelled. It can
    be awaited, which is slower than a callback.
    """

    __slots__ = ("_callbacks", "error", "is_done", "result")

    result: ResultT
    """Set if `is_done` is true and `error` is None."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        """The reason why the operation has no result; None if it has one or is not done."""
        self.is_done = False
        self._callbacks: list[Callable[[Any], object]] | None = None

    def when_done(self, callback: Callable[[Self], object]) -> None:
        """Call `callback` with this completion when it is done. It must not be done yet."""
        if self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def then(self, callback: Callable[[Self], object]) -> None:
        """Call `callback` with this completion: now if it is done, else when it is done."""
        if self.is_done:
            callback(self)
        else:
            self.when_done(callback)

    def finish(self) -> None:
        """Mark it as done and call the callbacks. Set `result` or `error` before; call it once."""
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                try:
                    callback(self)
                except Exception as error:  # noqa: BLE001 - the other callbacks must be called
                    _log.error("told that something is done, a callback failed", error=error)

    def set_result(self, result: ResultT) -> None:
        """Finish with a result."""
        self.result = result
        self.finish()

    def finish_as(self, other: Completion[ResultT]) -> None:
        """Finish with the result or error of another completion, which is done."""
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


async def until_done(due: AnyCompletion) -> None:
    """Wait until an operation has ended."""
    if not due.is_done:
        await _told(due)


def _told(due: AnyCompletion) -> Future[None]:
    """Return a future that is done when the operation has ended."""
    told: Future[None] = get_running_loop().create_future()
    due.when_done(lambda _: None if told.done() else told.set_result(None))
    return told
