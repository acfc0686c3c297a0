"""The access rules of a cluster: in memory for decisions, and in the state store."""

from __future__ import annotations

from asyncio import Lock, sleep
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import StorageError
from kgw.security.acls.authorizer import Authorizer
from kgw.security.acls.binding import check, decode
from kgw.security.acls.terms import PermissionType
from kgw.security.audit import log_change
from kgw.security.principal import parse_principal
from kgw.state.base import Change, DamagedRowsError
from kgw.state.kinds import ACCESS_RULE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from kgw.security.acls.binding import AclBinding
    from kgw.security.acls.decision import Decision
    from kgw.security.acls.terms import AclOperation, ResourceType
    from kgw.security.audit import Asking, Audit, Author
    from kgw.security.principal import Principal
    from kgw.state.base import StateStore

_ANY_NAME: Final = "*"
"""In the audit log: the client may perform the operation on no resource of a type."""
_PER_TURN: Final = 200
"""The number of rules that are encoded, or take effect, in one turn of the event loop."""
HOW_TO_DELETE_DAMAGED: Final = (
    "`kgw acls delete --damaged --data-dir DIR` prints and deletes damaged rules"
)


class DamagedRule(NamedTuple):
    """A stored access rule that cannot be read."""

    key: str
    """The key of its row."""
    why: str
    content: str
    """The readable part of the row; it may be wrong."""


class StoredRules(NamedTuple):
    """The access rules in a state store."""

    intact: list[AclBinding]
    damaged: list[DamagedRule]


async def load_rules(state: StateStore) -> StoredRules:
    """Return the stored rules, sorted into those that can be read and others. StorageError."""
    intact: list[AclBinding] = []
    damaged: list[DamagedRule] = []
    try:
        rows = await state.load(ACCESS_RULE)
    except DamagedRowsError as error:
        rows = error.intact
        why = "its row fails the checksum"
        damaged += [DamagedRule(key, why, _text(error.values.get(key))) for key in error.damaged]
    for key, row in rows.items():
        try:
            intact.append(decode(row.value))
        except ValueError as error:
            damaged.append(DamagedRule(key, str(error), _text(row.value)))
    return StoredRules(intact, damaged)


async def delete_damaged_rules(state: StateStore) -> list[DamagedRule]:
    """Delete the damaged rules durably, in a state that no server serves, and return them.

    Raises StorageError.
    """
    damaged = (await load_rules(state)).damaged
    await state.apply([Change(ACCESS_RULE, one.key, None) for one in damaged])
    return damaged


def _text(value: object) -> str:
    if value is None:
        return "nothing of it can be read"
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else repr(value)


