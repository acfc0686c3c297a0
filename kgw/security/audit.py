"""The audit log: operations that clients were denied, at level debug also allowed operations.

The lines have the logger `kgw.audit`. A denied client repeats its request, so only some denials of
a principal and operation are logged (`QuietLog`). The metric counts all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.logs import EventLogger, QuietLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.metrics import Metrics
    from kgw.security.acls.decision import Decision
    from kgw.security.acls.terms import AclOperation, ResourceType
    from kgw.security.principal import Principal

_log = EventLogger("kgw.audit")


class Audit:
    """Counts and logs the decisions of the access rules."""

    def __init__(self, metrics: Metrics, monotonic_s: Callable[[], float]) -> None:
        self._metrics = metrics
        self._monotonic_s = monotonic_s
        self._quiet = QuietLog(_log)

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
        request: str,
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
        request: str,
    ) -> None:
        """Count an operation that was denied, and log it if its kind was not logged lately."""
        denials = self._metrics.access_denials
        label = operation.tool_name, resource_type.tool_name
        denials[label] = denials.get(label, 0) + 1
        fields = _fields(decision, principal, host, operation, resource_type, name, request)
        self._quiet.info("denied", f"{principal} {operation.name}", self._monotonic_s(), fields)


def _fields(
    decision: Decision,
    principal: Principal,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    request: str,
) -> dict[str, object]:
    """Return the fields of a line."""
    return {
        "principal": str(principal),
        "host": host,
        "operation": operation.tool_name,
        "resource_type": resource_type.tool_name,
        "resource": name,
        "request": request,
        "rule": str(decision.binding or decision.reason),
    }
