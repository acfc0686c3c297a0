"""OffsetDelete, key 47, version 0: delete committed offsets of a group (KIP-496).

Behaviour:
- the deletion is durable before the answer. It is no error if an offset does not exist;
- GROUP_SUBSCRIBED_TO_TOPIC for a topic to which members of the group subscribe. If the members are
  no consumers, their topics are not known: NON_EMPTY_GROUP for the whole request;
- UNKNOWN_TOPIC_OR_PARTITION; GROUP_ID_NOT_FOUND for the whole request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.joint_answer import AnswerJointly
from kgw.handlers.rights import Rights
from kgw.protocol.messages.offset_delete import OffsetDeleteResponse
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from kgw.completion import Completion
    from kgw.offsets.committed import Place
    from kgw.partitions.topics.topic import Topic


class OffsetDelete(AnswerJointly):
    response_type = OffsetDeleteResponse
    rights = Rights(group=AclOperation.DELETE, topic=AclOperation.READ)
    answers_empty = False
    per_turn = 1_000

    def start(self) -> None:
        self._places: list[Place] = []
        self._subscribed = self._subscribed_topics()

    def look(self, topic: Topic, index: int, asked: Any) -> ErrorCode:
        if topic.name in self._subscribed:
            return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        self._places.append((topic.topic_id, index))
        return ErrorCode.NONE

    def must_look_again(self) -> bool:
        return super().must_look_again() or self._subscribed != self._subscribed_topics()

    def act(self) -> Completion[ErrorCode]:
        group_id = self.request.group_id
        return self.groups(group_id).delete_offsets(group_id, self._places)

    def in_words_of_version(self, code: ErrorCode) -> ErrorCode:
        # The response has one error code for all partitions.
        raise KafkaError(code)

    def _subscribed_topics(self) -> frozenset[str]:
        """Return the topics to which members of the group subscribe. Raises KafkaError."""
        group_id = self.request.group_id
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        subscribed = self.groups(group_id).subscribed_topics(group_id)
        if isinstance(subscribed, ErrorCode):
            raise KafkaError(subscribed)
        return subscribed
