"""The pipeline of a request: from its frame to the frame of its answer, for every API.

    receive       `KafkaConnection` cuts frames, and starts requests in their order
    log in        `Login.admits`, at a listener that asks for a login: only the requests of a login
                  pass before its end. The principal is `Session.principal`
    decode        `RequestDecoder.decode`, or in turns of the loop if the request is large; a Fetch
                  by `FetchDecoder`, which knows a repeated poll
    lead          `_handle`: a process that stands by, or does not know whether it leads, answers
                  as `AnsweredBy` says
    authorise     if there are access rules (`Gateway.access`): `Api.check_rights` for the request
                  as a whole, called by `_handle`; for a topic or another part where the class of
                  the API finds it, and for each partition of a Fetch in `Fetch.find_view`. Each
                  class declares its rights: `Api.rights`
    handle        `_handle`: the class of the API, by parts (`kgw.handlers.parts`); an error of the
                  whole request is an answer, too; an answer that is waited for comes within the
                  time of the request (`_bound`)
    encode        `_encode`; if the answer comes later (`Later`), `encode` builds the response
                  first. The error codes in the answer and the request's time are counted here
    send          `KafkaConnection`, in the order of the requests

Throttle times will be set in `_encode`; a quota mutes a connection in
`KafkaConnection._pause_reading`, and `_read_on` and `_pump` must respect that.
Two answers do not pass `_encode`: that of a request that is not served (`refuse`), and that of a
Produce with acks=0, which has none. The answer of a poll that has waited and ended empty is encoded
already (`EncodedBody`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from kgw.backend.lease import LeaseStatus
from kgw.completion import Completion
from kgw.errors import EncodeError, ErrorCode, KafkaError, ProtocolError, StorageError
from kgw.handlers.answered_by import HELD_S
from kgw.handlers.context import LARGE_REQUEST_BYTES, Later, RequestContext, made
from kgw.handlers.refusal import refuse
from kgw.handlers.table import HANDLERS
from kgw.handlers.within import Within
from kgw.metrics import Histogram
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import EncodedBody, peek_request_header, response_frame
from kgw.protocol.schema import Response
from kgw.turns import RemainingSteps, in_turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.completion import AnyCompletion
    from kgw.gateway import Gateway
    from kgw.handlers.context import Answer, Session
    from kgw.handlers.kept_polls import FetchDecoder
    from kgw.handlers.login import Login
    from kgw.handlers.standby import Standby
    from kgw.handlers.table import Handler
    from kgw.protocol.request_decoder import RequestDecoder
    from kgw.protocol.schema import Request
    from kgw.types import Buffer

_FETCH = int(ApiKey.FETCH)
# An enum's attribute is slow to look up.
_LEADING = LeaseStatus.LEADING

MOST_LATE = 1_000
"""The most requests of one API that may continue after their time is over.

