"""AlterUserScramCredentials, key 51, version 0: set and delete SCRAM credentials (KIP-554).

Behaviour:
- the changes are durable before the answer; all changes of one user are made, or none;
- an empty name, the name `*`, and iterations below 4,096 or above 16,384: UNACCEPTABLE_CREDENTIAL;
  a mechanism that does not exist: UNSUPPORTED_SASL_MECHANISM; a credential that is set or deleted
  twice: DUPLICATE_RESOURCE; a deleted credential that does not exist: RESOURCE_NOT_FOUND;
- a login that has begun ends as it would have; a session that is open stays open.

The client sends a salted password, never the password itself.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.parts import Api
from kgw.handlers.rights import Rights
from kgw.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from kgw.security.acls.terms import AclOperation
from kgw.security.audit import log_change
from kgw.security.credentials import check_user
from kgw.security.sasl.scram import ScramMechanism, credential_of_salted
from kgw.turns import StepBudget, finish

if TYPE_CHECKING:
    from kgw.handlers.context import Answer, RequestContext
    from kgw.security.credentials import CredentialChanges, Credentials
    from kgw.security.sasl.scram import ScramCredential
    from kgw.turns import Turns

_PER_TURN = 200


class AlterUserScramCredentials(Api):
    response_type = AlterUserScramCredentialsResponse
    rights = Rights(cluster=AclOperation.ALTER)

    @classmethod
    def refuse(
        cls, request: Any, code: ErrorCode, message: str | None, context: RequestContext
    ) -> AlterUserScramCredentialsResponse:
        names = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
        return AlterUserScramCredentialsResponse(
            results=[_result(name, KafkaError(code, message)) for name in names]
        )

    def answer(self) -> Answer:
        return self._answer()

    async def _answer(self) -> AlterUserScramCredentialsResponse:
        credentials = await self.gateway.load_credentials()
        async with credentials.turn:
            errors, changes = await finish(self._look(credentials), self.gateway.answer_turns)
            if changes:
                await credentials.change(changes)
                await finish(self._log(changes))
        results = (_result(name, error) for name, error in errors.items())
        return AlterUserScramCredentialsResponse(results=await self.encoded(results, _PER_TURN))

    def _log(self, changes: CredentialChanges) -> Turns[None]:
        """Tell the audit log of the changes, without their secrets."""
        author, budget = self.context.session, StepBudget(_PER_TURN)
        for (mechanism, user), credential in changes.items():
            event = "password deleted" if credential is None else "password set"
            log_change(event, author, user=user, mechanism=mechanism.sasl_name)
            if budget.spend():
                yield

    def _look(
        self, credentials: Credentials
    ) -> Turns[tuple[dict[str, KafkaError | None], CredentialChanges]]:
        """Return an error or None for each user, and the changes of users without an error."""
        budget = StepBudget(_PER_TURN)
        errors: dict[str, KafkaError | None] = {}
        changes: CredentialChanges = {}
        times: Counter[tuple[int, str]] = Counter()
        for wanted in (*self.request.deletions, *self.request.upsertions):
            times[wanted.mechanism, wanted.name] += 1
            if budget.spend():
                yield
        for wanted in (*self.request.deletions, *self.request.upsertions):
            errors.setdefault(wanted.name, None)
            try:
                mechanism = _mechanism(wanted)
                is_set = isinstance(wanted, ScramCredentialUpsertion)
                if not is_set and credentials.user_credential(mechanism, wanted.name) is None:
                    text = f"the user has no credential for {mechanism.sasl_name}"
                    raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, text)
                # Kafka looks at this before it looks at the credentials themselves.
                if times[wanted.mechanism, wanted.name] > 1:
                    text = "the request changes this credential more than once"
                    raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)
                credential = _credential(mechanism, wanted) if is_set else None
                changes[mechanism, wanted.name] = credential
            except KafkaError as error:
                errors[wanted.name] = errors[wanted.name] or error
            if budget.spend():
                yield
        return errors, {key: one for key, one in changes.items() if errors[key[1]] is None}


def _mechanism(wanted: Any) -> ScramMechanism:
    """Return the mechanism of a change. Raises KafkaError, also for a name that cannot be."""
    try:
        check_user(wanted.name)
    except ValueError as error:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from None
    try:
        return ScramMechanism.of_code(wanted.mechanism)
    except ValueError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, str(error)) from None


def _credential(mechanism: ScramMechanism, wanted: ScramCredentialUpsertion) -> ScramCredential:
    """Return the credential that a request sets. Raises KafkaError."""
    try:
        return credential_of_salted(
            mechanism, wanted.salted_password, wanted.salt, wanted.iterations
        )
    except ValueError as error:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from None


def _result(name: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
