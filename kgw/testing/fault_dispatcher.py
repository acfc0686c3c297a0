"""A dispatcher that makes the faults of tests, and can imitate another release of Kafka.

Without faults and without a release to imitate, it handles requests as usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.completion import Completion
from kgw.errors import ErrorCode, KafkaError, ProtocolError
from kgw.handlers.context import Later
from kgw.handlers.dispatch import Dispatcher
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec, response_class
from kgw.protocol.framing import EncodedBody, peek_request_header, response_frame
from kgw.protocol.schema import Response
from kgw.testing.fault_rules import Delay, Drop, Refuse
from kgw.testing.topic_fields import TOPIC_FIELDS, merge, places, split, with_changes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.clock import Clock, Timer
    from kgw.gateway import Gateway
    from kgw.handlers.context import Answer, RequestContext, Session
    from kgw.handlers.table import Handler
    from kgw.testing.costumes import Costume
    from kgw.testing.fault_rules import Fault, FaultList, Target
    from kgw.types import Buffer

_ASKED_FOR = "a test asked for this error"
_OF_SESSIONS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Errors that concern a whole Fetch request; any other error concerns one of its partitions."""
_NO_SESSION_EPOCH = -1
_SESSIONS = 7

_Made = Response | EncodedBody | None


class FaultDispatcher(Dispatcher):
    """Handles requests with the faults of tests, and as the imitated release would.

    Its methods run in the event loop's thread.
    """

    def __init__(
        self, gateway: Gateway, faults: FaultList, real_clock: Clock, costume: Costume | None
    ) -> None:
        super().__init__(gateway)
        self.costume = costume
        self._faults = faults
        self._real_clock = real_clock
        self._held_back: dict[Completion[None], Timer] = {}

    def release(self) -> None:
        """Release all delayed responses, when no client waits for them any more."""
        held_back, self._held_back = self._held_back, {}
        for due, timer in held_back.items():
            timer.cancel()
            due.set_result(None)

    def start(self, frame: memoryview, session: Session) -> list[Buffer] | Later | None:
        """Like `Dispatcher.start`; requests that the imitated release lacks end the connection."""
        costume = self.costume
        if costume is not None:
            api_key, version, correlation_id = peek_request_header(frame)
            if not costume.serves(api_key, version):
                if api_key == ApiKey.API_VERSIONS:
                    return response_frame(costume.unsupported_version(), 0, correlation_id)
                raise ProtocolError(f"Kafka {costume.release} has no API {api_key} v{version}")
        return super().start(frame, session)

    def _handle(
        self, handler: Handler, context: RequestContext, *, was_held: bool = False
    ) -> Answer:
        if self.costume is not None and context.api_key is ApiKey.API_VERSIONS:
            dressed: Answer = self.costume.dress(super()._handle(handler, context))
            return dressed
        # A request that was held has met its faults already.
        if was_held or not self._faults.active:
            return super()._handle(handler, context, was_held=was_held)
        return self._handle_with_faults(handler, context)

    def _handle_with_faults(self, handler: Handler, context: RequestContext) -> Answer:
        met = self._faults.matching(
            context.api_key,
            context.session.client_id,
            lambda target: self._is_about(context, target),
        )
        if any(_needs_names(one) for one in met) and _has_session(context):
            if context.request.session_epoch > 0:
                # A request in a fetch session names only changed partitions: this error makes the
                # client name all.
                return self._error(context, KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
            # Make a copy: the connection may reuse the request object.
            context.request = with_changes(context.request, session_epoch=_NO_SESSION_EPOCH)
        for fault in met:
            if isinstance(fault.effect, Drop) and fault.effect.before:
                fault.strike()
                raise ProtocolError(f"a test asked that the connection be dropped: {fault!r}")
        refusing = [one for one in met if isinstance(one.effect, Refuse)]
        answer = self._refuse(handler, context, refusing)
        for fault in met:
            if isinstance(fault.effect, Delay):
                fault.strike()
                answer = self._delay(answer, fault.effect)
        for fault in met:
            if isinstance(fault.effect, Drop):
                fault.strike()
                return _then(answer, _drop(repr(fault)), context)
        return answer

    # --- errors -----------------------------------------------------------------------------------

    def _refuse(self, handler: Handler, context: RequestContext, faults: list[Fault]) -> Answer:
        """Refuse the topics or partitions of each fault, in order, and handle the others."""
        if not faults:
            return super()._handle(handler, context)
        if context.api_key is ApiKey.METADATA:
            answer = super()._handle(handler, context)
            return _then(answer, lambda made: _without_topics(made, faults), context)
        fault, *others = faults
        target, code = _meant(fault)
        if target.topic is None:
            fault.strike()
            return self._refusal(context, code)
        fields = TOPIC_FIELDS[context.api_key]
        meant, rest = split(context.request, fields, self._name_of, target.takes_place)
        if not getattr(meant, fields.topics):
            # An earlier fault has already refused the topic.
            return self._refuse(handler, context, others)
        fault.strike()
        context.request = meant
        refusal = self._refusal(context, code)
        if not getattr(rest, fields.topics):
            return refusal
        if context.api_key is ApiKey.FETCH:
            # Refused partitions are answered at once, so the others must not wait.
            rest.max_wait_ms = 0
        context.request = rest
        answer = self._refuse(handler, context, others)
        return _then(answer, lambda made: merge(made, refusal, fields), context)

    def _refusal(self, context: RequestContext, code: ErrorCode) -> Response:
        """Return a response with the error in the field that Kafka uses for it."""
        refusal: Any = self._error(context, KafkaError(code, _ASKED_FOR))
        if refusal is None:
            raise ProtocolError(f"{context.api_key.name} v{context.api_version} has no error code")
        if context.api_key is ApiKey.FETCH and code not in _OF_SESSIONS:
            refusal.error_code = 0
        answer: Response = refusal
        return answer

    def _is_about(self, context: RequestContext, target: Target) -> bool:
        """Return whether a request concerns, or may concern, the fault's topic or partition."""
        request = context.request
        if context.api_key is ApiKey.METADATA and not request.topics:
            return True
        if _has_session(context) and request.session_epoch > 0:
            return True
        return any(
            target.takes_place(topic, partition)
            for topic, partition in places(request, TOPIC_FIELDS[context.api_key], self._name_of)
        )

    def _name_of(self, topic_id: bytes) -> str:
        topic = self._gateway.catalog.by_id(topic_id)
        return "" if topic is None else topic.name

    # --- time -------------------------------------------------------------------------------------

    def _delay(self, answer: Answer, effect: Delay) -> Answer:
        clock = self._gateway.clock if effect.by_clock else self._real_clock
        due: Completion[None] = Completion()

        def end() -> None:
            self._held_back.pop(due, None)
            due.set_result(None)

        self._held_back[due] = clock.call_at(clock.monotonic_s() + effect.seconds, end)
        if isinstance(answer, Response) or answer is None:
            return Later(due, lambda: answer)
        if isinstance(answer, Later):
            both: Completion[None] = Completion()
            inner = answer

            def inner_is_done(_: object) -> None:
                due.then(lambda _: both.set_result(None))

            if inner.due.is_done:
                inner_is_done(None)
            else:
                inner.due.when_done(inner_is_done)
            return Later(both, inner.make, inner.abandon)
        return _wait_for_both(answer, due)


async def _wait_for_both(answer: Awaitable[_Made], due: Completion[None]) -> _Made:
    made = await answer
    await due
    return made


def _then(answer: Answer, change: Callable[[Any], Any], context: RequestContext) -> Answer:
    """Change a response once it is made. The response is decoded for this."""
    if isinstance(answer, Response) or answer is None:
        changed: Response | None = change(_plain(answer, context))
        return changed
    if isinstance(answer, Later):
        make = answer.make
        return Later(answer.due, lambda: change(_plain(make(), context)), answer.abandon)
    return _changed(answer, change, context)


async def _changed(
    answer: Awaitable[_Made], change: Callable[[Any], Any], context: RequestContext
) -> _Made:
    made: _Made = change(_plain(await answer, context))
    return made


def _plain(made: _Made, context: RequestContext) -> Response | None:
    """Return a response with readable fields, as it may be encoded already."""
    if made is None:
        return None
    message = codec(response_class(context.api_key), context.api_version)
    body = made.body if isinstance(made, EncodedBody) else message.encode(made)
    return message.decode(body)


def _drop(text: str) -> Callable[[_Made], _Made]:
    def drop(_: object) -> _Made:
        raise ProtocolError(f"a test asked that the connection be dropped: {text}")

    return drop


def _has_session(context: RequestContext) -> bool:
    """Return whether a request is a Fetch that has or requests a session (KIP-227)."""
    return (
        context.api_key is ApiKey.FETCH
        and context.api_version >= _SESSIONS
        and context.request.session_epoch >= 0
    )


def _needs_names(fault: Fault) -> bool:
    """Return whether a fault concerns partitions, so that requests must name theirs."""
    target, effect = fault.target, fault.effect
    return (target is not None and target.topic is not None) or (
        isinstance(effect, Refuse) and effect.code not in _OF_SESSIONS
    )


def _meant(fault: Fault) -> tuple[Target, ErrorCode]:
    target, effect = fault.target, fault.effect
    assert target is not None  # noqa: S101 - tells the type checker
    assert isinstance(effect, Refuse)  # noqa: S101 - as above
    return target, effect.code


def _without_topics(made: Any, faults: list[Fault]) -> Any:
    """Give some topics in a Metadata response an error instead of partitions."""
    left = list(made.topics)
    for fault in faults:
        target, code = _meant(fault)
        meant = [one for one in left if target.takes_place(one.name or "", None)]
        if meant and not fault.is_spent:
            fault.strike()
            for topic in meant:
                topic.error_code = code
                topic.partitions = []
            left = [one for one in left if one not in meant]
    return made
