"""The answers of all APIs whose feature is off, in one table.

A client that finds an API missing takes the server for an old one, or reports a failure. A client
that is told that the feature is off goes on. The codes are those of Apache Kafka 4.4 on a plain
listener, with one node and without an authoriser; a test compares them. Requests that would change
something are refused.

| API | Answer |
| --- | --- |
| SaslHandshake, SaslAuthenticate | ILLEGAL_SASL_STATE: nobody has to authenticate |
| DescribeAcls, CreateAcls, DeleteAcls | SECURITY_DISABLED: there are no access rules |
| AlterReplicaLogDirs | LOG_DIR_NOT_FOUND, unless the directory is the one that holds all partitions |
| Create-, Renew-, Expire-, DescribeDelegationToken | DELEGATION_TOKEN_REQUEST_NOT_ALLOWED |
| ElectLeaders | ELECTION_NOT_NEEDED: each partition has one replica, and that one leads |
| AlterPartitionReassignments | INVALID_REPLICA_ASSIGNMENT, unless the replicas are the only node; NO_REASSIGNMENT_IN_PROGRESS to a cancellation |
| ListPartitionReassignments | an empty list |
| DescribeClientQuotas | an empty list; INVALID_REQUEST or UNSUPPORTED_VERSION for a wrong filter |
| AlterClientQuotas | UNSUPPORTED_VERSION to a quota that is set; removing one succeeds, as there is none |
| DescribeUserScramCredentials | an empty list; RESOURCE_NOT_FOUND for a user who is named |
| AlterUserScramCredentials | UNSUPPORTED_SASL_MECHANISM to a credential that is set, RESOURCE_NOT_FOUND to a deletion |
| ConsumerGroupHeartbeat, ConsumerGroupDescribe | UNSUPPORTED_VERSION, as of a Kafka whose consumer protocol (KIP-848) is off |

"""  # noqa: E501 - rows of a table

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.create_topics import check_assignment
from kgw.handlers.encoding_turns import AnswerSize, encode_in_turns
from kgw.handlers.table import plain_error_response
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import response_class
from kgw.protocol.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_client_quotas,
    describe_user_scram_credentials,
    elect_leaders,
    list_partition_reassignments,
)
from kgw.turns import Share, at_once, in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kgw.handlers.context import Answer, RequestContext
    from kgw.protocol.schema import Response, Struct
    from kgw.turns import Turns

    AnswerTurns: TypeAlias = Callable[[Any, RequestContext], Turns[Response]]
    Parts: TypeAlias = Iterable[Struct]
    Topics: TypeAlias = Iterable[tuple[Struct, Parts]]
    """Topics of an answer, each with its partitions."""

_PARTS_PER_TURN: Final = 500
_NO_EXPIRY: Final = -1
_PREFERRED, _UNCLEAN = range(2)
_EXACT, _DEFAULT, _ANY = range(3)
_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_QUOTAS_OF_IPS: Final = frozenset({"connection_creation_rate"})
_QUOTAS_OF_CLIENTS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
_WHOLE_QUOTAS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"}
)
_SCRAM_MECHANISMS: Final = range(1, 3)
_SCRAM_ITERATIONS: Final = range(4096, 16385)
_NO_QUOTAS: Final = "kgw keeps no client quotas yet"
_NO_SCRAM: Final = "kgw keeps no SCRAM credentials yet"


def handle(request: Any, context: RequestContext) -> Answer:
    return in_turns(ANSWERS[context.api_key](request, context), context.gateway.answer_turns)


def error_response(
    request: Any, code: ErrorCode, message: str | None, context: RequestContext
) -> Response:
    return at_once(_refuse(request, code, message, context))


