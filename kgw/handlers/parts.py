"""Splits a request into parts, answers them one by one, and joins the answers.

The module of an API has one class, named as Kafka names the API. An instance of it handles one
request:

    Api               a request that has one part: JoinGroup, EndTxn
    AnswerByItem      a request that names topics, groups or settings, or asks for a list of them
    AnswerByPartition a request that names partitions of topics
    AnswerJointly     such a request with one action for all of its partitions (`joint_answer`)

The class declares the parts of its requests and answers one part. This module does the same for
every API: it finds the topic of a part and the node that owns it; it answers for parts that do not
exist, that another node owns or that are named more than once; an error of one part affects only
this part; a request of thousands of parts is handled in several turns of the event loop.
"""

from __future__ import annotations

from asyncio import create_task, sleep
from collections import Counter
from enum import Enum
from inspect import isawaitable, iscoroutine
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.handlers.context import Later
from kgw.handlers.encoding_turns import AnswerSize, encode_in_turns, encode_topics
from kgw.handlers.refused import Refusal, names_of
from kgw.handlers.rights import denial
from kgw.ownership.keys import CoordinatorKey, CoordinatorType
from kgw.partitions.topics.topic import why_missing
from kgw.protocol.codec import request_class
from kgw.protocol.schema import Struct
from kgw.security.acls.terms import CLUSTER_NAME, ResourceType
from kgw.turns import StepBudget, at_once, finish, in_turns, step_slices, take_turns

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from kgw.completion import Completion
    from kgw.groups.coordinator import GroupCoordinator
    from kgw.handlers.context import Answer, RequestContext
    from kgw.handlers.encoding_turns import Item
    from kgw.handlers.rights import Rights
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.schema import Response
    from kgw.security.acls.terms import AclOperation
    from kgw.transactions.coordinator import TransactionCoordinator
    from kgw.turns import Turns

    ItemT = TypeVar("ItemT")
    ResultT = TypeVar("ResultT")

_SPLIT_PER_TURN = 1_000
_FEWEST_REPEATED = 2
_ALL_BEGUN = object()

# An enum's attribute is slow to look up.
_TOPIC = ResourceType.TOPIC
_GROUP = ResourceType.GROUP
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
_CLUSTER = ResourceType.CLUSTER


