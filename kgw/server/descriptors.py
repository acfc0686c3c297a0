"""File descriptors run out: no connection can be accepted, and a callback learns of it."""

from __future__ import annotations

from socket import socket
from typing import TYPE_CHECKING, Any

from kgw.problems import is_out_of_descriptors

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable


def ignore(_: str) -> None:
    """Do nothing: the callback of an event for which none is set."""


class Descriptors:
    """Finds out that there are no more file descriptors for connections."""

    def __init__(self) -> None:
        self.when_out: Callable[[str], object] = ignore
        """Called with the reason, each time that no connection could be accepted."""

    def look(self) -> None:
        """Check whether a connection could be accepted. uvloop closes refused ones silently."""
        try:
            socket().close()
        except OSError as error:
            self.tell(error)

    def tell(self, error: OSError) -> bool:
        """Report an error that means a lack of descriptors; return whether it does."""
        if not is_out_of_descriptors(error):
            return False
        self.when_out(f"no connection can be accepted: {error.strerror}")
        return True

    def take_loop_error(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log errors of the loop; for a lack of descriptors, only call `when_out`.

        asyncio reports up to as many of these at once as connections may wait to be accepted.
        """
        error = context.get("exception")
        if not isinstance(error, OSError) or not self.tell(error):
            loop.default_exception_handler(context)
