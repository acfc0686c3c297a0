"""The errors that a failed login raises. Pure."""

from __future__ import annotations

from kgw.errors import ErrorCode, KafkaError


class AuthenticationFailed(KafkaError):  # noqa: N818 - the name of Kafka's event, not a defect
    """A login is refused.

    `message` is for the client, and depends on the mechanism alone: it is Kafka's sentence, and
    tells neither whether the user exists nor which check has failed. `reason` is for the server's
    log. A reason is a fixed sentence: it never contains bytes of the client, which may hold a
    password. `user` is the name that the client claimed, if its message could be parsed; whoever
    logs it escapes control characters.

    The error is raised outside `except` blocks, because the exception of a decoder holds the bytes
    that it could not decode, and logs print the context of an exception.
    """

    def __init__(
        self,
        mechanism: str,
        reason: str,
        user: str | None = None,
        *,
        message: str | None = None,
        is_logged: bool = False,
    ) -> None:
        """`is_logged` says that an earlier step of the same login has reported the failure."""
        super().__init__(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            message
            or "Authentication failed during authentication due to invalid credentials "
            f"with SASL mechanism {mechanism}",
        )
        self.mechanism = mechanism
        self.reason = reason
        self.user = user
        self.is_logged = is_logged


class TooManyFailed(AuthenticationFailed):
    """A login is refused because too many others have failed (`kgw.security.sasl.failed_logins`).

    A login that has failed itself is answered with this error, too, if its network is beyond the
    limit.
    """

    def __init__(
        self, mechanism: str, reason: str = "too many logins have failed", user: str | None = None
    ) -> None:
        message = (
            "Authentication failed: too many logins from this address have failed; try again in a "
            f"minute (SASL mechanism {mechanism})"
        )
        super().__init__(mechanism, reason, user, message=message)