def _refuse(
    request: Any, code: ErrorCode, message: str | None, context: RequestContext
) -> Turns[Response]:
    """Give every part of an answer the same code; the answer itself, where it has a code."""
    plain = plain_error_response(request, code, message, context)
    if plain is not None:
        return plain
    array, refused = _REFUSED_PARTS[context.api_key]
    response = response_class(context.api_key)()
    parts = yield from _encode(refused(request, code, message), context)
    setattr(response, array, parts)
    return response


def _refusing(code: ErrorCode, message: str) -> AnswerTurns:
    """Return what answers all requests of an API with one code."""

    def answer(request: Any, context: RequestContext) -> Turns[Response]:
        return _refuse(request, code, message, context)

    return answer


def _encode(parts: Parts, context: RequestContext) -> Turns[Any]:
    share, size = Share(_PARTS_PER_TURN), AnswerSize()
    response_type, version = response_class(context.api_key), context.api_version
    encoded = yield from encode_in_turns(response_type, parts, version, share, size=size)
    return encoded


def _encode_topics(topics: Topics, partitions_field: str, context: RequestContext) -> Turns[Any]:
    share, size = Share(_PARTS_PER_TURN), AnswerSize()
    response_type, version = response_class(context.api_key), context.api_version
    done = []
    for topic, partitions in topics:
        encoded = yield from encode_in_turns(response_type, partitions, version, share, size=size)
        setattr(topic, partitions_field, encoded)
        done.append(topic)
        if share.spend():
            yield
    encoded = yield from encode_in_turns(response_type, done, version, share)
    return encoded


# --- delegation tokens ---------------------------------------------------------------------------


def _create_delegation_token(request: Any, context: RequestContext) -> Turns[Response]:
    """Refuse it as it is refused to somebody who has not authenticated."""
    yield from ()
    nobody = ("User", "ANONYMOUS")
    name = request.owner_principal_name
    owner = (request.owner_principal_type or "", name) if name else nobody
    response = create_delegation_token.CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=owner[0],
        principal_name=owner[1],
        issue_timestamp_ms=_NO_EXPIRY,
        expiry_timestamp_ms=_NO_EXPIRY,
        max_timestamp_ms=_NO_EXPIRY,
    )
    if context.api_version >= 3:
        response.token_requester_principal_type, response.token_requester_principal_name = nobody
    return response


def _token_that_never_was(request: Any, context: RequestContext) -> Turns[Response]:
    yield from ()
    response = response_class(context.api_key)()
    response.error_code = int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)  # type: ignore[attr-defined]
    response.expiry_timestamp_ms = _NO_EXPIRY  # type: ignore[attr-defined]
    return response


# --- where partitions are ------------------------------------------------------------------------


def _missing_partition(name: str, index: int, context: RequestContext) -> KafkaError | None:
    """Return why a partition is unknown; None for one that exists."""
    topic = context.gateway.catalog.get(name)
    if topic is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    if not topic.has_partition(index):
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} has no partition {index}"
        )
    return None


def _elect_leaders(request: Any, context: RequestContext) -> Turns[Response]:
    election_type = request.election_type
    wrong = None
    if election_type not in {_PREFERRED, _UNCLEAN}:
        message = f"there is no election of type {election_type}"
        wrong = KafkaError(ErrorCode.INVALID_REQUEST, message)

    def partition(name: str, index: int) -> elect_leaders.PartitionResult:
        error = wrong or _missing_partition(name, index, context)
        error = error or KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "its only replica leads")
        return elect_leaders.PartitionResult(
            partition_id=index, error_code=error.code, error_message=error.message
        )

    topics: Topics
    if request.topic_partitions is None:
        # Only partitions that have got another leader are in the answer, and there are none.
        names = [topic.name for topic in context.gateway.catalog.listed]
        topics = ((elect_leaders.ReplicaElectionResult(topic=name), ()) for name in names)
    else:
        topics = (
            (
                elect_leaders.ReplicaElectionResult(topic=one.topic),
                map(partial(partition, one.topic), one.partitions),
            )
            for one in request.topic_partitions
        )
    results = yield from _encode_topics(topics, "partition_result", context)
    response = elect_leaders.ElectLeadersResponse(replica_election_results=results)
    if wrong is not None:
        response.error_code = wrong.code
    return response


