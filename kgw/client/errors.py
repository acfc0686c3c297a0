"""Errors between a client and a server, each with a message of one line."""

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
"""The other retriable codes do not say whether something was done, like REQUEST_TIMED_OUT, or may
last for ever, like UNKNOWN_TOPIC_OR_PARTITION."""


class ClientError(KgwError):
    """The base class of the client's errors."""

    retriable = False
    """Whether the same request may succeed when it is sent again."""

    may_be_done = True
    """Whether the request may have been carried out, by this attempt or an earlier one."""

    is_undone = False
    """Whether this attempt has done nothing, and another may succeed: then even a creation is
    repeated."""


class CannotConnectError(ClientError):
    """No connection could be made: unknown host, refused, unreachable, no answer in time."""

    retriable = True
    is_undone = True


class ConnectionLostError(ClientError):
    """The connection ended while requests were pending. They may have been carried out."""

    retriable = True


class RequestTimedOutError(ClientError):
    """No answer in time. The request may have been carried out."""

    retriable = True


class NotKafkaError(ClientError):
    """The peer at that address does not speak Kafka's protocol."""


class UnsupportedApiError(ClientError):
    """The server does not serve this API in any version that this client can use."""

    may_be_done = False


class TopicReplacedError(ClientError):
    """The topic with the requested id is gone, and another one has its name."""

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
        """Whether Kafka's clients retry the code."""
        return self.code.retriable

    @property
    def is_undone(self) -> bool:  # type: ignore[override]
        """Whether the code asks for another node, or for a later attempt."""
        return self.code in _UNDONE

    @property
    def may_be_done(self) -> bool:  # type: ignore[override]
        """Whether the request may have been carried out: not if the server refuses it knowingly.

        A retriable request may have been carried out by an earlier attempt whose answer was lost.
        """
        return self.retriable or self.code is ErrorCode.UNKNOWN_SERVER_ERROR


def refuse(code: int, what: str, message: str | None = None) -> None:
    """Raise ServerRefusedError unless the code is 0."""
    if code:
        raise ServerRefusedError(code, what, message)
