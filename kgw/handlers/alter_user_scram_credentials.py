"""AlterUserScramCredentials, key 51, version 0: set and delete SCRAM credentials (KIP-554).

Behaviour:
- the changes are durable before the answer; those of one user are all made, or none of them;
- an empty name, and iterations below 4,096 or above 16,384: UNACCEPTABLE_CREDENTIAL; a mechanism
  that does not exist: UNSUPPORTED_SASL_MECHANISM; a credential that is set or deleted twice:
  DUPLICATE_RESOURCE; a deleted credential that does not exist: RESOURCE_NOT_FOUND;
- a login that has begun ends as it would have; a session that is open stays open.

The client sends a salted password, never the password itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.parts import Api
from kgw.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from kgw.security.credentials import LONGEST_USER_BYTES
from kgw.security.sasl.scram import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    ScramMechanism,
    credential_of_salted,
)
from kgw.turns import StepBudget, finish

if TYPE_CHECKING:
    from kgw.handlers.context import Answer, RequestContext
    from kgw.security.credentials import CredentialChanges, Credentials
    from kgw.turns import Turns

_PER_TURN = 200


class AlterUserScramCredentials(Api):
    response_type = AlterUserScramCredentialsResponse

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
        errors, changes = await finish(self._look(credentials), self.gateway.answer_turns)
        if changes:
            await credentials.change(changes)
        results = (_result(name, error) for name, error in errors.items())
        return AlterUserScramCredentialsResponse(results=await self.encoded(results, _PER_TURN))

    def _look(
        self, credentials: Credentials
    ) -> Turns[tuple[dict[str, KafkaError | None], CredentialChanges]]:
        """Return an error or None for each user, and the changes of users without an error."""
        budget = StepBudget(_PER_TURN)
        errors: dict[str, KafkaError | None] = {}
        changes: CredentialChanges = {}
        for wanted in (*self.request.deletions, *self.request.upsertions):
            error = _why_not(wanted, changes, credentials)
            if error is not None:
                errors[wanted.name] = errors.get(wanted.name) or error
            else:
                errors.setdefault(wanted.name, None)
                key = ScramMechanism.of_code(wanted.mechanism), wanted.name
                changes[key] = None
                if isinstance(wanted, ScramCredentialUpsertion):
                    changes[key] = credential_of_salted(
                        key[0], wanted.salted_password, wanted.salt, wanted.iterations
                    )
            if budget.spend():
                yield
        return errors, {key: one for key, one in changes.items() if errors[key[1]] is None}


def _why_not(
    wanted: Any, changes: CredentialChanges, credentials: Credentials
) -> KafkaError | None:
    """Return the reason why a credential can be neither set nor deleted."""
    name = wanted.name
    if not name:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user's name is empty")
    if len(name.encode()) > LONGEST_USER_BYTES:
        text = f"the user's name has more than {LONGEST_USER_BYTES} bytes"
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    try:
        mechanism = ScramMechanism.of_code(wanted.mechanism)
    except ValueError as error:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, str(error))
    if (mechanism, name) in changes:
        text = "the request changes this credential more than once"
        return KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)
    if not isinstance(wanted, ScramCredentialUpsertion):
        if credentials.find(mechanism, name) is None:
            text = f"the user has no credential for {mechanism.value}"
            return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, text)
        return None
    problem = None
    if not LEAST_ITERATIONS <= wanted.iterations <= MOST_ITERATIONS:
        problem = f"{wanted.iterations} iterations: {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
    elif not wanted.salt:
        problem = "the salt is empty"
    elif len(wanted.salted_password) != mechanism.key_bytes:
        problem = f"the salted password has {len(wanted.salted_password)} bytes"
    return problem and KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)


def _result(name: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