def _alter_partition_reassignments(request: Any, context: RequestContext) -> Turns[Response]:
    def partition(name: str, wanted: Any) -> Struct:
        answer = alter_partition_reassignments.ReassignablePartitionResponse(
            partition_index=wanted.partition_index, error_message=None
        )
        error = _missing_partition(name, wanted.partition_index, context)
        if error is None and wanted.replicas is None:
            message = "no reassignment is in progress"
            error = KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, message)
        try:
            if error is None:
                check_assignment(wanted.replicas, context)
        except KafkaError as refused:
            error = refused
        if error is not None:
            answer.error_code, answer.error_message = error.code, error.message
        return answer

    responses = yield from _encode_topics(
        (
            (
                alter_partition_reassignments.ReassignableTopicResponse(name=one.name),
                map(partial(partition, one.name), one.partitions),
            )
            for one in request.topics
        ),
        "partitions",
        context,
    )
    return alter_partition_reassignments.AlterPartitionReassignmentsResponse(
        # As Kafka: no text where topics are named.
        error_message=None if request.topics else "",
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=responses,
    )


def _alter_replica_log_dirs(request: Any, context: RequestContext) -> Turns[Response]:
    """Answer for each partition once, by topic, whichever directories name it."""
    directory = context.gateway.backend.location
    topics: dict[str, dict[int, ErrorCode]] = {}
    share = Share(_PARTS_PER_TURN)
    for wanted in request.dirs:
        for topic in wanted.topics:
            found = topics.setdefault(topic.name, {})
            for index in topic.partitions:
                found[index] = ErrorCode.LOG_DIR_NOT_FOUND
                if wanted.path == directory:
                    missing = _missing_partition(topic.name, index, context)
                    found[index] = ErrorCode.NONE if missing is None else missing.code
                if share.spend():
                    yield
    results = yield from _encode_topics(
        (
            (
                alter_replica_log_dirs.AlterReplicaLogDirTopicResult(topic_name=name),
                (
                    alter_replica_log_dirs.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=code
                    )
                    for index, code in found.items()
                ),
            )
            for name, found in topics.items()
        ),
        "partitions",
        context,
    )
    return alter_replica_log_dirs.AlterReplicaLogDirsResponse(results=results)


def _list_partition_reassignments(request: Any, context: RequestContext) -> Turns[Response]:
    yield from ()
    return list_partition_reassignments.ListPartitionReassignmentsResponse(error_message=None)


# --- quotas --------------------------------------------------------------------------------------


def _describe_client_quotas(request: Any, context: RequestContext) -> Turns[Response]:
    yield from ()
    kinds = Counter(component.entity_type for component in request.components)
    try:
        for component in request.components:
            _check_component(component)
        for kind, count in kinds.items():
            if count > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kind} is in the filter twice")
        if _IP in kinds and len(kinds) > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "quotas of ips have no other part")
    except KafkaError as error:
        return describe_client_quotas.DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    return describe_client_quotas.DescribeClientQuotasResponse()


def _check_component(component: describe_client_quotas.ComponentData) -> None:
    """Raise KafkaError unless it is a filter."""
    kind, match_type = component.entity_type, component.match_type
    if not kind:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a part of the filter has no entity type")
    if kind not in {_USER, _CLIENT_ID, _IP}:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there are no quotas of {kind!r}")
    if match_type not in {_EXACT, _DEFAULT, _ANY}:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no match of type {match_type}")
    if (match_type == _EXACT) != (component.match is not None):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"match type {match_type} with match {component.match!r}"
        )


