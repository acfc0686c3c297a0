"""Finds slow callbacks of the event loop: the debug switch `kgw.debug.slow.callback.ms`.

In every loop, callbacks and steps of tasks pass through `call_soon` and similar methods; requests
that start in a socket's read pass through the dispatcher. Both are measured in processor time of
the loop's thread, so that other load on the machine does not count. If a callback has been running
for half the limit, a thread samples its stack, which shows the code.

Only imported when the switch is on. Code outside of the dispatcher that runs in a socket's read is
not measured.
"""

from __future__ import annotations

import sys
from asyncio import Task
from contextvars import ContextVar
from pathlib import Path
from threading import Event, Thread, get_ident
from typing import TYPE_CHECKING, Any

from kgw.clock import thread_cpu_s
from kgw.errors import DecodeError, ProtocolError
from kgw.handlers.dispatch import Dispatcher
from kgw.logs import EventLogger, QuietLog
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec, request_class
from kgw.protocol.framing import decode_request_header, peek_request_header

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Mapping
    from types import CodeType, FrameType

    from kgw.clock import Clock
    from kgw.gateway import Gateway
    from kgw.handlers.context import Later, RequestContext, Session
    from kgw.protocol.schema import Struct
    from kgw.types import Buffer

_log = EventLogger(__name__)

_FRAMES_SHOWN = 8


class _Measure:
    """A measurement: when it began, and the code that was running when the stack was sampled."""

    __slots__ = ("began_s", "place", "told_s")

    def __init__(self, began_s: float, told_s: float) -> None:
        self.began_s = began_s
        self.told_s = told_s
        self.place: str | None = None


class SlowCallbacks:
    """Measures the callbacks in the loop's thread, and logs those that take longer than a limit.

    The time of a reported callback is subtracted from the time of the callback that contains it.
    """

    def __init__(self, clock: Clock, slow_s: float) -> None:
        self.slow_s = slow_s
        self.request: ContextVar[memoryview | None] = ContextVar("request", default=None)
        """The current request frame, also in tasks that its answer started."""
        self._clock = clock
        self._quiet = QuietLog(_log)
        self._told_s = 0.0
        self._open: list[_Measure] = []
        self._loop_thread = get_ident()

    def begin(self) -> None:
        """Begin a measurement. `end` must be called when the measured code returns."""
        self._open.append(_Measure(self._clock.cpu_s(), self._told_s))

    def end(self, kind: str, describe: Callable[[], Mapping[str, object]]) -> None:
        """End the latest measurement, and report it if it took too long."""
        measure = self._open.pop()
        told_within_s = self._told_s - measure.told_s
        used_s = self._clock.cpu_s() - measure.began_s - told_within_s
        if used_s < self.slow_s:
            return
        self._report(kind, used_s, describe, measure.place)
        # The time of the report itself does not count for any callback.
        self._told_s += self._clock.cpu_s() - measure.began_s - told_within_s

    def _report(
        self,
        kind: str,
        used_s: float,
        describe: Callable[[], Mapping[str, object]],
        place: str | None,
    ) -> None:
        fields = {"cpu_ms": round(used_s * 1e3, 1), **describe()}
        if place is not None:
            fields["place"] = place
        self._quiet.warning(
            f"{kind} held the event loop",
            f"{kind} {fields.get('name')}",
            self._clock.monotonic_s(),
            fields,
        )

    def run(self, callback: Callable[..., object], *args: object) -> None:
        """Call a callback and measure it. The loop calls this method instead of the callback."""
        self.begin()
        try:
            callback(*args)
        finally:
            self.end("a callback", lambda: self._describe(callback))

    def _describe(self, callback: Callable[..., object]) -> dict[str, object]:
        fields: dict[str, object] = {"name": name_of(callback)}
        frame = self.request.get()
        if frame is not None:
            fields.update(
                (f"request_{key}", value) for key, value in describe_request(frame).items()
            )
        return fields

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """Measure a garbage collection: called through `gc.callbacks` at its beginning and end.

        It is measured separately, as the interrupted code does not cause it.
        """
        if get_ident() != self._loop_thread:
            return
        if phase == "start":
            self.begin()
        else:
            name = f"generation {info['generation']}"
            self.end("a garbage collection", lambda: {"name": name})

    def look(self, used_s: float, stack: Callable[[], str]) -> None:
        """Record the stack of the innermost measurement if it ran long. Called in another thread.

        `used_s` is the processor time of the loop's thread.
        """
        running = self._open[-1:]
        if running and running[0].place is None and used_s - running[0].began_s >= self.slow_s / 2:
            running[0].place = stack()


