"""What a request to a group is answered with, perhaps later: a future at a fraction of its cost."""

from __future__ import annotations

from asyncio import get_running_loop
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Generator

    from kgw.errors import ErrorCode

ResultT = TypeVar("ResultT")


class Reply(Generic[ResultT]):
    """The answer to one request, given in the event loop's thread; it is never an exception.

    A future would take a turn of the loop to tell of it, and asks which loop runs when it is made:
    a system call. Who waits is called from within `set_result`, so it is brief, never raises and
    asks groups for nothing. May be awaited where speed does not count.
    """

    __slots__ = ("_callbacks", "_is_done", "_refused", "_result")

    _result: ResultT

    def __init__(self, refused: Callable[[ErrorCode], ResultT]) -> None:
        """Take what makes the answer of an error code."""
        self._refused = refused
        self._is_done = False
        self._callbacks: list[Callable[[object], object]] | None = None

    def done(self) -> bool:
        """Whether there is a result."""
        return self._is_done

    def result(self) -> ResultT:
        """Return it, once this is done."""
        return self._result

    def refuse(self, error: ErrorCode) -> None:
        """Answer that nothing was done, and why."""
        self.set_result(self._refused(error))

    def set_result(self, result: ResultT) -> None:
        """Answer, once, and tell who waits."""
        self._result = result
        self._is_done = True
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                callback(self)

    def when_done(self, callback: Callable[[object], object]) -> None:
        """Have something called when this is done, which it must not be yet."""
        if self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[object, None, ResultT]:
        if not self._is_done:
            told: Future[None] = get_running_loop().create_future()
            self.when_done(lambda _: None if told.done() else told.set_result(None))
            yield from told
        return self._result