def _alter_client_quotas(request: Any, context: RequestContext) -> Turns[Response]:
    def entry(wanted: alter_client_quotas.AlterClientQuotasRequestEntryData) -> Struct:
        answer = alter_client_quotas.AlterClientQuotasResponseEntryData(
            error_message=None, entity=wanted.entity
        )
        try:
            _check_quotas(wanted)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        return answer

    entries = yield from _encode(map(entry, request.entries), context)
    return alter_client_quotas.AlterClientQuotasResponse(entries=entries)


def _check_quotas(wanted: alter_client_quotas.AlterClientQuotasRequestEntryData) -> None:
    """Raise KafkaError unless the entity is one, and nothing is changed."""
    kinds = [one.entity_type for one in wanted.entity]
    name = "+".join(kinds)
    keys = _QUOTAS_OF_IPS if _IP in kinds else _QUOTAS_OF_CLIENTS
    problem = None
    if not kinds:
        problem = "the entity is empty"
    elif not {_USER, _CLIENT_ID, _IP}.issuperset(kinds):
        problem = f"there are no quotas of {name}"
    elif _IP in kinds and len(kinds) > 1:
        problem = "quotas of ips have no other part"
    elif any(one.entity_name == "" for one in wanted.entity):
        problem = "a part of the entity has an empty name"
    elif len({change.key for change in wanted.ops}) != len(wanted.ops):
        problem = "a quota is changed twice"
    for change in () if problem else wanted.ops:
        if change.remove:
            continue
        if change.key not in keys:
            problem = f"{change.key!r} is no quota of {name}"
        elif not change.value > 0:
            problem = f"{change.key} must be above 0"
        elif change.key in _WHOLE_QUOTAS and not change.value.is_integer():
            problem = f"{change.key} must be a whole number"
        if problem:
            break
    if problem:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    if not all(change.remove for change in wanted.ops):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, _NO_QUOTAS)


# --- SCRAM ---------------------------------------------------------------------------------------


def _describe_user_scram_credentials(request: Any, context: RequestContext) -> Turns[Response]:
    counts = Counter(user.name for user in request.users or ())
    results = yield from _encode(
        (
            describe_user_scram_credentials.DescribeUserScramCredentialsResult(
                user=name,
                error_code=ErrorCode.RESOURCE_NOT_FOUND
                if count == 1
                else ErrorCode.DUPLICATE_RESOURCE,
                error_message=f"{name!r} has no SCRAM credentials"
                if count == 1
                else "the request names this user more than once",
            )
            for name, count in counts.items()
        ),
        context,
    )
    return describe_user_scram_credentials.DescribeUserScramCredentialsResponse(results=results)


def _alter_user_scram_credentials(request: Any, context: RequestContext) -> Turns[Response]:
    problems: dict[str, KafkaError] = {}
    counts = Counter(change.name for change in request.upsertions)
    share = Share(_PARTS_PER_TURN)
    for change in (*request.deletions, *request.upsertions):
        error = _why_not_changed(change)
        if error.code is not ErrorCode.RESOURCE_NOT_FOUND and counts[change.name] > 1:
            message = "the request sets credentials of this user more than once"
            error = KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
        problems.setdefault(change.name, error)
        if share.spend():
            yield
    results = yield from _encode(
        (
            alter_user_scram_credentials.AlterUserScramCredentialsResult(
                user=name, error_code=error.code, error_message=error.message
            )
            for name, error in problems.items()
        ),
        context,
    )
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(results=results)


def _why_not_changed(change: Any) -> KafkaError:
    """Say why a credential is neither set nor deleted."""
    iterations = getattr(change, "iterations", None)
    if not change.name:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user's name is empty")
    if change.mechanism not in _SCRAM_MECHANISMS:
        return KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no mechanism {change.mechanism}"
        )
    if iterations is None:
        return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credentials")
    if iterations not in _SCRAM_ITERATIONS:
        return KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{iterations} iterations: {_SCRAM_ITERATIONS.start} to {_SCRAM_ITERATIONS.stop - 1}",
        )
    return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, _NO_SCRAM)


