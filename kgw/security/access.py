"""The access rules of a cluster: in memory for decisions, and in the state store."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from kgw.errors import StorageError
from kgw.security.acls.authorizer import Authorizer
from kgw.security.acls.binding import AclBinding, AclBindingFilter, check, decode
from kgw.security.principal import parse_principal
from kgw.state.base import Change, DamagedRowsError
from kgw.state.kinds import ACCESS_RULE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.security.acls.terms import AclOperation, ResourceType
    from kgw.security.principal import Principal
    from kgw.state.base import StateStore

KAFKA_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The value of `authorizer.class.name` that switches the rules on."""


class Access:
    """What clients may do. Call `load` before anything else."""

    def __init__(self, state: StateStore, super_users: Iterable[str]) -> None:
        """`super_users` are principals as text. Raises ValueError for another text."""
        self._state = state
        self._authorizer = Authorizer(map(parse_principal, super_users))

    async def load(self) -> None:
        """Read all rules. Raises StorageError.

        A rule that cannot be read might be one that denies, so none is left out.
        """
        try:
            rows = await self._state.load(ACCESS_RULE)
            self._authorizer.add(decode(row.value) for row in rows.values())
        except (DamagedRowsError, ValueError) as error:
            raise StorageError(f"a stored access rule is damaged: {error}") from error

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Return whether a client may perform an operation on a resource."""
        return self._authorizer.is_allowed(principal, host, operation, resource_type, name)

    def is_allowed_for_any(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return whether a client may perform an operation on some resource of a type."""
        return self._authorizer.is_allowed_for_any(principal, host, operation, resource_type)

    def operations(
        self, principal: Principal, host: str, resource_type: ResourceType, name: str
    ) -> frozenset[AclOperation]:
        """Return the operations that a client may perform on a resource (KIP-430)."""
        return self._authorizer.operations(principal, host, resource_type, name)

    def bindings(self, acl_filter: AclBindingFilter) -> list[AclBinding]:
        """Return the rules that a filter finds."""
        return self._authorizer.bindings(acl_filter)

    async def add(self, bindings: list[AclBinding]) -> None:
        """Add rules, durably on return. Raises ValueError for a wrong rule, StorageError."""
        for binding in bindings:
            check(binding)
        await self._state.apply([_row(binding, binding.encode()) for binding in bindings])
        self._authorizer.add(bindings)

    async def remove(self, bindings: list[AclBinding]) -> None:
        """Remove rules, durably on return. Raises StorageError."""
        # A rule that denies holds until the store has forgotten it; so does one that allows.
        await self._state.apply([_row(binding, None) for binding in bindings])
        self._authorizer.remove(bindings)


def _row(binding: AclBinding, value: bytes | None) -> Change:
    """Return the change of a rule's row. Equal rules have one row."""
    return Change(ACCESS_RULE, sha256(binding.encode()).hexdigest(), value)