A client whose request timed out sends another one, and the work of each request stays in memory
until the storage answers.
"""


class Dispatcher:
    """Turns request frames into response frames.

    Called in the event loop's thread only.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        # The loop has only weak references to tasks, so they are held here.
        self._tasks: set[asyncio.Future[Response | EncodedBody | None]] = set()
        self._large_works: set[RequestContext] = set()
        # The histograms of `Metrics.request_times`, as looking them up by name would be slower.
        self._times: dict[ApiKey, Histogram] = {}
        self._standby: Standby | None = None
        self.late_requests: Counter[ApiKey] = Counter()
        """Requests that continue after their time is over; Produce counts bytes instead."""

    @property
    def gateway(self) -> Gateway:
        return self._gateway

    async def serve(self, gateway: Gateway) -> None:
        """Answer with another gateway from now on, on the same connections."""
        await self.end_standby()
        self._gateway = gateway

    async def end_standby(self) -> None:
        """Close the `Standby`: the process is no standby any longer."""
        standby, self._standby = self._standby, None
        if standby is not None:
            await standby.aclose()

    def _stand_by(self) -> Standby:
        """Return the object that answers requests while the process stands by."""
        if self._standby is None:
            from kgw.handlers.standby import Standby

            self._standby = Standby(self._gateway)
        return self._standby

    def may_overlap(self, frame: Buffer) -> bool:
        """Return whether this request may start while earlier requests of its kind still wait.

        Only a Produce may: its appends have been submitted in order when `start` returns, or when
        the `submission` of its context is done.
        """
        try:
            return not (frame[0] or frame[1])
        except IndexError:
            return False  # A token of a login, which may be shorter than any request.

    def is_fetch(self, frame: Buffer) -> bool:
        """Return whether this request is a Fetch, whose answer may be large."""
        try:
            return frame[1] == _FETCH and not frame[0]
        except IndexError:
            return False

    @property
    def has_large_work(self) -> bool:
        """Whether a large request is being decoded, or answered without a disk or records.

        Another large request should wait then: a decoded request takes a hundred times its bytes,
        which no budget counts. A decoded request that waits for a disk or for records (Produce,
        Fetch, OffsetCommit, ListOffsets, DeleteRecords and others) does not count: large requests
        would wait as long as it does, and the server runs the loop without a pause while a request
        is held. But the steps count that such a request takes in several turns of the loop: a
        Metadata looks for its topics before it creates the missing ones.
        """
        return bool(self._large_works) or self._gateway.answer_turns.locked()

    def start(self, frame: memoryview, session: Session) -> list[Buffer] | Later | None:
        """Begin to answer a frame, without its length field.

        Returns the response's buffers, length first, if the answer needs no wait; None if there is
        no response; else a `Later`, which `encode` turns into buffers when its `due` is done. The
        frame must be writable, and the caller must not use it afterwards.

        Raises ProtocolError (also later, from `encode`) when the connection must be closed.
        """
        gateway, login = self._gateway, session.login
        if login is not None and login.has_bare_tokens:
            return self._answer_token(frame, login, session)
        api_key, api_version, correlation_id = peek_request_header(frame)
        handler = HANDLERS.get(api_key)
        if login is not None and not login.admits(api_key, gateway.clock.monotonic_s()):
            error = KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "not in this state of the login")
            return refuse(frame, handler, gateway, session, error)
        if handler is None or not handler.min_version <= api_version <= handler.max_version:
            return refuse(frame, handler, gateway, session)
        requests = gateway.metrics.requests
        requests[handler.label] = requests.get(handler.label, 0) + 1
        codec = handler.codecs.get(api_version) or handler.codec(api_version)
        context = RequestContext(gateway, session, handler.api_key, api_version, correlation_id)
        decoder: RequestDecoder | FetchDecoder
        decoder = session.fetch_decoder if api_key == _FETCH else session.decoder
        is_large = len(frame) > LARGE_REQUEST_BYTES
        if is_large:
            decoding = in_turns(decoder.decode_in_turns(frame, codec), gateway.answer_turns)
            if isinstance(decoding, RemainingSteps):
                self._large_works.add(context)
                if self.may_overlap(frame):
                    context.submission = Completion()
                return self._wait(self._answer_large(decoding, handler, context), context)
            context.request = decoding
        else:
            context.request = decoder.decode(frame, codec)
        answer = self._handle(handler, context)
        # `Later` is tested first, as it is the most common: `isinstance` with `Response`, which has
        # a metaclass, takes four times as long.
        if isinstance(answer, Later):
            answer.context = context
            return answer
        if answer is None:
            return None
        if isinstance(answer, Response):
            return self._encode(answer, context)
        if is_large and isinstance(answer, RemainingSteps):
            self._large_works.add(context)
        return self._wait(answer, context)

    def _answer_token(self, frame: memoryview, login: Login, session: Session) -> Later:
        """Answer a token of a login that has no request header."""
        from kgw.handlers.login_step import answer_bare_token

        context = RequestContext(self._gateway, session, ApiKey.SASL_AUTHENTICATE, 0, 0)
        return self._wait(answer_bare_token(bytes(frame), login, context), context)

    def encode(self, later: Later) -> list[Buffer] | None:
        """Return the frame of an answer whose `due` is done; None if there is no response.

        Call it once.

        Raises ProtocolError and asyncio.CancelledError; any other error becomes an answer.
        """
        context = later.context
        try:
            message = later.make()
        except (ProtocolError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - every error has an answer
            message = self._error(context, error)
        return None if message is None else self._encode(message, context)

    def _handle(
        self, handler: Handler, context: RequestContext, *, was_held: bool = False
    ) -> Answer:
        """Let the API's class answer a request; an error that it raises becomes an answer, too."""
        try:
            status = context.gateway.node.status
            if status is not _LEADING:
                # This is rare, and cannot happen with a single server.
                if status is LeaseStatus.STANDBY:
                    return self._stand_by().answer(handler, context)
                if not was_held and _is_held(context):
                    return self._answer_held(handler, context)
                handler.owner.check(status)
            code = handler.late_code
            if code is not None and self.late_requests[context.api_key] >= MOST_LATE:
                text = f"{MOST_LATE} requests before it are not done, and their time is over"
                return self._error(context, KafkaError(code, text))
            api = handler.api(context.request, context)
            if context.gateway.access is not None:
                api.check_rights()
            answer = api.answer()
            if code is None or answer is None or isinstance(answer, Response | RemainingSteps):
                return answer
            return self._bound(answer, code, handler, context)
        except ProtocolError:
            raise
        except Exception as error:  # noqa: BLE001 - every error has an answer
            return self._error(context, error)

    def _bound(
        self,
        answer: Later | Awaitable[Response | EncodedBody | None],
        code: ErrorCode,
        handler: Handler,
        context: RequestContext,
    ) -> Later:
        """Return the answer, or an error when the request's time is over.

        The work that the request has begun continues.
        """
        later = answer if isinstance(answer, Later) else self._wait(answer, context)
        due, make = later.due, later.make
        within = Within(due, context, partial(self._look_after, due, make, handler, context))

        def made_in_time() -> Response | EncodedBody | None:
            if not within.is_late:
                return make()
            text = f"not done within {within.limit_s:g} s; it goes on, and may be done later"
            return self._error(context, KafkaError(code, text))

        later.due, later.make = within, made_in_time
        return later

    def _look_after(
        self,
        due: AnyCompletion,
        make: Callable[[], Response | EncodedBody | None],
        handler: Handler,
        context: RequestContext,
    ) -> None:
        """Count a request that goes on though its time is over, and report a bug that ends it."""
        self.late_requests[context.api_key] += 1

        def settled(_: object) -> None:
            self.late_requests[context.api_key] -= 1
            try:
                make()
            except (KafkaError, StorageError, ProtocolError, asyncio.CancelledError):
                # If the client sends the request again, it learns the outcome.
                return
            except Exception as error:  # noqa: BLE001 - nobody else would be told
                context.gateway.report_internal_error(handler.label, error)

        due.when_done(settled)

    def _answer_held(
        self, handler: Handler, context: RequestContext
    ) -> Awaitable[Response | EncodedBody | None]:
        """Answer a request when the leading server is known."""
        if context.api_key is ApiKey.PRODUCE and context.submission is None:
            # The next Produce of the connection must be appended after this one.
            context.submission = Completion()
        return self._held(handler, context)

    async def _held(
        self, handler: Handler, context: RequestContext
    ) -> Response | EncodedBody | None:
        try:
            await context.gateway.node.until_leader_known(HELD_S)
            return await made(self._handle(handler, context, was_held=True))
        finally:
            if context.submission is not None and not context.submission.is_done:
                context.submission.finish()

    async def _answer_large(
        self, decoding: RemainingSteps[Request], handler: Handler, context: RequestContext
    ) -> Response | EncodedBody | None:
        """Decode a large request in several turns of the loop, then answer it."""
        try:
            context.request = await decoding
            self._large_works.discard(context)
            answer = self._handle(handler, context)
            if answer is None or isinstance(answer, Response):
                return answer
            if isinstance(answer, Later):
                return await answer.made()
            if isinstance(answer, RemainingSteps):
                self._large_works.add(context)
            return await answer
        finally:
            if context.submission is not None and not context.submission.is_done:
                context.submission.finish()

    def _wait(
        self, answer: Awaitable[Response | EncodedBody | None], context: RequestContext
    ) -> Later:
        """Run a coroutine that makes the answer, as a task."""
        task = asyncio.ensure_future(answer)
        self._tasks.add(task)
        due: Completion[None] = Completion()
        task.add_done_callback(partial(self._end, context, due))
        # Only a Fetch is cancelled, as it changes nothing. Any other request runs to its end.
        later = Later(due, task.result, task.cancel if context.api_key is ApiKey.FETCH else None)
        later.context = context
        return later

    def _end(
        self,
        context: RequestContext,
        due: Completion[None],
        task: asyncio.Future[Response | EncodedBody | None],
    ) -> None:
        self._tasks.discard(task)
        self._large_works.discard(context)
        # An error's traceback refers to the request, and back to the error. If the client has gone,
        # both would stay in memory until the garbage collector runs.
        try:
            error = task.exception()
        except asyncio.CancelledError:
            # The task no longer refers to the error, as `exception` has been called.
            error = None
        if isinstance(error, ProtocolError):
            error.__traceback__ = None
        due.set_result(None)

    def _encode(self, message: Response | EncodedBody, context: RequestContext) -> list[Buffer]:
        """Return the frame of an answer, and count its errors and the time that it took.

        If a bug keeps a response from encoding, the API's error takes its place.
        """
        gateway, api_key = self._gateway, context.api_key
        if isinstance(message, EncodedBody):
            frame = message.frame(context.correlation_id)
        else:
            try:
                frame = response_frame(message, context.api_version, context.correlation_id)
            except EncodeError as error:
                refusal = self._error(context, error)
                if refusal is None:
                    raise ProtocolError(f"{api_key.name}: no answer can be given") from error
                message = refusal
                frame = response_frame(message, context.api_version, context.correlation_id)
            context.count_error_codes(message)
        time = self._times.get(api_key)
        if time is None:
            times = gateway.metrics.request_times
            time = self._times[api_key] = times.setdefault(api_key.name, Histogram())
        time.observe(gateway.clock.monotonic_s() - context.received_s)
        return frame

    def _error(self, context: RequestContext, error: Exception) -> Response | None:
        """Return the API's response for an error of the whole request."""
        handler = HANDLERS[context.api_key]
        if isinstance(error, KafkaError | StorageError):
            code, text = error.code, error.message
        else:
            code, text = handler.bug_code, None
            self._gateway.report_internal_error(handler.label, error)
        errors = self._gateway.metrics.request_errors
        key = (handler.label, code.name)
        errors[key] = errors.get(key, 0) + 1
        return handler.api.refuse(context.request, code, text, context)


def _is_held(context: RequestContext) -> bool:
    """Return whether a request waits for a new leader, because another server is about to lead."""
    gateway = context.gateway
    return (
        gateway.node.is_handing_over
        and gateway.node.status is LeaseStatus.UNCONFIRMED
        and context.api_key is not ApiKey.API_VERSIONS
    )
