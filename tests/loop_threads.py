"""A call into an event loop from a thread that is not the loop's is an error.

asyncio's debug mode says so, too, but it also notes the stack of every handle, future and task: a
third of the processor time of these tests.
"""

from __future__ import annotations

import functools
from asyncio import BaseEventLoop
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def _checked(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def checked(loop: Any, *arguments: Any, **keywords: Any) -> Any:
        loop._check_thread()  # noqa: SLF001 - asyncio's own check, of which it makes no method
        return call(loop, *arguments, **keywords)

    return checked


def pytest_configure() -> None:
    """Check whatever schedules a callback; `call_soon_threadsafe` does not come by here."""
    for name in ("call_soon", "call_at"):
        setattr(BaseEventLoop, name, _checked(getattr(BaseEventLoop, name)))