# --- the tables ----------------------------------------------------------------------------------

_ACCESS_RULES_OFF = _refusing(
    ErrorCode.SECURITY_DISABLED, "kgw has no access rules: everybody may do everything"
)
_SASL_OFF = _refusing(ErrorCode.ILLEGAL_SASL_STATE, "this listener takes clients without SASL")
_TOKENS_OFF = _refusing(
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "kgw has no delegation tokens"
)
_CONSUMER_GROUPS_OFF = _refusing(
    ErrorCode.UNSUPPORTED_VERSION,
    "kgw does not serve the consumer group protocol of KIP-848: set group.protocol=classic",
)

ANSWERS: Final[Mapping[ApiKey, AnswerTurns]] = {
    ApiKey.SASL_HANDSHAKE: _SASL_OFF,
    ApiKey.DESCRIBE_ACLS: _ACCESS_RULES_OFF,
    ApiKey.CREATE_ACLS: _ACCESS_RULES_OFF,
    ApiKey.DELETE_ACLS: _ACCESS_RULES_OFF,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.SASL_AUTHENTICATE: _SASL_OFF,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _token_that_never_was,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _token_that_never_was,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _TOKENS_OFF,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_partition_reassignments,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _CONSUMER_GROUPS_OFF,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _CONSUMER_GROUPS_OFF,
}
"""What answers the requests of each API."""


def _refused_acl_creations(request: Any, code: ErrorCode, message: str | None) -> Iterator[Struct]:
    for _ in request.creations:
        yield create_acls.AclCreationResult(error_code=code, error_message=message)


def _refused_acl_filters(request: Any, code: ErrorCode, message: str | None) -> Iterator[Struct]:
    for _ in request.filters:
        yield delete_acls.DeleteAclsFilterResult(error_code=code, error_message=message)


def _refused_log_dirs(request: Any, code: ErrorCode, _: str | None) -> Iterator[Struct]:
    for directory in request.dirs:
        for topic in directory.topics:
            yield alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    alter_replica_log_dirs.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=code
                    )
                    for index in topic.partitions
                ],
            )


def _refused_elections(request: Any, code: ErrorCode, message: str | None) -> Iterator[Struct]:
    for topic in request.topic_partitions or ():
        yield elect_leaders.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                elect_leaders.PartitionResult(
                    partition_id=index, error_code=code, error_message=message
                )
                for index in topic.partitions
            ],
        )


def _refused_quotas(request: Any, code: ErrorCode, message: str | None) -> Iterator[Struct]:
    for entry in request.entries:
        yield alter_client_quotas.AlterClientQuotasResponseEntryData(
            error_code=code, error_message=message, entity=entry.entity
        )


def _refused_credentials(request: Any, code: ErrorCode, message: str | None) -> Iterator[Struct]:
    for name in dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions)):
        yield alter_user_scram_credentials.AlterUserScramCredentialsResult(
            user=name, error_code=code, error_message=message
        )


def _refused_groups(request: Any, code: ErrorCode, message: str | None) -> Iterator[Struct]:
    for group_id in request.group_ids:
        yield consumer_group_describe.DescribedGroup(
            error_code=code, error_message=message, group_id=group_id
        )


_REFUSED_PARTS: Final[
    Mapping[ApiKey, tuple[str, Callable[[Any, ErrorCode, str | None], Iterator[Struct]]]]
] = {
    ApiKey.CREATE_ACLS: ("results", _refused_acl_creations),
    ApiKey.DELETE_ACLS: ("filter_results", _refused_acl_filters),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ("results", _refused_log_dirs),
    ApiKey.ELECT_LEADERS: ("replica_election_results", _refused_elections),
    ApiKey.ALTER_CLIENT_QUOTAS: ("entries", _refused_quotas),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("results", _refused_credentials),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("groups", _refused_groups),
}
"""For APIs whose answer has no code of its own: its array, and what is in it then."""
