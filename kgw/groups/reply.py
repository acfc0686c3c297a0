"""What a request to a group is answered with, perhaps later."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kgw.completion import Completion

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.errors import ErrorCode

ResultT = TypeVar("ResultT")


class Reply(Completion[ResultT]):
    """The answer to one request; it is never an exception."""

    __slots__ = ("_refused",)

    def __init__(self, refused: Callable[[ErrorCode], ResultT]) -> None:
        """Take what makes the answer of an error code."""
        super().__init__()
        self._refused = refused

    def refuse(self, error: ErrorCode) -> None:
        """Answer that nothing was done, and why."""
        self.set_result(self._refused(error))
