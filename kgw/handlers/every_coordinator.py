"""APIs that list the entries of all coordinators of this node; an incomplete list is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.parts import AnswerByItem

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext


LEFT_OUT = 1
"""The weight of a group or transactional id that a filter leaves out."""


class AnswerOfCoordinators(AnswerByItem):
    """An API that lists the groups or transactional ids of all coordinators of this node.

    A long list is made in several turns of the event loop. If the owner of groups changes
    meanwhile, the request is refused: the list may lack groups that moved to another node, which
    the client could not notice.
    """

    def __init__(self, request: Any, context: RequestContext) -> None:
        super().__init__(request, context)
        self._owners_version = self.gateway.placement.version

    def fill(self, response: Any) -> None:
        if self.gateway.placement.version != self._owners_version:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "a coordinator moved while it was listed"
            )
