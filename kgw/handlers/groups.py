"""What the APIs of groups have in common: they ask a group, and answer when it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kgw.handlers.context import Later

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.completion import Completion
    from kgw.protocol.schema import Response

ResultT = TypeVar("ResultT")


def when_answered(
    reply: Completion[ResultT], answer: Callable[[ResultT], Response]
) -> Response | Later:
    """Return the response to a request that a coordinator has been asked, now or later."""
    if reply.is_done:
        return answer(reply.result)
    return Later(reply, lambda: answer(reply.result))
