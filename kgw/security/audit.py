"""The audit log, `kgw.audit`: operations that clients were denied, and changes of rules and users.

At level debug it also has the operations that were allowed; `kgw.audit.log.level` sets the level. A
denied client repeats its request, so only different denials of a principal are logged, and only
some of them. The metric counts all denials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kgw.logs import LOG_INTERVAL_S, EventLogger

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.metrics import Metrics
    from kgw.security.acls.decision import Decision
    from kgw.security.acls.terms import AclOperation, ResourceType
    from kgw.security.principal import Principal

MOST_LINES: Final = 20
"""Denials of one principal that are logged in `LOG_INTERVAL_S`."""
_MOST_PRINCIPALS: Final = 1_000
"""When more principals than these are denied something, all of them are forgotten."""

_log = EventLogger("kgw.audit")


class _Denials:
    """The denials of one principal since its interval has begun."""

    __slots__ = ("ends_s", "left_out", "logged")

    def __init__(self) -> None:
        self.ends_s = float("-inf")
        self.logged: set[int] = set()
        """Digests of the logged questions, as clients choose long names."""
        self.left_out = 0
        """Denials that were not logged since the last line."""


class Audit:
    """Counts and logs the decisions of the access rules."""

    def __init__(self, metrics: Metrics, monotonic_s: Callable[[], float]) -> None:
        self._metrics = metrics
        self._monotonic_s = monotonic_s
        self._denials: dict[Principal, _Denials] = {}

    @property
    def has_allowed(self) -> bool:
        """Whether operations that are allowed are logged."""
        return _log.has_debug

    def allowed(
        self,
        decision: Decision,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        request: Asking,
    ) -> None:
        """Log an operation that was allowed."""
        fields = _fields(decision, principal, host, operation, resource_type, name, request)
        _log.debug("allowed", **fields)

    def denied(
        self,
        decision: Decision,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        request: Asking,
    ) -> None:
        """Count an operation that was denied, and log it unless the same was logged lately."""
        counts = self._metrics.access_denials
        label = operation.tool_name, resource_type.tool_name
        counts[label] = counts.get(label, 0) + 1
        denials = self._denials_of(principal)
        question = hash((host, operation, resource_type, name))
        if question in denials.logged or len(denials.logged) >= MOST_LINES:
            denials.left_out += 1
            return
        denials.logged.add(question)
        fields = _fields(decision, principal, host, operation, resource_type, name, request)
        if denials.left_out:
            fields["and_before_it"] = denials.left_out
            denials.left_out = 0
        _log.info("denied", **fields)

    def _denials_of(self, principal: Principal) -> _Denials:
        """Return the denials of a principal in the present interval."""
        denials = self._denials.get(principal)
        if denials is None:
            if len(self._denials) >= _MOST_PRINCIPALS:
                self._denials.clear()
            denials = self._denials[principal] = _Denials()
        now_s = self._monotonic_s()
        if now_s >= denials.ends_s:
            denials.ends_s = now_s + LOG_INTERVAL_S
            denials.logged.clear()
        return denials


class Asking(Protocol):
    """The API, or the endpoint of another listener, that asks for a right."""

    @property
    def name(self) -> str: ...


class Author(Protocol):
    """The connection of a client that changes a rule, a user or a token."""

    principal: Principal
    client_host: str


def log_change(event: str, author: Author, **fields: object) -> None:
    """Log that a rule, a user or a token has changed. No field may have a secret."""
    _log.info(event, principal=str(author.principal), host=author.client_host, **fields)


def _fields(
    decision: Decision,
    principal: Principal,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    request: Asking,
) -> dict[str, object]:
    """Return the fields of a line."""
    return {
        "principal": str(principal),
        "host": host,
        "operation": operation.tool_name,
        "resource_type": resource_type.tool_name,
        "resource": name,
        "request": request if isinstance(request, str) else request.name,
        "rule": str(decision.binding or decision.reason),
    }
