"""A small asyncio Kafka client with the server's codec, for the command line and the pipeline.

Tests use it, too. `subscription` reads records and can continue from a `cursor`; `Producer` writes
records.
"""

from kgw.client.admin import AdminClient
from kgw.client.client import AsyncClient
from kgw.client.connection import Connection
from kgw.client.delays import ClientDelay, Delays
from kgw.client.errors import (
    CannotConnectError,
    ClientError,
    ConnectionLostError,
    LoginError,
    LoginRefusedError,
    NotKafkaError,
    RequestTimedOutError,
    ServerRefusedError,
    TlsError,
    TopicReplacedError,
    UnsupportedApiError,
)
from kgw.client.groups import (
    GroupClient,
    GroupDetails,
    GroupMember,
    GroupOffset,
    GroupSummary,
)
from kgw.client.producer import Identity, NewRecord, Producer
from kgw.client.ranges import describe_ranges
from kgw.client.records import GroupPosition, WireReader
from kgw.client.security import ClientLogin, ClientSecurity, client_security
from kgw.client.transactional import TransactionalClient, TransactionalProducer
from kgw.client.transactions import (
    PartitionProducer,
    TransactionClient,
    TransactionDetails,
    TransactionSummary,
)
from kgw.client.values import (
    AdvertisedBroker,
    ApiSupport,
    ClusterDescription,
    EpochRange,
    FetchedPartition,
    PartitionDescription,
    PartitionRange,
    Produced,
    TopicDescription,
    TopicSettingValue,
)
from kgw.offsets.reader import FoundRecord

__all__ = [
    "AdminClient",
    "AdvertisedBroker",
    "ApiSupport",
    "AsyncClient",
    "CannotConnectError",
    "ClientDelay",
    "ClientError",
    "ClientLogin",
    "ClientSecurity",
    "ClusterDescription",
    "Connection",
    "ConnectionLostError",
    "Delays",
    "EpochRange",
    "FetchedPartition",
    "FoundRecord",
    "GroupClient",
    "GroupDetails",
    "GroupMember",
    "GroupOffset",
    "GroupPosition",
    "GroupSummary",
    "Identity",
    "LoginError",
    "LoginRefusedError",
    "NewRecord",
    "NotKafkaError",
    "PartitionDescription",
    "PartitionProducer",
    "PartitionRange",
    "Produced",
    "Producer",
    "RequestTimedOutError",
    "ServerRefusedError",
    "TlsError",
    "TopicDescription",
    "TopicReplacedError",
    "TopicSettingValue",
    "TransactionClient",
    "TransactionDetails",
    "TransactionSummary",
    "TransactionalClient",
    "TransactionalProducer",
    "UnsupportedApiError",
    "WireReader",
    "client_security",
    "describe_ranges",
]
