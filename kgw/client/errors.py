"""What can go wrong between a client and a server, each said in one line."""

from __future__ import annotations

from typing import Final

from kgw.errors import ErrorCode, KgwError

_UNDONE: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Other retriable codes do not say whether something was done, as REQUEST_TIMED_OUT, or may last
for ever, as UNKNOWN_TOPIC_OR_PARTITION."""


class ClientError(KgwError):
    """Root of the client's errors."""

    retriable = False
    """Whether the same request may succeed when it is sent again."""

    may_be_done = True
    """Whether what was asked may have been done, after as many attempts as there were."""

    is_undone = False
    """Whether this attempt has done nothing, and another one may: even a creation is repeated."""


class CannotConnectError(ClientError):
    """No connection could be made: unknown host, refused, unreachable, no answer in time."""

    retriable = True
    is_undone = True


class ConnectionLostError(ClientError):
    """The connection ended while answers were awaited. What was asked may have been done."""

    retriable = True


class RequestTimedOutError(ClientError):
    """No answer in time. What was asked may have been done."""

    retriable = True


class NotKafkaError(ClientError):
    """What answers at that address does not speak Kafka's protocol."""


class UnsupportedApiError(ClientError):
    """The server does not serve this API in any version that this client can use."""

    may_be_done = False


class TopicReplacedError(ClientError):
    """A topic that was asked for by its id is no more, and another one has its name."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} has been deleted and created again")
        self.topic = topic


class ServerRefusedError(ClientError):
    """The server answered with an error code."""

    def __init__(self, code: int, what: str, message: str | None = None) -> None:
        try:
            self.code = ErrorCode(code)
            name = self.code.name
        except ValueError:
            self.code = ErrorCode.UNKNOWN_SERVER_ERROR
            name = f"error code {code}"
        detail = f" ({message})" if message and message != name else ""
        super().__init__(f"{what}: {name}{detail}")

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """As Kafka's clients treat the code."""
        return self.code.retriable

    @property
    def is_undone(self) -> bool:  # type: ignore[override]
        """Whether the code says that another node is to be asked, or this one later."""
        return self.code in _UNDONE

    @property
    def may_be_done(self) -> bool:  # type: ignore[override]
        """A server does nothing of what it refuses, unless it does not know itself what happened.

        What was sent again and again may have been done by an attempt whose answer was lost.
        """
        return self.retriable or self.code is ErrorCode.UNKNOWN_SERVER_ERROR


def refuse(code: int, what: str, message: str | None = None) -> None:
    """Raise ServerRefusedError unless the code is 0."""
    if code:
        raise ServerRefusedError(code, what, message)
