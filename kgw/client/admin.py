"""Changes and queries of topics, their settings, users, and access rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kgw.client.access_rules import (
    creation,
    deleted,
    described,
    filter_fields,
    lowest_version,
    refuse_creations,
)
from kgw.client.errors import ServerRefusedError, refuse
from kgw.client.values import (
    DELETION_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    ScramUpsertion,
    ScramUserCredential,
    TopicSettingValue,
)
from kgw.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kgw.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kgw.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kgw.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kgw.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kgw.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kgw.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kgw.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kgw.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kgw.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from kgw.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kgw.security.sasl.scram import ScramMechanism

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kgw.client.client import AsyncClient
    from kgw.client.connection import Connection
    from kgw.security.acls.binding import AclBinding, AclBindingFilter

# Resource types of the configuration APIs.
TOPIC = 2
BROKER = 4
PROBLEMS = "kgw.problems"
CLOCK = "kgw.clock"
_LONG_STRINGS = 4
"""The first version of DescribeConfigs that allows values of more than 32,767 bytes."""

# Names for the sources of values in DescribeConfigs (KIP-226).
_SOURCES = {
    1: "topic",
    2: "changed on this node",
    3: "changed for every node",
    4: "start of the server",
    5: "default",
    6: "changed on this node (logger)",
}
_SET, _DELETE, _APPEND = 0, 1, 2
_TOPICS_AT_ONCE = 1000


class AdminClient:
    """Administration of topics, settings, users and access rules through an AsyncClient.

    Every method raises ClientError.

    If a node refuses because it is not the leader or controller, the request is retried, as nothing
    was done. A request that may have been carried out, e.g. as its response was lost, is not
    retried.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; with -1 the server chooses the number.

        The topic is durable when this returns.
        """
        # Only versions from 4 on let the server choose the numbers (KIP-464).
        minimum = 4 if -1 in {partitions, replication_factor} else 0
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[
                CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()
            ],
        )

        async def create(connection: Connection) -> None:
            answer = await connection.ask(
                CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS),
                CreateTopicsResponse,
                version=connection.spoken_version(CreateTopicsRequest, minimum),
            )
            for result in answer.topics:
                refuse(result.error_code, f"cannot create topic {name}", result.error_message)

        await self._client.at_controller(create)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""

        async def delete(connection: Connection) -> None:
            answer = await connection.ask(
                DeleteTopicsRequest(
                    topics=[DeleteTopicState(name=name)]
                    if connection.spoken_version(DeleteTopicsRequest) >= 6
                    else [],
                    topic_names=[name],
                    timeout_ms=DELETION_TIMEOUT_MS,
                ),
                DeleteTopicsResponse,
            )
            for result in answer.responses:
                refuse(result.error_code, f"cannot delete topic {name}", result.error_message)

        await self._client.at_controller(delete)

    async def create_partitions(self, name: str, count: int) -> None:
        """Increase a topic's number of partitions to `count`."""

        async def create(connection: Connection) -> None:
            answer = await connection.ask(
                CreatePartitionsRequest(
                    topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
                    timeout_ms=REQUEST_TIMEOUT_MS,
                ),
                CreatePartitionsResponse,
            )
            for result in answer.results:
                refuse(result.error_code, f"cannot add partitions to {name}", result.error_message)

        await self._client.at_controller(create)

    async def delete_records(
        self, name: str, offsets: Mapping[int, int]
    ) -> dict[int, int | ServerRefusedError]:
        """Delete the records before these offsets; -1 means the high watermark.

        Return the new log start offsets.

        For a partition that refuses, the result is its error: in other partitions records may
        already be deleted. A successful partition is not asked again, as its high watermark may
        have risen since.
        """
        found: dict[int, int | ServerRefusedError] = {}

        async def delete() -> None:
            left = {
                partition: offset
                for partition, offset in offsets.items()
                if partition not in found or _is_undone(found[partition])
            }
            for connection, part in (await self._client.by_leader(name, left)).items():
                found.update(await _delete_records(connection, name, part))
            for answer in found.values():
                if isinstance(answer, ServerRefusedError) and answer.is_undone:
                    raise answer

        try:
            await self._client.retrying(delete, is_undone=True)
        except ServerRefusedError as error:
            if error not in found.values():
                raise
        return found

    async def describe_settings(self, resource_type: int, name: str) -> list[TopicSettingValue]:
        """Return the settings of a topic by its name, or of a broker by its id as text."""

        async def describe(connection: Connection) -> DescribeConfigsResult:
            (result,) = await describe_configs(connection, resource_type, [name])
            refuse(result.error_code, f"cannot describe {name}", result.error_message)
            return result

        result = await self._client.at_any_node(describe)
        return [
            TopicSettingValue(
                row.name,
                row.value,
                _SOURCES.get(row.config_source, "default" if row.is_default else "unknown"),
                row.read_only,
            )
            for row in sorted(result.configs, key=lambda row: row.name)
        ]

    async def problems(self, broker_id: int) -> list[tuple[str, str]]:
        """Return the problems that a broker reports, each as a reason and a sentence.

        Brokers other than kgw, and older ones, report no problems.
        """
        connection = await self._client.any_connection()
        (result,) = await describe_configs(
            connection, BROKER, [str(broker_id)], [PROBLEMS], _LONG_STRINGS
        )
        for row in result.configs:
            if row.name == PROBLEMS and row.value:
                return [(reason, text) for reason, text in json.loads(row.value)]
        return []

    async def clock_ms(self, broker_id: int) -> int | None:
        """Return the time by a broker's clock; None for a broker other than kgw, or an old one."""
        connection = await self._client.any_connection()
        (result,) = await describe_configs(connection, BROKER, [str(broker_id)], [CLOCK])
        for row in result.configs:
            if row.name == CLOCK and row.value:
                return int(row.value)
        return None

    async def topic_values(self, setting: str, topics: Sequence[str]) -> dict[str, str]:
        """Return the value of one setting for each topic that still exists.

        If the server does not know the setting, the result is empty.
        """
        connection = await self._client.any_connection()
        values: dict[str, str] = {}
        for start in range(0, len(topics), _TOPICS_AT_ONCE):
            names = topics[start : start + _TOPICS_AT_ONCE]
            for result in await describe_configs(connection, TOPIC, names, [setting]):
                for row in result.configs:
                    if not result.error_code and row.value is not None:
                        values[result.resource_name] = row.value
        return values

    async def alter_settings(
        self, resource_type: int, name: str, changes: Mapping[str, str | None]
    ) -> None:
        """Change settings; None resets a setting to its default."""
        operations = {
            key: (_DELETE if value is None else _SET, value) for key, value in changes.items()
        }
        await self._alter(resource_type, name, operations)

    async def append_setting(self, resource_type: int, name: str, key: str, value: str) -> None:
        """Add a value to a setting whose value is a list."""
        await self._alter(resource_type, name, {key: (_APPEND, value)})

    async def scram_credentials(self, users: Iterable[str] = ()) -> list[ScramUserCredential]:
        """Return the SCRAM credentials of some users, or of all, sorted by name."""
        names = [UserName(name=name) for name in users]

        async def describe(connection: Connection) -> DescribeUserScramCredentialsResponse:
            answer = await connection.ask(
                DescribeUserScramCredentialsRequest(users=names or None),
                DescribeUserScramCredentialsResponse,
            )
            refuse(answer.error_code, "cannot list users", answer.error_message)
            for result in answer.results:
                refuse(result.error_code, f"cannot find user {result.user}", result.error_message)
            return answer

        answer = await self._client.at_any_node(describe)
        mechanisms = {one.code: one for one in ScramMechanism}
        found = [
            ScramUserCredential(result.user, mechanisms.get(info.mechanism), info.iterations)
            for result in answer.results
            for info in result.credential_infos
        ]
        return sorted(found, key=lambda one: (one.user, one.mechanism_name or ""))

    async def set_scram_credential(self, upsertion: ScramUpsertion) -> None:
        """Set the password of a user, who need not exist. It is durable when this returns."""
        user = upsertion.user
        request = AlterUserScramCredentialsRequest(
            upsertions=[
                ScramCredentialUpsertion(
                    name=user,
                    mechanism=upsertion.mechanism.code,
                    iterations=upsertion.iterations,
                    salt=upsertion.salt,
                    salted_password=upsertion.salted_password,
                )
            ]
        )
        await self._alter_users(request, f"cannot set the password of {user}")

    async def delete_scram_credentials(
        self, user: str, mechanisms: Iterable[ScramMechanism]
    ) -> None:
        """Delete the passwords of a user for these mechanisms: all of them, or none."""
        request = AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=user, mechanism=one.code) for one in mechanisms]
        )
        await self._alter_users(request, f"cannot delete user {user}")

    async def access_rules(self, acl_filter: AclBindingFilter) -> list[AclBinding]:
        """Return the access rules that a filter finds, sorted."""

        async def describe(connection: Connection) -> DescribeAclsResponse:
            minimum = lowest_version([acl_filter.resource_type])
            answer = await connection.ask(
                DescribeAclsRequest(**filter_fields(acl_filter)),
                DescribeAclsResponse,
                version=connection.spoken_version(DescribeAclsRequest, minimum),
            )
            refuse(answer.error_code, "cannot list access rules", answer.error_message)
            return answer

        return sorted(described(await self._client.at_any_node(describe)))

    async def create_access_rules(self, bindings: Iterable[AclBinding]) -> None:
        """Add access rules; a rule that exists stays. They are durable when this returns.

        If the server refuses some rules, the others are added, and an error names the first refused
        one.
        """
        bindings = list(bindings)

        async def create(connection: Connection) -> None:
            minimum = lowest_version(one.resource_type for one in bindings)
            answer = await connection.ask(
                CreateAclsRequest(creations=[*map(creation, bindings)]),
                CreateAclsResponse,
                version=connection.spoken_version(CreateAclsRequest, minimum),
            )
            refuse_creations(bindings, answer.results)

        await self._client.at_controller(create)

    async def delete_access_rules(self, filters: Iterable[AclBindingFilter]) -> list[AclBinding]:
        """Delete the access rules that any of the filters finds; return these rules, sorted.

        If the server refuses some filters, it obeys the others, and an error is raised.
        """
        filters = list(filters)

        async def delete(connection: Connection) -> list[AclBinding]:
            minimum = lowest_version(one.resource_type for one in filters)
            answer = await connection.ask(
                DeleteAclsRequest(filters=[DeleteAclsFilter(**filter_fields(f)) for f in filters]),
                DeleteAclsResponse,
                version=connection.spoken_version(DeleteAclsRequest, minimum),
            )
            found = set()
            for result in answer.filter_results:
                refuse(result.error_code, "cannot delete access rules", result.error_message)
                for one in result.matching_acls:
                    binding = deleted(one)
                    what = f"cannot delete the access rule {binding}"
                    refuse(one.error_code, what, one.error_message)
                    found.add(binding)
            return sorted(found)

        return await self._client.at_controller(delete)

    async def _alter_users(self, request: AlterUserScramCredentialsRequest, what: str) -> None:
        async def alter(connection: Connection) -> None:
            answer = await connection.ask(request, AlterUserScramCredentialsResponse)
            for result in answer.results:
                refuse(result.error_code, what, result.error_message)

        await self._client.at_controller(alter)

    async def _alter(
        self, resource_type: int, name: str, operations: Mapping[str, tuple[int, str | None]]
    ) -> None:
        resource = AlterConfigsResource(
            resource_type=resource_type,
            resource_name=name,
            configs=[
                AlterableConfig(name=key, config_operation=operation, value=value)
                for key, (operation, value) in operations.items()
            ],
        )

        async def alter(connection: Connection) -> None:
            answer = await connection.ask(
                IncrementalAlterConfigsRequest(resources=[resource]),
                IncrementalAlterConfigsResponse,
            )
            for result in answer.responses:
                refuse(result.error_code, f"cannot change settings of {name}", result.error_message)

        await self._client.at_controller(alter)


