"""DeleteTopics, key 20, versions 0 to 6: delete topics and their records.

Behaviour:
- the deletion is durable before the answer: the topic does not return after a crash;
- Produce and Fetch requests that wait are answered with UNKNOWN_TOPIC_OR_PARTITION;
- REQUEST_TIMED_OUT after the timeout (5 s if the request has none); the deletion continues;
- DELETE on the cluster or on the topic, else TOPIC_AUTHORIZATION_FAILED. A client that may DESCRIBE
  a topic learns that it does not exist, and the name of an id;
- UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID; a topic named twice, or by both name and id, is
  INVALID_REQUEST.

v1: throttle time (KIP-124). v4: flexible (KIP-482). v5: messages of errors (KIP-599). v6: by id
(KIP-516).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights, denial
from kgw.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kgw.security.acls.terms import AclOperation, ResourceType
from kgw.types import ZERO_TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.handlers.context import RequestContext
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.schema import Response

_TOPIC_IDS = 6


class DeleteTopics(AnswerByItem):
    response_type = DeleteTopicsResponse
    rights = Rights(
        topic=AclOperation.DELETE,
        or_cluster=AclOperation.DELETE,
        others=((AclOperation.DESCRIBE, ResourceType.TOPIC),),
    )
    parts = {"responses": "topics"}
    waits = True
    per_turn = 200

    def __init__(self, request: DeleteTopicsRequest, context: RequestContext) -> None:
        super().__init__(_with_topics(request, context.api_version), context)
        self._mentions: Counter[Topic | None] = Counter()

    @classmethod
    def refuse(
        cls, request: Any, code: ErrorCode, message: str | None, context: RequestContext
    ) -> Response | None:
        return super().refuse(_with_topics(request, context.api_version), code, message, context)

    def asked(self) -> Iterable[DeleteTopicState]:
        mentions: dict[Any, list[DeleteTopicState]] = {}
        for one in self.request.topics:
            mentions.setdefault((one.name, one.topic_id), []).append(one)
        # As in Kafka: a topic that is named twice in the same way is refused once. An entry with a
        # name and an id, or with neither, is refused each time.
        self._repeated = {
            key for key, several in mentions.items() if len(several) > 1 and _is_named(several[0])
        }
        others = [
            one for key, named in mentions.items() if key not in self._repeated for one in named
        ]
        self._mentions.update(map(self._find, others))
        return [*(mentions[key][0] for key in mentions if key in self._repeated), *others]

    def item(self, asked: DeleteTopicState) -> Any:
        if not _is_named(asked):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "a topic is deleted by its name or by its id, one of them",
            )
        topic = self._find(asked)
        if self.gateway.access is not None and self._is_denied(asked, topic):
            return self._denied(asked, topic)
        if topic is None:
            by_id = asked.topic_id != ZERO_TOPIC_ID
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return self._delete(topic)

    # --- access rules ----------------------------------------------------------------------------

    def check_item_rights(self, asked: DeleteTopicState) -> None:
        # `item` asks, as it finds the topics of ids.
        pass

    def _is_denied(self, asked: DeleteTopicState, topic: Topic | None) -> bool:
        """Return whether the client may not delete a topic, or not know whether its name exists."""
        if asked.name is None and topic is None:
            return False
        if self.may_on_cluster(AclOperation.DELETE, quiet=True):
            return False
        if asked.name is not None:
            if not self.may(AclOperation.DESCRIBE, ResourceType.TOPIC, asked.name):
                return True
            if topic is None:
                return False
        name = asked.name if topic is None else topic.name
        return not self.may(AclOperation.DELETE, ResourceType.TOPIC, name or "")

    def _denied(self, asked: DeleteTopicState, topic: Topic | None) -> DeletableTopicResult:
        """Return the refusal of a topic. It has the name of an id if the client may DESCRIBE it."""
        name = asked.name
        if topic is not None and self.may(
            AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name, quiet=True
        ):
            name = topic.name
        result = DeletableTopicResult(name=name, topic_id=asked.topic_id)
        error = denial(ResourceType.TOPIC)
        self.refusal(error.code, error.message, self.version).say(result)
        return result

    async def _delete(self, topic: Topic) -> DeletableTopicResult:
        result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        try:
            if self._mentions[topic] > 1:
                raise self.named_twice()
            await self.gateway.topic_manager.delete(topic)
        except (KafkaError, StorageError) as error:
            self.refusal(error.code, error.message, self.version).say(result)
        return result

    def _find(self, named: DeleteTopicState) -> Topic | None:
        if not _is_named(named):
            return None
        catalog = self.gateway.catalog
        return catalog.by_id(named.topic_id) if named.name is None else catalog.get(named.name)


def _with_topics(request: DeleteTopicsRequest, version: int) -> DeleteTopicsRequest:
    """Return a request in the form of newer versions; older versions have a list of names."""
    if version >= _TOPIC_IDS:
        return request
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in request.topic_names])


def _is_named(topic: DeleteTopicState) -> bool:
    """Return whether a topic is named by its name or by its id, and not by both."""
    return (topic.name is None) == (topic.topic_id != ZERO_TOPIC_ID)
