"""One action for many partitions: their offsets are committed, or they are added to a transaction.

Each partition is checked first: it takes part in the action, or gets an error of its own. Then the
action begins, once for all partitions that take part, and each of them is answered with the error
code of the action.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

from kgw.completion import Completion
from kgw.errors import ErrorCode
from kgw.handlers.context import Later
from kgw.handlers.parts import AnswerByPartition, Repeated
from kgw.handlers.refused import code_field_of, key_of
from kgw.turns import RemainingSteps, StepBudget, at_once, finish, in_turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from kgw.handlers.context import Answer
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.schema import EncodedItems, Response
    from kgw.turns import Turns

# An enum's member is slow to look up.
_NONE = ErrorCode.NONE


class AnswerJointly(AnswerByPartition):
    """Answers for partitions that take part in one action.

    `look` checks whether a partition takes part, and `act` begins the action.
    """

    replaced: ClassVar[frozenset[ErrorCode]] = frozenset({_NONE})
    """If the action fails, its code replaces these codes of partitions."""
    answers_empty: ClassVar[bool] = True
    """Whether the response contains topics without partitions."""
    answers_unknown_once: ClassVar[bool] = False
    """Whether all mentions of a missing topic become one, even without partitions."""
    fewest_at_once: ClassVar[float] = inf
    """`look_at_all` is called for topics with at least this many partitions."""

    again = False
    """Set by an API if all partitions must be checked once more."""

    _answers: list[Any]
    """The topics of the response."""
    _at_once: list[tuple[Any, Callable[[ErrorCode], EncodedItems]]]
    """The topics of the response whose partitions `look_at_all` has answered."""
    _seen: list[Topic]

    _index_field: ClassVar[str]
    _code_field: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "response_type"):
            partition_type = cls._layout.partition_type
            cls._index_field = key_of(partition_type)
            cls._code_field = code_field_of(partition_type, 0) or ""

    # --- the rules of an API ---------------------------------------------------------------------

    def start(self) -> None:
        """Begin to check the partitions of the request. Raises KafkaError."""

    def look(self, topic: Topic, index: int, asked: Any) -> ErrorCode:
        """Return NONE for a partition that takes part, else its own error. The partition exists."""
        raise NotImplementedError

    def look_at_all(
        self, topic: Topic, partitions: Sequence[Any], budget: StepBudget
    ) -> Turns[Callable[[ErrorCode], EncodedItems] | None]:
        """Let all partitions of a topic take part, and return the function that answers for them.

        Return None if `look` must check each partition.
        """
        raise NotImplementedError

    def denied(self, named: Any) -> ErrorCode:
        """Return the code for a partition of a topic on which the client lacks the right."""
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def must_look_again(self) -> bool:
        """Return whether changes since the first check of a partition can make a code wrong."""
        return self.again or any(topic.is_deleted for topic in self._seen)

    def act(self) -> Completion[ErrorCode] | Awaitable[ErrorCode]:
        """Begin the action. Raises KafkaError when the request is refused as a whole."""
        raise NotImplementedError

    def in_words_of_version(self, code: ErrorCode) -> ErrorCode:
        """Return the code that clients of this version know for a failed action.

        Raises KafkaError if the code applies to the whole response.
        """
        return code

    # --- the request as a whole ------------------------------------------------------------------

    def answer(self) -> Answer:
        layout = self._layout
        topics = getattr(self.request, layout.asked_topics)
        size = len(topics)
        for named in topics:
            count = len(getattr(named, layout.asked_partitions))
            size += count if count < self.fewest_at_once else self.per_turn
        if size <= self.per_turn:
            self._look_at_few(topics)
        if size > self.per_turn or self.again:
            looking = in_turns(self._look_at_many(topics), self.gateway.answer_turns)
            if isinstance(looking, RemainingSteps):
                return self._answer_in_turns(looking)
        done = self.act()
        if not isinstance(done, Completion):
            return self._respond_later(done)
        return self._finish(done) if done.is_done else Later(done, partial(self._finish, done))

    def _finish(self, done: Completion[ErrorCode]) -> Response:
        if done.error is not None:
            raise done.error
        return self._respond(done.result)

    async def _respond_later(self, done: Awaitable[ErrorCode]) -> Response:
        return self._respond(await done)

    async def _answer_in_turns(self, looking: RemainingSteps[None]) -> Response:
        queue, asked_topics = self.gateway.answer_turns, self._layout.asked_topics
        await looking
        while self.must_look_again():
            await finish(self._look_at_many(getattr(self.request, asked_topics)), queue)
        response = self._respond(await self.act())
        await finish(self._encode(response), queue)
        return response

    def _look_at_few(self, topics: Sequence[Any]) -> None:
        layout = self._layout
        self._answers, self._at_once, self._seen, self.again = [], [], [], False
        self.start()
        is_plain = len(topics) == 1 and getattr(topics[0], layout.asked_partitions)
        if not is_plain or self.repeated is not Repeated.ANSWERED:
            topics = at_once(self._answered_topics(topics))
        for named in topics:
            partitions = getattr(named, layout.asked_partitions)
            layout.add_topic(self._answers, named)
            if self.gateway.access is not None and self.is_denied(named):
                self._deny(named, partitions)
            else:
                self._look(self.find_topic(named), named, partitions)

    def _look_at_many(self, topics: Sequence[Any]) -> Turns[None]:
        layout, budget = self._layout, StepBudget(self.per_turn)
        self._answers, self._at_once, self._seen, self.again = [], [], [], False
        self.start()
        topics = yield from self._answered_topics(topics)
        for named in topics:
            partitions = getattr(named, layout.asked_partitions)
            layout.add_topic(self._answers, named)
            is_denied = self.gateway.access is not None and self.is_denied(named)
            topic = None if is_denied else self.find_topic(named)
            if topic is not None:
                self._seen.append(topic)
                if len(partitions) >= self.fewest_at_once:
                    answer = yield from self.look_at_all(topic, partitions, budget)
                    if answer is not None:
                        self._at_once.append((self._answers[-1], answer))
                        partitions = ()
            rest = iter(partitions)
            while some := [*islice(rest, budget.left)]:
                if is_denied:
                    self._deny(named, some)
                else:
                    self._look(topic, named, some)
                if budget.spend(len(some)):
                    yield
            if budget.spend():
                yield

    def _answered_topics(self, topics: Sequence[Any]) -> Turns[Sequence[Any]]:
        """Return the topics of the response. A refusal has the same topics."""
        if self.repeated is Repeated.LAST:
            topics = yield from self._name_once(topics)
        elif not self.answers_empty and not self._are_plain(topics):
            topics = yield from self._without_empty(topics)
        setattr(self.request, self._layout.asked_topics, topics)
        return topics

    def _are_plain(self, topics: Sequence[Any]) -> bool:
        """Return whether all topics have partitions, and each is named once."""
        layout = self._layout
        return len(set(map(layout.key_of, topics))) == len(topics) and all(
            getattr(one, layout.asked_partitions) for one in topics
        )

    def _without_empty(self, topics: Sequence[Any]) -> Turns[list[Any]]:
        layout, budget = self._layout, StepBudget(self.per_turn)
        answered = []
        unknown: dict[Any, list[Any]] = {}
        for named in topics:
            partitions, key = getattr(named, layout.asked_partitions), layout.key_of(named)
            # To a client without the right, no topic exists.
            is_unknown = self.answers_unknown_once and (
                (self.gateway.access is not None and self.is_denied(named))
                or self.find_topic(named) is None
            )
            if not is_unknown:
                if partitions:
                    answered.append(named)
            elif key in unknown:
                unknown[key] += partitions
            else:
                unknown[key] = [*partitions]
                answered.append(layout.asked_topic(named, unknown[key]))
            if budget.spend():
                yield
        return answered

    def _look(self, topic: Topic | None, named: Any, partitions: Iterable[Any]) -> None:
        """Look at partitions of the last topic, and answer as if the action will succeed."""
        layout, index_field, code_field = self._layout, self._index_field, self._code_field
        answers = getattr(self._answers[-1], layout.partitions)
        for asked in partitions:
            index = layout.index_of(asked)
            if topic is not None and 0 <= index < topic.partition_count:
                code = self.look(topic, index, asked)
            else:
                code = self.missing(topic, named, index).code
            answers.append(layout.partition_type(**{index_field: index, code_field: code}))

    def _deny(self, named: Any, partitions: Iterable[Any]) -> None:
        """Refuse partitions of the last topic, on which the client lacks the right."""
        layout, index_field, code_field = self._layout, self._index_field, self._code_field
        answers = getattr(self._answers[-1], layout.partitions)
        for asked in partitions:
            fields = {index_field: layout.index_of(asked), code_field: self.denied(named)}
            answers.append(layout.partition_type(**fields))

    def _respond(self, code: ErrorCode) -> Response:
        """Return the response after the action has ended with `code`."""
        layout, code_field = self._layout, self._code_field
        if code is not _NONE:
            code = self.in_words_of_version(code)
            for topic in self._answers:
                for answer in getattr(topic, layout.partitions):
                    if getattr(answer, code_field) in self.replaced:
                        setattr(answer, code_field, code)
        for topic, answer in self._at_once:
            setattr(topic, layout.partitions, answer(code))
        response: Response = self.response_type(**{layout.topics: self._answers})
        return response


def completed(code: ErrorCode) -> Completion[ErrorCode]:
    """Return the result of an action that has ended already."""
    done: Completion[ErrorCode] = Completion()
    done.set_result(code)
    return done