class Access:
    """What clients may do. Until `open` has loaded the rules, super users alone may do anything."""

    def __init__(self, super_users: Iterable[str], audit: Audit, most_rules: int = 10_000) -> None:
        """`super_users` are principals as text. Raises ValueError for another text.

        Rules are added as long as there are fewer than `most_rules`.
        """
        self._most_rules = most_rules
        self._authorizer = Authorizer(map(parse_principal, super_users))
        self._audit = audit
        self._state: StateStore
        self._changing = Lock()
        self.version = 0
        """Grows with each change of the rules."""
        self.when_changed: list[Callable[[], Awaitable[None]]] = []
        """Called and awaited after each change of the rules, before `add` and `remove` return."""

    async def open(self, state: StateStore) -> None:
        """Load all rules. Raises StorageError.

        A rule that cannot be read might be one that denies, so none is left out.
        """
        self._state = state
        stored = await load_rules(state)
        if stored.damaged:
            others = f", and {len(stored.damaged) - 1} more" if len(stored.damaged) > 1 else ""
            raise StorageError(
                f"a stored access rule is damaged: {stored.damaged[0].why}{others}; it may be one "
                f"that denies. {HOW_TO_DELETE_DAMAGED}"
            )
        self._authorizer.add(stored.intact)

    # --- questions -------------------------------------------------------------------------------

    def permits(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        request: Asking,
        quiet: bool = False,
    ) -> bool:
        """Return whether a client may perform an operation on a resource.

        `request` is the API or the endpoint that asks. With `quiet`, a denial is neither counted
        nor logged.
        """
        decision = self._authorizer.decide(principal, host, operation, resource_type, name)
        if decision.is_allowed and not self._audit.has_allowed:
            return True
        question = (principal, host, operation, resource_type, name)
        return self._told(decision, question, request, quiet=quiet)

    def permits_any(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        *,
        request: Asking,
        quiet: bool = False,
    ) -> bool:
        """Return whether a client may perform an operation on some resource of a type."""
        decision = self._authorizer.decide_for_any(principal, host, operation, resource_type)
        question = (principal, host, operation, resource_type, _ANY_NAME)
        return self._told(decision, question, request, quiet=quiet)

    def operations(
        self, principal: Principal, host: str, resource_type: ResourceType, name: str
    ) -> frozenset[AclOperation]:
        """Return the operations that a client may perform on a resource (KIP-430)."""
        return self._authorizer.operations(principal, host, resource_type, name)

    def bindings(self) -> list[AclBinding]:
        """Return all rules."""
        return self._authorizer.bindings()

    def _told(
        self,
        decision: Decision,
        question: tuple[Principal, str, AclOperation, ResourceType, str],
        request: Asking,
        *,
        quiet: bool,
    ) -> bool:
        """Return whether an operation is allowed, and tell the audit log."""
        if not decision.is_allowed:
            if not quiet:
                self._audit.denied(decision, *question, request)
        elif self._audit.has_allowed:
            self._audit.allowed(decision, *question, request)
        return decision.is_allowed

    # --- changes ---------------------------------------------------------------------------------

    async def add(
        self, bindings: Iterable[AclBinding], author: Author | None = None
    ) -> frozenset[AclBinding]:
        """Add rules, durably and in force on return. Return the rules for which there is no room.

        A rule that exists already stays, and needs no room. The audit log has the new rules of an
        author. Raises StorageError; ValueError if `check` refuses a rule, and then none is added.
        """
        async with self._changing:
            new = [one for one in dict.fromkeys(bindings) if one not in self._authorizer]
            room = max(0, self._most_rules - len(self._authorizer))
            for binding in new[:room]:
                check(binding)
            await self._change(new[:room], author, is_added=True)
        return frozenset(new[room:])

    async def remove(self, bindings: Iterable[AclBinding], author: Author | None = None) -> None:
        """Remove rules, durably and out of force on return. Raises StorageError."""
        async with self._changing:
            gone = [one for one in dict.fromkeys(bindings) if one in self._authorizer]
            await self._change(gone, author, is_added=False)

    async def _change(
        self, bindings: Sequence[AclBinding], author: Author | None, *, is_added: bool
    ) -> None:
        if not bindings:
            return
        take = self._authorizer.add if is_added else self._authorizer.remove
        rows: list[Change] = []
        for some in _slices(bindings):
            rows += [_row(one, one.encode() if is_added else None) for one in some]
            await sleep(0)
        # Also a rule that is removed holds until the store has forgotten it: after a crash the
        # same rules must hold as before.
        await self._state.apply(rows)
        # Rules that deny take effect first, and lose it last: between two steps, no client may do
        # anything that it may do neither before nor after the change.
        last = PermissionType.ALLOW if is_added else PermissionType.DENY
        for some in _slices(sorted(bindings, key=lambda one: one.permission is last)):
            take(some)
            self.version += 1
            if author is not None:
                for one in some:
                    log_change("rule added" if is_added else "rule removed", author, rule=one)
            await sleep(0)
        for call in self.when_changed:
            await call()


def _slices(bindings: Sequence[AclBinding]) -> Iterator[Sequence[AclBinding]]:
    for first in range(0, len(bindings), _PER_TURN):
        yield bindings[first : first + _PER_TURN]


def _row(binding: AclBinding, value: bytes | None) -> Change:
    """Return the change of a rule's row. Equal rules have one row."""
    return Change(ACCESS_RULE, sha256(binding.encode()).hexdigest(), value)