def _is_undone(answer: int | ServerRefusedError) -> bool:
    return isinstance(answer, ServerRefusedError) and answer.is_undone


async def _delete_records(
    connection: Connection, name: str, offsets: Mapping[int, int]
) -> dict[int, int | ServerRefusedError]:
    """Send DeleteRecords to a leader; return the partitions' log start offsets, or their errors."""
    answer = await connection.ask(
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=offset)
                        for index, offset in offsets.items()
                    ],
                )
            ],
            timeout_ms=REQUEST_TIMEOUT_MS,
        ),
        DeleteRecordsResponse,
    )
    return {
        result.partition_index: ServerRefusedError(
            result.error_code, f"cannot delete records of {name}-{result.partition_index}"
        )
        if result.error_code
        else result.low_watermark
        for topic in answer.topics
        for result in topic.partitions
    }


async def describe_configs(
    connection: Connection,
    resource_type: int,
    names: Iterable[str],
    settings: list[str] | None = None,
    minimum_version: int = 0,
) -> list[DescribeConfigsResult]:
    """Return the settings, or only some of them, of resources of one type."""
    answer = await connection.ask(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource_type, resource_name=name, configuration_keys=settings
                )
                for name in names
            ]
        ),
        DescribeConfigsResponse,
        version=connection.spoken_version(DescribeConfigsRequest, minimum_version),
    )
    return answer.results
