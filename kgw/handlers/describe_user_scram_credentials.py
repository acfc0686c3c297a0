"""DescribeUserScramCredentials, key 50, version 0: which users have SCRAM credentials (KIP-554).

Behaviour: without names all users are listed, by name. A user who is named and has none is
RESOURCE_NOT_FOUND, one who is named more than once DUPLICATE_RESOURCE. No answer has a secret.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.context import made
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights
from kgw.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.handlers.context import Answer, RequestContext
    from kgw.protocol.framing import EncodedBody
    from kgw.protocol.schema import Response
    from kgw.security.credentials import Credentials


class DescribeUserScramCredentials(AnswerByItem):
    response_type = DescribeUserScramCredentialsResponse
    rights = Rights(cluster=AclOperation.DESCRIBE)
    array = "results"
    per_turn = 500

    _credentials: Credentials

    @classmethod
    def refuse(
        cls, request: Any, code: ErrorCode, message: str | None, context: RequestContext
    ) -> DescribeUserScramCredentialsResponse:
        # As in Kafka: as many entries as the request has, without the names.
        entries = [
            DescribeUserScramCredentialsResult(error_code=code, error_message=message)
            for _ in request.users or ()
        ]
        return DescribeUserScramCredentialsResponse(
            error_code=code, error_message=message, results=entries
        )

    def answer(self) -> Answer:
        return self._answer_from_state()

    async def _answer_from_state(self) -> Response | EncodedBody | None:
        self._credentials = await self.gateway.load_credentials()
        return await made(super().answer())

    def items(self) -> Iterator[DescribeUserScramCredentialsResult]:
        credentials = self._credentials
        named = Counter(user.name for user in self.request.users or ())
        for name in named or sorted(credentials.users):
            try:
                if named[name] > 1:
                    text = "the request names this user more than once"
                    raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)
                found = credentials.of_user(name)
                if not found:
                    text = f"{name!r} has no SCRAM credentials"
                    raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, text)
            except KafkaError as error:
                yield DescribeUserScramCredentialsResult(
                    user=name, error_code=error.code, error_message=error.message
                )
            else:
                yield DescribeUserScramCredentialsResult(
                    user=name,
                    error_message=None,
                    credential_infos=[
                        CredentialInfo(mechanism=mechanism.code, iterations=one.iterations)
                        for mechanism, one in found.items()
                    ],
                )