class StackWatch(Thread):
    """Samples the stack of the thread that creates it, which is the loop's."""

    def __init__(self, slow_callbacks: SlowCallbacks) -> None:
        super().__init__(name="kgw-stack-watch", daemon=True)
        self._slow_callbacks = slow_callbacks
        self._loop_thread = get_ident()
        self._stop_asked = Event()

    def run(self) -> None:
        while not self._stop_asked.wait(self._slow_callbacks.slow_s / 4):
            self._slow_callbacks.look(thread_cpu_s(self._loop_thread), self.stack)

    def stop(self) -> None:
        """End the thread, and wait for its end."""
        self._stop_asked.set()
        self.join()

    def stack(self) -> str:
        """Return the present stack of the loop's thread, the innermost line first."""
        return place_of(sys._current_frames().get(self._loop_thread))  # noqa: SLF001


class WatchedDispatcher(Dispatcher):
    """Measures each request up to its first wait, and the encoding of later answers."""

    def __init__(self, gateway: Gateway, slow_callbacks: SlowCallbacks) -> None:
        super().__init__(gateway)
        self._slow_callbacks = slow_callbacks

    def start(self, frame: memoryview, session: Session) -> Any:
        """As `Dispatcher.start`."""
        slow_callbacks = self._slow_callbacks
        token = slow_callbacks.request.set(frame)
        slow_callbacks.begin()
        try:
            return super().start(frame, session)
        finally:
            slow_callbacks.end("a request", lambda: describe_request(frame))
            slow_callbacks.request.reset(token)

    def encode(self, later: Later) -> list[Buffer] | None:
        """As `Dispatcher.encode`."""
        slow_callbacks = self._slow_callbacks
        slow_callbacks.begin()
        try:
            return super().encode(later)
        finally:
            slow_callbacks.end("an answer", lambda: describe_answer(later.context))


def watched_loop(loop: type[AbstractEventLoop], slow_callbacks: SlowCallbacks) -> AbstractEventLoop:
    """Return a new loop of this class that measures its callbacks."""
    base: Any = loop

    class WatchedLoop(base):  # type: ignore[misc]
        def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
            return super().call_soon(slow_callbacks.run, callback, *args, context=context)

        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
            return super().call_soon_threadsafe(
                slow_callbacks.run, callback, *args, context=context
            )

        def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
            return super().call_later(delay, slow_callbacks.run, callback, *args, context=context)

    new: AbstractEventLoop = WatchedLoop()
    return new


def name_of(callback: Callable[..., object]) -> str:
    """Return the name of a callback; for a step of a task, the name of its coroutine."""
    owner = getattr(callback, "__self__", None)
    coroutine: Any = owner.get_coro() if isinstance(owner, Task) else None
    if coroutine is not None:
        # A finished coroutine still has its code, but no longer its module.
        code: CodeType | None = getattr(coroutine, "cr_code", None)
        place = "" if code is None else f" ({Path(code.co_filename).name}:{code.co_firstlineno})"
        return f"{coroutine.__qualname__}{place}"
    named: Any = getattr(callback, "func", callback)  # functools.partial
    module = getattr(named, "__module__", None) or "?"
    return f"{module}.{getattr(named, '__qualname__', type(named).__name__)}"


def describe_request(frame: memoryview) -> dict[str, object]:
    """Return the log fields of a request: client id, API, version, and lengths of arrays."""
    fields: dict[str, object] = {"bytes": len(frame)}
    try:
        api_key, version, _ = peek_request_header(frame)
        client_id, position = decode_request_header(frame)
        fields |= {"name": ApiKey(api_key).name, "version": version, "client_id": client_id}
        request, _ = codec(request_class(api_key), version).decode_prefix(frame, position)
        fields |= array_lengths(request)
    except (ProtocolError, DecodeError, ValueError, KeyError):
        fields["detail"] = "it cannot be decoded"
    return fields


def describe_answer(context: RequestContext) -> dict[str, object]:
    """Return the log fields of an answer that came later: API, version and client id."""
    fields: dict[str, object] = {
        "name": context.api_key.name,
        "version": context.api_version,
        "client_id": context.session.client_id,
    }
    request = getattr(context, "request", None)
    if request is None:
        fields["detail"] = "it cannot be decoded"
    else:
        fields |= array_lengths(request)
    return fields


def array_lengths(message: Struct) -> dict[str, int]:
    """Return the lengths of a message's arrays; arrays of one name are added up."""
    lengths: dict[str, int] = {}
    for name, field in type(message).field_table.items():
        value = getattr(message, name)
        if field.kind != "array" or value is None:
            continue
        lengths[name] = lengths.get(name, 0) + len(value)
        for element in value if not isinstance(field.item, str) else ():
            for inner, length in array_lengths(element).items():
                lengths[inner] = lengths.get(inner, 0) + length
    return lengths


def place_of(frame: FrameType | None) -> str:
    """Return the innermost lines of a stack, the innermost first."""
    lines: list[str] = []
    while frame is not None and len(lines) < _FRAMES_SHOWN:
        code = frame.f_code
        module = frame.f_globals.get("__name__", "?")
        lines.append(f"{module}.{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(lines)
