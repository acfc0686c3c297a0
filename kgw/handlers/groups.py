"""What the APIs of groups have in common: they ask a group, and answer when it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kgw.handlers.context import Later, coordinator

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.completion import Completion
    from kgw.groups.machine import GroupRequest
    from kgw.handlers.context import RequestContext
    from kgw.protocol.schema import Response

ResultT = TypeVar("ResultT")


def ask(
    context: RequestContext,
    group_id: str,
    request: GroupRequest[ResultT],
    answer: Callable[[ResultT], Response],
) -> Response | Later:
    """Ask a group, and make the response of its answer. Raises KafkaError NOT_COORDINATOR."""
    return when_answered(coordinator(group_id, context).ask(group_id, request), answer)


def when_answered(
    reply: Completion[ResultT], answer: Callable[[ResultT], Response]
) -> Response | Later:
    """Return the response to what a coordinator has been asked, now or later."""
    if reply.is_done:
        return answer(reply.result)
    return Later(reply, lambda: answer(reply.result))