class Api:
    """One request of an API."""

    response_type: ClassVar[type[Any]]
    parts: ClassVar[Mapping[str, str]] = {}
    """The arrays of the response that have the answers for parts, the outer array first.

    Each has as its value the array of the request that has these parts.
    """
    refused_values: ClassVar[Mapping[str, object]] = {}
    """Fields of a refused part or response that differ from Kafka's defaults."""
    refuses_every_part: ClassVar[bool] = False
    """Whether a response with an error code of its own also refuses each part."""
    rights: ClassVar[Rights]
    """The rights that the API asks for: every API declares them, also if it asks for none."""

    def __init_subclass__(cls) -> None:
        if "response_type" in cls.__dict__ and not hasattr(cls, "rights"):
            raise TypeError(f"{cls.__name__} does not declare which rights it asks for")

    def __init__(self, request: Any, context: RequestContext) -> None:
        """Raises KafkaError when the request as a whole is refused.

        The rights of the client are not checked yet, so the error must not reveal whether a topic
        or a group exists.
        """
        self.request = request
        self.context = context
        self.gateway = context.gateway
        self.version = context.api_version

    def answer(self) -> Answer:
        """Answer the request. Raises KafkaError when it is refused as a whole."""
        raise NotImplementedError

    @classmethod
    def refuse(
        cls, request: Any, code: ErrorCode, message: str | None, context: RequestContext
    ) -> Response | None:
        """Return the response that refuses a request; None if it has no field for the code."""
        response: Any = cls.response_type()
        refusal = cls.refusal(code, message, context.api_version)
        says_code = refusal.say(response)
        if cls.refuses_every_part or not says_code:
            refusal.say_in_parts(response, request)
        return response if says_code or cls.parts else None

    @classmethod
    def refusal(cls, code: ErrorCode, message: str | None, version: int) -> Refusal:
        """Return an error in the form of one version of this API's response."""
        return Refusal(code, message, version, cls.parts, cls.refused_values)

    # --- access rules ----------------------------------------------------------------------------

    def check_rights(self) -> None:
        """Raise KafkaError if the client lacks a right that the whole request needs.

        Called before `answer`, if there are access rules.
        """
        rights, request = self.rights, self.request
        if rights.cluster is not None:
            self.authorize(rights.cluster, _CLUSTER, CLUSTER_NAME)
        if rights.transactional_id is not None:
            self.authorize(rights.transactional_id, _TRANSACTIONAL_ID, request.transactional_id)
        if rights.group is not None:
            self.authorize(rights.group, _GROUP, request.group_id)

    def may(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        quiet: bool = False,
    ) -> bool:
        """Return whether the client may perform an operation on a resource.

        Everybody may if there are no access rules. With `quiet`, a denial is neither counted nor
        logged: the request has not asked for this resource, or another right is enough.
        """
        access = self.gateway.access
        if access is None:
            return True
        session = self.context.session
        return access.permits(
            session.principal,
            session.client_host,
            operation,
            resource_type,
            name,
            request=self.context.api_key,
            quiet=quiet,
        )

    def authorize(self, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Raise KafkaError if the client may not perform an operation on a resource."""
        if not self.may(operation, resource_type, name):
            raise denial(resource_type)

    def may_on_cluster(self, operation: AclOperation, *, quiet: bool = False) -> bool:
        """Return whether the client may perform an operation on the cluster."""
        return self.may(operation, _CLUSTER, CLUSTER_NAME, quiet=quiet)

    def may_use_topic(self, name: str, *, quiet: bool = False) -> bool:
        """Return whether the client has the right of this API on a topic, which need not exist."""
        rights = self.rights
        if rights.topic is None:
            return True
        if rights.or_cluster is not None and self.may_on_cluster(rights.or_cluster, quiet=True):
            return True
        return self.may(rights.topic, _TOPIC, name, quiet=quiet)

    # --- owners ----------------------------------------------------------------------------------

    def groups(self, group_id: str) -> GroupCoordinator:
        """Return the coordinator of a group. Raises KafkaError NOT_COORDINATOR."""
        # Not split further: members ask ten thousand times a second, and a call would cost time.
        key = CoordinatorKey(CoordinatorType.GROUP, group_id)
        ownership = self.gateway.placement.ownership(key)
        if ownership is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return ownership.groups

    def transactions(self, transactional_id: str) -> TransactionCoordinator:
        """Return the coordinator of a transactional id. Raises KafkaError NOT_COORDINATOR."""
        key = CoordinatorKey(CoordinatorType.TRANSACTION, transactional_id)
        ownership = self.gateway.placement.ownership(key)
        if ownership is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return ownership.transactions

    def owns(self, coordinator_type: CoordinatorType, key: str) -> bool:
        """Return whether this node coordinates a group or a transactional id."""
        return self.gateway.placement.owns(CoordinatorKey(coordinator_type, key))

    async def slices(self, items: Iterable[ItemT], size: int) -> AsyncIterator[list[ItemT]]:
        """Yield slices of `size` items, one in each turn of the event loop.

        After its first slice, a request waits until earlier requests have yielded all their slices.
        The caller must not wait for anything between two slices.
        """
        left = iter(items)
        some = [*islice(left, size)]
        if some:
            yield some
        if len(some) < size:
            return
        async with self.gateway.answer_turns:
            await sleep(0)
            while some := [*islice(left, size)]:
                yield some
                await sleep(0)

    async def encoded(self, items: Iterable[Item], per_turn: int) -> Any:
        """Return items as an array of the response, encoded in several turns of the event loop."""
        budget = StepBudget(per_turn)
        encoding = encode_in_turns(self.response_type, items, self.version, budget)
        return await finish(encoding, self.gateway.answer_turns)


def when_answered(
    reply: Completion[ResultT], respond: Callable[[ResultT], Response]
) -> Response | Later:
    """Return the response when a coordinator has replied, which may be at once."""
    if reply.is_done:
        return respond(reply.result)
    return Later(reply, lambda: respond(reply.result))


class Repeated(Enum):
    """The answer for a part that a request names more than once."""

    ANSWERED = "each mention is answered"
    LAST = "it is answered once, for the last mention"
    REFUSED = "it is answered once, with INVALID_REQUEST"
    EACH_REFUSED = "each mention is answered, with INVALID_REQUEST"


class AnswerByItem(Api):
    """Answers with one array: an item for each part of the request, or a list of everything.

    `item` answers one part. If `waits` is set, `item` may be a coroutine function or return an
    awaitable; if it fails, only this part is refused.
    """

    array: str
    """The array of the response: the outer one of `parts`, if the API has parts."""
    item_type: ClassVar[type[Any]]
    """The type of its items."""
    per_turn: ClassVar[int]
    """The number of items that one turn of the event loop makes and encodes
    (docs/decisions/0068)."""
    repeated: ClassVar[Repeated] = Repeated.ANSWERED
    waits: ClassVar[bool] = False
    """Whether `item` may have to wait."""
    one_by_one: ClassVar[bool] = False
    """Whether the wait for an item ends before the next item begins."""

    _repeated: Collection[Any] = frozenset()
    """The names of parts that are refused, as they occur more than once."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.parts and "array" not in cls.__dict__:
            cls.array = next(iter(cls.parts))
        if "response_type" in cls.__dict__:
            cls.item_type = cls.response_type.field_table[cls.array].item

    # --- the rules of an API ---------------------------------------------------------------------

    def asked(self) -> Iterable[Any]:
        """Return the parts of the request."""
        named: Sequence[Any] = getattr(self.request, self.parts[self.array]) or ()
        if self.repeated is Repeated.ANSWERED or len(named) < _FEWEST_REPEATED:
            return named
        return self._name_once(named)

    def begin(self, asked: Any) -> Any:
        """Answer one part, which the request may name more than once. Raises KafkaError."""
        if self._repeated and self._key_of(asked) in self._repeated:
            raise self.named_twice()
        if self.gateway.access is not None:
            self.check_item_rights(asked)
        return self.item(asked)

    def check_rights(self) -> None:
        # The other rights are those on the parts of the request.
        if self.rights.cluster is not None:
            self.authorize(self.rights.cluster, _CLUSTER, CLUSTER_NAME)

    def check_item_rights(self, asked: Any) -> None:
        """Raise KafkaError if the client lacks the right on one part of the request.

        The part is a topic, or the id of a group or a transaction; other APIs override this.
        """
        rights = self.rights
        if rights.topic is not None and not self.may_use_topic(asked.name):
            raise denial(_TOPIC)
        if rights.group is not None:
            self.authorize(rights.group, _GROUP, asked)
        if rights.transactional_id is not None:
            self.authorize(rights.transactional_id, _TRANSACTIONAL_ID, asked)

    def item(self, asked: Any) -> Any:
        """Answer one part of the request. Raises KafkaError, StorageError."""
        raise NotImplementedError

    def items(self) -> Iterator[Item]:
        """Yield the items of an answer that needs no wait."""
        for asked in self.asked():
            yield self._begin(asked)

    def refused_item(self, asked: Any, code: ErrorCode, message: str | None = None) -> Any:
        """Return the item that refuses one part of the request."""
        return self.refusal(code, message, self.version).part(self.item_type, asked)

    def named_twice(self) -> KafkaError:
        """Return the error for a part that must not occur more than once."""
        kind = self.parts[self.array].removesuffix("s")
        message = f"the request names this {kind} more than once"
        return KafkaError(ErrorCode.INVALID_REQUEST, message)

    def weigh(self, item: Any) -> int:
        """Return the work for this item, in units of a plain item."""
        return 1

    def fill(self, response: Any) -> None:
        """Set the other fields of the response, after all items have been made."""

    # --- the request as a whole ------------------------------------------------------------------

    def answer(self) -> Answer:
        if self.waits:
            return self._answer_later()
        return in_turns(self._answer(self.items()), self.gateway.answer_turns)

    def _answer(self, items: Iterable[Item]) -> Turns[Response]:
        encoded = yield from encode_in_turns(
            self.response_type,
            items,
            self.version,
            StepBudget(self.per_turn),
            self.weigh,
            AnswerSize(),
        )
        response: Response = self.response_type(**{self.array: encoded})
        self.fill(response)
        return response

    async def _answer_later(self) -> Response:
        budget = StepBudget(self.per_turn)
        begun: list[tuple[Any, Any]] = []
        for asked in self.asked():
            item = self._begin(asked)
            if self.one_by_one:
                item = await self._settled(asked, item)
            elif iscoroutine(item):
                item = create_task(self._settled(asked, item))
            begun.append((asked, item))
            if budget.spend():
                await sleep(0)
        items = []
        for asked, item in begun:
            items.append(await self._settled(asked, item))
            if budget.spend():
                await sleep(0)
        return await take_turns(self._answer(items), self.gateway.answer_turns)

    def _begin(self, asked: Any) -> Any:
        """Return the item of one part, or an awaitable of it."""
        try:
            return self.begin(asked)
        except (KafkaError, StorageError) as error:
            return self.refused_item(asked, error.code, error.message)

    async def _settled(self, asked: Any, item: Any) -> Any:
        """Return an item, awaited if need be; if that fails, the item that refuses its part."""
        try:
            return await item if isawaitable(item) else item
        except (KafkaError, StorageError) as error:
            return self.refused_item(asked, error.code, error.message)
        except Exception as error:  # noqa: BLE001 - the other parts are answered
            self.gateway.report_internal_error(self.context.api_key.name, error)
            return self.refused_item(asked, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _name_once(self, named: Sequence[Any]) -> Sequence[Any]:
        """Return the parts, each as often as it is answered; refused parts come last."""
        last = {self._key_of(asked): asked for asked in named}
        if len(last) == len(named):
            return named
        if self.repeated is Repeated.LAST:
            return [*last.values()]
        counts = Counter(map(self._key_of, named))
        self._repeated = {key for key, count in counts.items() if count > 1}
        if self.repeated is Repeated.EACH_REFUSED:
            return named
        once = [asked for key, asked in last.items() if key not in self._repeated]
        return [*once, *(last[key] for key in counts if key in self._repeated)]

    def _key_of(self, asked: Any) -> Any:
        """Return the name of a part of a request."""
        if not isinstance(asked, Struct):
            return asked
        item_type: type[Struct] = self.item_type
        names = names_of(item_type, type(asked))
        return tuple([getattr(asked, theirs) for _, theirs in names])


class _Pending(NamedTuple):
    """A partition whose answer is not there yet, and the position of this answer."""

    answers: list[Any]
    position: int
    topic: Topic | None
    asked: Any
    answer: Awaitable[Any]


class _Layout:
    """The fields for topics and partitions in the requests and responses of an API."""

    def __init__(
        self, response_type: type[Struct], request_type: type[Struct], parts: Mapping[str, str]
    ) -> None:
        (self.topics, self.asked_topics), (self.partitions, self.asked_partitions) = parts.items()
        asked_topic = request_type.field_table[self.asked_topics].item
        self.topic_type = response_type.field_table[self.topics].item
        self.partition_type = self.topic_type.field_table[self.partitions].item
        self._asked_topic_type = asked_topic
        self._names = names_of(self.topic_type, asked_topic)
        """The fields that identify a topic: by field of the response, the field of the request."""
        self.key_of = attrgetter(*(theirs for _, theirs in self._names))
        self.name_of = attrgetter(self._names[0][1])
        asked_partition = asked_topic.field_table[self.asked_partitions].item
        self.index_of: Callable[[Any], int] = int
        if isinstance(asked_partition, type):
            ((_, index),) = names_of(self.partition_type, asked_partition)
            self.index_of = attrgetter(index)

    def add_topic(self, topics: list[Any], named: Any) -> None:
        """Add the answer for a topic, without partitions so far."""
        answer = self.topic_type()
        for ours, theirs in self._names:
            setattr(answer, ours, getattr(named, theirs))
        topics.append(answer)

    def asked_topic(self, named: Any, partitions: list[Any]) -> Any:
        """Return a copy of a request's topic, with other partitions."""
        names = {theirs: getattr(named, theirs) for _, theirs in self._names}
        return self._asked_topic_type(**names, **{self.asked_partitions: partitions})


class AnswerByPartition(Api):
    """Answers for partitions of topics.

    `part` answers for a partition that this node leads: at once, or with an awaitable.
    """

    request_type: ClassVar[type[Struct] | None] = None
    """The type of the request.

    Set if it is only one part of a request, whose API encodes the answer.
    """
    parts: ClassVar[Mapping[str, str]] = {"topics": "topics", "partitions": "partitions"}
    per_turn: ClassVar[int]
    """The number of partitions that are answered in one turn of the loop (docs/decisions/0068)."""
    repeated: Repeated = Repeated.ANSWERED
    waits: ClassVar[bool] = False
    """Whether `part` may have to wait."""
    turn_by_turn: ClassVar[bool] = False
    """Whether the waits for `per_turn` partitions end before the next partitions begin."""
    frees_request: ClassVar[bool] = False
    """Whether freeing the partitions of a large request after the answer takes long."""
    merges_topics: ClassVar[bool] = False
    """Whether a topic that is named more than once gets one answer with all its partitions."""
    topic_ids_since: ClassVar[int] = 1 << 15
    """The first version with topic ids."""

    pending: list[Any] = []
    """The partitions whose answer is not there yet."""
    _repeated: frozenset[tuple[Any, int]] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "response_type"):
            request_type = cls.request_type or request_class(cls.response_type.api_key)
            cls._layout = _Layout(cls.response_type, request_type, cls.parts)

    _layout: ClassVar[_Layout]
    response: Any

    # --- the rules of an API ---------------------------------------------------------------------

    def part(self, topic: Topic, partition: Partition, asked: Any) -> Any:
        """Answer for a partition that this node leads. Raises KafkaError, StorageError."""
        raise NotImplementedError

    def begin(self, topic: Topic | None, named: Any, asked: Any) -> Any:
        """Answer for a partition, which need not exist. Raises KafkaError, StorageError."""
        index = self._layout.index_of(asked)
        partition = None if topic is None else topic.partition(index)
        if topic is None or partition is None:
            raise self.missing(topic, named, index)
        return self.part(topic, partition, asked)

    def missing(self, topic: Topic | None, named: Any, index: int) -> KafkaError:
        """Return the error for a partition that this node does not lead."""
        by_id = self.version >= self.topic_ids_since
        return KafkaError(why_missing(topic, index, by_id=by_id))

    def find_topic(self, named: Any) -> Topic | None:
        """Return the topic that a request names; None if it does not exist."""
        catalog = self.gateway.catalog
        if self.version >= self.topic_ids_since:
            return catalog.by_id(named.topic_id)
        return catalog.get(self._layout.name_of(named))

    def is_denied(self, named: Any) -> bool:
        """Return whether the client lacks the right on a topic that the request names.

        A name is not looked up: the answer is the same whether the topic exists or not. As in
        Kafka, no right is asked for an id that no topic has.
        """
        if self.version >= self.topic_ids_since:
            topic = self.find_topic(named)
            return topic is not None and not self.may_use_topic(topic.name)
        return not self.may_use_topic(self._layout.name_of(named))

    # --- the request as a whole ------------------------------------------------------------------

    def answer(self) -> Answer:
        layout = self._layout
        self.response = response = self.response_type()
        self.pending = []
        topics = getattr(self.request, layout.asked_topics)
        if self.merges_topics and len(topics) > 1:
            topics = self._merge(topics)
            setattr(self.request, layout.asked_topics, topics)
        size = 0
        for named in topics:
            size += len(getattr(named, layout.asked_partitions)) or 1
        if size > self.per_turn:
            begun = self._begin_in_turns(response, topics)
            if self.waits:
                return self.answer_many(begun)
            return in_turns(self._make_many(response, begun), self.gateway.answer_turns)
        # The most common request has one partition, so it repeats nothing.
        is_plain = size == 1 and getattr(topics[0], layout.asked_partitions)
        if self.repeated is not Repeated.ANSWERED and not is_plain:
            topics = at_once(self._name_once(topics))
        answers = getattr(response, layout.topics)
        try:
            for named in topics:
                self.begin_topic(answers, named, 0, size)
        finally:
            self.all_begun()
        return self.answer_pending() if self.pending else self.finished()

    def begin_topic(self, topics: list[Any], named: Any, start: int, end: int) -> None:
        """Answer for some partitions of a topic, or begin to."""
        layout = self._layout
        if not start:
            layout.add_topic(topics, named)
        answers = getattr(topics[-1], layout.partitions)
        some = getattr(named, layout.asked_partitions)[start:end]
        if self.gateway.access is not None and self.is_denied(named):
            error = denial(_TOPIC)
            answers += [self._refused(None, asked, error) for asked in some]
            return
        topic = self.find_topic(named)
        for asked in some:
            try:
                if self._repeated:
                    self._check_repeated(named, asked)
                answer = self.begin(topic, named, asked)
            except (KafkaError, StorageError) as error:
                answer = self._refused(topic, asked, error)
            except Exception as error:  # noqa: BLE001 - the other partitions are answered for
                answer = self._failed(topic, asked, error)
            if answer.__class__ is not layout.partition_type:
                answer = create_task(answer) if iscoroutine(answer) else answer
                self.pending.append(_Pending(answers, len(answers), topic, asked, answer))
            answers.append(answer)

    def _check_repeated(self, named: Any, asked: Any) -> None:
        """Raise KafkaError INVALID_REQUEST for a partition that must not be repeated."""
        layout = self._layout
        if (layout.key_of(named), layout.index_of(asked)) in self._repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST)

    def _refused(self, topic: Topic | None, asked: Any, error: KafkaError | StorageError) -> Any:
        """Return the answer for a partition that is refused or whose storage failed."""
        code = error.code
        if topic is not None and topic.is_deleted:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refusal = self.refusal(code, error.message, self.version)
        return refusal.part(self._layout.partition_type, asked)

    def _failed(self, topic: Topic | None, asked: Any, error: Exception) -> Any:
        """Return the answer for a partition whose handling failed through a bug of kgw."""
        self.gateway.report_internal_error(self.context.api_key.name, error)
        return self._refused(topic, asked, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    async def settle(self, pending: Any) -> None:
        """Wait for the answer of a partition, and put it at its position."""
        answers, position, topic, asked, answer = pending
        try:
            answers[position] = await answer
        except (KafkaError, StorageError) as error:
            answers[position] = self._refused(topic, asked, error)
        except Exception as error:  # noqa: BLE001 - the other partitions are answered for
            answers[position] = self._failed(topic, asked, error)

    async def settle_all(self) -> None:
        """Wait for the answers of all partitions that have been begun."""
        pending, self.pending = self.pending, []
        budget = StepBudget(self.per_turn)
        for one in pending:
            await self.settle(one)
            if budget.spend():
                await sleep(0)

    def answer_pending(self) -> Answer:
        """Answer a request of few partitions, some of which have to wait."""
        return self._answer_few()

    async def _answer_few(self) -> Response | None:
        await self.settle_all()
        return self.finished()

    def finished(self) -> Response | None:
        """Return the response with an answer for each partition; None if there is no response."""
        response: Response = self.response
        return response

    def _merge(self, topics: Sequence[Any]) -> Sequence[Any]:
        """Merge all mentions of a topic into one."""
        layout = self._layout
        merged: dict[Any, Any] = {}
        for named in topics:
            first = merged.setdefault(layout.key_of(named), named)
            if first is not named:
                partitions = getattr(first, layout.asked_partitions)
                partitions.extend(getattr(named, layout.asked_partitions))
        return [*merged.values()]

    # --- requests of many partitions -------------------------------------------------------------

    def _begin_in_turns(self, response: Response, topics: Sequence[Any]) -> Turns[None]:
        layout = self._layout
        if self.repeated is not Repeated.ANSWERED:
            topics = yield from self._name_once(topics)
        answers = getattr(response, layout.topics)
        lengths = [len(getattr(named, layout.asked_partitions)) for named in topics]
        for turn in step_slices(lengths, self.per_turn):
            for number, start, end in turn:
                self.begin_topic(answers, topics[number], start, end)
            self.end_turn()
            yield

    def _name_once(self, topics: Sequence[Any]) -> Turns[Sequence[Any]]:
        """Return each topic with partitions once, and each of its partitions once, as Kafka does.

        The last mention of a partition counts.
        """
        layout, budget = self._layout, StepBudget(_SPLIT_PER_TURN)
        repeated: set[tuple[Any, int]] = set()
        is_repeated = False
        found: dict[Any, tuple[Any, dict[int, Any]]] = {}
        for named in topics:
            key = layout.key_of(named)
            for asked in getattr(named, layout.asked_partitions):
                index = layout.index_of(asked)
                _, partitions = found.setdefault(key, (named, {}))
                if index in partitions:
                    is_repeated = True
                    if self.repeated is Repeated.REFUSED:
                        repeated.add((key, index))
                partitions[index] = asked
                if budget.spend():
                    yield
            if budget.spend():
                yield
        self._repeated = frozenset(repeated)
        if len(found) == len(topics) and not is_repeated:
            return topics
        return [
            layout.asked_topic(named, [*partitions.values()])
            for named, partitions in found.values()
        ]

    def _make_many(self, response: Response, begun: Turns[None]) -> Turns[Response]:
        yield from begun
        yield from self._encode(response)
        return response

    def answer_many(self, begun: Turns[None]) -> Answer:
        """Begin the partitions of the first turn at once, and the others later."""
        try:
            is_begun = next(begun, _ALL_BEGUN) is _ALL_BEGUN
        except BaseException:
            self.all_begun()
            raise
        return self._answer_rest(begun, is_begun=is_begun)

    async def _answer_rest(self, begun: Turns[None], *, is_begun: bool) -> Response | None:
        queue = self.gateway.answer_turns
        try:
            if not self.turn_by_turn:
                if not is_begun:
                    await finish(begun, queue)
            else:
                await self.settle_all()
                while not is_begun:
                    async with queue:
                        await sleep(0)
                        is_begun = next(begun, _ALL_BEGUN) is _ALL_BEGUN
                    await self.settle_all()
        finally:
            self.all_begun()
        await self.settle_all()
        response = self.finished()
        if response is not None:
            await finish(self._encode(response), queue)
        return response

    def end_turn(self) -> None:
        """Do the common work for the partitions of this turn of the loop."""

    def all_begun(self) -> None:
        """Handle that all partitions are begun, or that an error prevents the others."""

    def fill_in(self, pending: Any) -> None:
        """Copy the outcome of a partition to its answer, if `settle_all` has not done so."""
        raise NotImplementedError

    def _encode(self, response: Response) -> Turns[None]:
        layout = self._layout
        budget = StepBudget(self.per_turn)
        while self.pending:
            self.fill_in(self.pending.pop())
            if budget.spend():
                yield
        if self.request_type is not None:
            return
        encoded = yield from encode_topics(
            self.response_type,
            getattr(response, layout.topics),
            layout.partitions,
            self.version,
            StepBudget(self.per_turn),
            AnswerSize(),
        )
        setattr(response, layout.topics, encoded)
        if not self.frees_request:
            return
        # Freeing the batches of 10,000 partitions at once would take 8 ms.
        budget = StepBudget(8 * self.per_turn)
        for named in getattr(self.request, layout.asked_topics):
            partitions = getattr(named, layout.asked_partitions)
            while partitions:
                del partitions[-self.per_turn :]
                if budget.spend(self.per_turn):
                    yield
