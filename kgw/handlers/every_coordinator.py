"""Lists of all coordinators of this node: refused unless they are complete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.parts import AnswerByItem

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext


LEFT_OUT = 1
"""A group or transactional id that a filter leaves out takes time, too."""


class AnswerOfCoordinators(AnswerByItem):
    """An API that lists the groups or transactional ids of all coordinators of this node.

    A long list is made in turns of the event loop. If an owner changes meanwhile, the request is
    refused: the list may lack groups that moved to another node, and its client would not know.
    """

    def __init__(self, request: Any, context: RequestContext) -> None:
        super().__init__(request, context)
        self._owners_version = self.gateway.placement.version

    def fill(self, response: Any) -> None:
        if self.gateway.placement.version != self._owners_version:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "a coordinator moved while it was listed"
            )
