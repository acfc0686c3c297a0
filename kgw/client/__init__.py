"""A small asyncio client on the server's own codec: for command line, pipeline and tests."""

from kgw.client.admin import AdminClient
from kgw.client.client import AsyncClient
from kgw.client.connection import Connection
from kgw.client.errors import (
    CannotConnectError,
    ClientError,
    ConnectionLostError,
    NotKafkaError,
    RequestTimedOutError,
    ServerRefusedError,
    UnsupportedApiError,
)
from kgw.client.groups import (
    GroupClient,
    GroupDetails,
    GroupMember,
    GroupOffset,
    GroupSummary,
)
from kgw.client.producer import NewRecord, Producer
from kgw.client.reader import DamagedRecordsError, ReadRecord, TopicReader
from kgw.client.values import (
    ApiSupport,
    Broker,
    ClusterDescription,
    FetchedPartition,
    FoundOffset,
    PartitionDescription,
    Produced,
    TopicDescription,
    TopicSettingValue,
)

__all__ = [
    "AdminClient",
    "ApiSupport",
    "AsyncClient",
    "Broker",
    "CannotConnectError",
    "ClientError",
    "ClusterDescription",
    "Connection",
    "ConnectionLostError",
    "DamagedRecordsError",
    "FetchedPartition",
    "FoundOffset",
    "GroupClient",
    "GroupDetails",
    "GroupMember",
    "GroupOffset",
    "GroupSummary",
    "NewRecord",
    "NotKafkaError",
    "PartitionDescription",
    "Produced",
    "Producer",
    "ReadRecord",
    "RequestTimedOutError",
    "ServerRefusedError",
    "TopicDescription",
    "TopicReader",
    "TopicSettingValue",
    "UnsupportedApiError",
]
