"""Threads that check passwords and signatures."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from kgw.errors import ProtocolError

if TYPE_CHECKING:
    from kgw.security.sasl.exchange import Work

_THREADS: Final = 2
MOST_WAITING: Final = 200


class LoginThreads:
    """Threads for logins alone: the threads of the loop also renew leases and look at disks."""

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        """`most_waiting` is the number of checks that run or wait."""
        self._most_waiting = most_waiting
        self._waiting = 0
        self._is_closed = False
        self._executor = ThreadPoolExecutor(_THREADS, "login")

    async def check(self, work: Work) -> Any:
        """Check a password or a signature in a thread.

        Raises ProtocolError if too many clients wait for theirs, or the server has ended.
        """
        if self._is_closed:
            raise ProtocolError("a server that has ended checks no logins")
        if self._waiting >= self._most_waiting:
            raise ProtocolError(f"{self._most_waiting} logins are being checked already")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work.run)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Accept no more checks. The threads end after the checks that have begun."""
        self._is_closed = True
        self._executor.shutdown(wait=False)
