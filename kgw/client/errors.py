"""The errors between a client and a server; each has a one-line message."""

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
"""Codes that say that nothing was done and that will pass. Other retriable codes may hide a
completed request, like REQUEST_TIMED_OUT, or last for ever, like UNKNOWN_TOPIC_OR_PARTITION."""


class ClientError(KgwError):
    """The base class of the client's errors."""

    retriable = False
    """Whether the same request may succeed in a retry."""

    may_be_done = True
    """Whether the request may have been carried out, in this attempt or an earlier one."""

    is_undone = False
    """Whether this attempt has certainly done nothing and a retry may succeed, so that even a
    creation may be retried."""


class CannotConnectError(ClientError):
    """No connection was made: unknown host, refused, unreachable, or no answer in time."""

    retriable = True
    is_undone = True


class HungUpError(CannotConnectError):
    """A connection was made, and the server closed it before it had answered anything."""

    def __init__(self, message: str, *, is_encrypted: bool = False) -> None:
        super().__init__(message)
        self.is_encrypted = is_encrypted
        """Whether the client's side of a TLS handshake had succeeded. In TLS 1.3 the server looks
        at the client's certificate only afterwards."""


class ConnectionLostError(ClientError):
    """The connection was lost while requests were pending. They may have been carried out."""

    retriable = True


class RequestTimedOutError(ClientError):
    """The server did not answer in time. The request may have been carried out."""

    retriable = True


class NotKafkaError(ClientError):
    """The peer at that address does not speak Kafka's protocol."""

    def __init__(self, message: str, *, speaks_tls: bool = False) -> None:
        super().__init__(message)
        self.speaks_tls = speaks_tls
        """Whether it has answered with TLS, so that it may be a Kafka server all the same."""


class UnsupportedApiError(ClientError):
    """The server does not support the API in any version that this client supports."""

    may_be_done = False


class TlsError(ClientError):
    """There is no TLS with the peer: a certificate is refused, or the peer speaks no TLS."""

    def __init__(self, message: str, *, reason: str = "", verify_code: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        """OpenSSL's name of the failure."""
        self.verify_code = verify_code
        """OpenSSL's code for why the server's certificate is refused; 0 if it is not."""


class LoginError(ClientError):
    """The server broke the rules of the login, or has not proved that it knows the password."""


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
        """Whether Kafka's clients retry a request after this code."""
        return self.code.retriable

    @property
    def is_undone(self) -> bool:  # type: ignore[override]
        """Whether the code asks for another node or a later attempt, so that nothing was done."""
        return self.code in _UNDONE

    @property
    def may_be_done(self) -> bool:  # type: ignore[override]
        """Whether the request may have been carried out: False if the server clearly refused it.

        True for a retriable code, as an earlier attempt may have been carried out without a
        response.
        """
        return self.retriable or self.code is ErrorCode.UNKNOWN_SERVER_ERROR


class LoginRefusedError(ServerRefusedError):
    """The server refused the login: the mechanism, the user or the password."""


def refuse(code: int, what: str, message: str | None = None) -> None:
    """Raise ServerRefusedError unless the code is 0."""
    if code:
        raise ServerRefusedError(code, what, message)
