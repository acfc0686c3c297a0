"""Finds the principal of each call, by a user's password or a certificate, and its rights."""

from __future__ import annotations

from ssl import PEM_cert_to_DER_cert
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

from grpc import StatusCode

from kgw.handlers.rights import denial
from kgw.security.acls.terms import CLUSTER_NAME, AclOperation, ResourceType
from kgw.security.login_refusals import LoginUnavailableError, TooManyFailuresError
from kgw.security.principal import ANONYMOUS, Principal
from kgw.security.sasl.basic import BASIC, credentials_of
from kgw.security.sasl.errors import AuthenticationFailed
from kgw.server.listeners import plain_host

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.gateway import Gateway
    from kgw.security.access import Access
    from kgw.security.tls.principals import PrincipalMapper
    from kgw.server.password_logins import PasswordLogins

Question: TypeAlias = tuple[AclOperation, ResourceType, str]
"""An operation on a resource, which has a name."""

_NEEDED: Final = (
    "the metadata has to have `authorization` with HTTP Basic: a user and its password "
    "(kgw.smq.agent.login)"
)


class CallRefusedError(Exception):
    """A call is refused before it is looked at."""

    def __init__(self, status: StatusCode, text: str) -> None:
        super().__init__(text)
        self.status = status


class Method(NamedTuple):
    """A method of the agent's API, for the audit log."""

    name: str


class AgentClient(NamedTuple):
    """The client of one call."""

    principal: Principal
    host: str
    method: Method
    access: Access | None
    """The access rules; None if everybody may do everything."""

    def may(self, question: Question, *, quiet: bool = False) -> bool:
        """Return whether the client may perform an operation on a resource."""
        operation, resource_type, name = question
        return self.access is None or self.access.permits(
            self.principal,
            self.host,
            operation,
            resource_type,
            name,
            request=self.method,
            quiet=quiet,
        )

    def authorize(self, questions: Iterable[Question]) -> None:
        """Raise KafkaError if the client may not perform one of the operations."""
        for question in questions:
            if not self.may(question):
                raise denial(question[1])

    def authorize_creation(self, topic: str) -> None:
        """Raise KafkaError if the client may create neither any topic nor this one."""
        on_cluster = (AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
        if not self.may(on_cluster, quiet=True):
            self.authorize([(AclOperation.CREATE, ResourceType.TOPIC, topic)])


def publishing(topic: str) -> tuple[Question, ...]:
    """Return the rights that a publisher of a topic needs."""
    return ((AclOperation.WRITE, ResourceType.TOPIC, topic),)


def describing(topic: str) -> tuple[Question, ...]:
    """Return the rights that a publisher needs to give a topic another record type."""
    return ((AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, topic),)


def subscribing(topic: str, group_id: str) -> tuple[Question, ...]:
    """Return the rights that a subscriber needs. `group_id` is empty without a group."""
    questions = ((AclOperation.READ, ResourceType.TOPIC, topic),)
    if not group_id:
        return questions
    return (*questions, (AclOperation.READ, ResourceType.GROUP, group_id))


class AgentClients:
    """Finds the client of each call to one gateway."""

    def __init__(self, gateway: Gateway, mapper: PrincipalMapper | None) -> None:
        """`mapper` gives the names in certificates principals; None without TLS."""
        self._gateway = gateway
        self._mapper = mapper
        self._logins: PasswordLogins | None = None
        if gateway.config.smq_agent_login:
            # Imported here: most agents know no users.
            from kgw.server.password_logins import PasswordLogins

            self._logins = PasswordLogins(gateway, "SMQ agent")

    async def client_of(self, context: Any, method: str) -> AgentClient:
        """Return the client of a call. Raises CallRefusedError."""
        host = host_of(context.peer())
        if self._logins is None:
            principal = self._certified(context)
        else:
            principal = await self._logged_in(self._logins, context, host)
        return AgentClient(principal, host, Method(method), self._gateway.access)

    async def _logged_in(self, logins: PasswordLogins, context: Any, host: str) -> Principal:
        given = [
            value if isinstance(value, bytes) else value.encode()
            for key, value in context.invocation_metadata() or ()
            if key == "authorization"
        ]
        password = credentials_of(given[0], BASIC) if len(given) == 1 else None
        if password is None:
            raise CallRefusedError(StatusCode.UNAUTHENTICATED, _NEEDED)
        try:
            return await logins.principal_of(password, host)
        except AuthenticationFailed:
            text = "the user or the password is wrong"
            raise CallRefusedError(StatusCode.UNAUTHENTICATED, text) from None
        except TooManyFailuresError as error:
            raise CallRefusedError(StatusCode.RESOURCE_EXHAUSTED, str(error)) from None
        except LoginUnavailableError as error:
            raise CallRefusedError(StatusCode.UNAVAILABLE, str(error)) from None

    def _certified(self, context: Any) -> Principal:
        """Return the principal in the client's certificate; ANONYMOUS without a certificate."""
        if self._mapper is None:
            return ANONYMOUS
        pem = context.auth_context().get("x509_pem_cert")
        if not pem:
            return ANONYMOUS
        try:
            der = PEM_cert_to_DER_cert(pem[0].decode("ascii"))
            return self._mapper.principal_of(der, self._gateway.clock.wall_ms() / 1000)
        except ValueError as error:
            text = f"the certificate gives no user: {error}"
            raise CallRefusedError(StatusCode.UNAUTHENTICATED, text) from None


def host_of(peer: str) -> str:
    """Return the IP address in gRPC's form of a peer, such as `ipv4:127.0.0.1:40000`."""
    return plain_host(unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]"))
