"""All settings of the server, which `kgw serve` accepts.

Some sections are defined in other modules; the table here has all of them.
"""

from __future__ import annotations

from kgw.config.limit_settings import LimitSettings
from kgw.config.listeners import (
    check_admin_listeners,
    check_agent_listener,
    check_listeners,
    check_protocol_map,
)
from kgw.config.otel_settings import OtelSettings
from kgw.config.retention_settings import RetentionSettings
from kgw.config.security_settings import (
    AccessSettings,
    DelegationTokenSettings,
    LoginSettings,
    OAuthSettings,
    TlsSettings,
)
from kgw.config.setting import (
    INT_MAX,
    LONG_MAX,
    Setting,
    SettingType,
    TypedSetting,
    Value,
    fixed,
    rows,
    table,
)
from kgw.config.topic_default_settings import ONE_NODE, TopicDefaultSettings

LONG = SettingType.LONG


def _check_directory(value: Value) -> None:
    if not value:
        raise ValueError("a directory is needed")
    if "," in str(value):
        raise ValueError("one directory is served, not a list of them")


def _check_url(value: Value) -> None:
    if value:
        from kgw.config.state_url import parse_state_url

        parse_state_url(str(value))


def _check_labels(value: Value) -> None:
    known = {"topic", "partition", "group"}
    unknown = sorted(set(value) - known) if isinstance(value, tuple) else []
    if unknown:
        raise ValueError(f"topic, partition and group are known, not {', '.join(unknown)}")


def _check_interval(value: Value) -> None:
    if isinstance(value, int) and 0 < value < 100:
        raise ValueError("0, or at least 100")


def _check_replication(value: Value) -> None:
    digits = str(value)
    if digits and not (len(digits) == 3 and digits.isascii() and digits.isdigit()):
        raise ValueError("three digits, as in 001: copies in other data centres, racks, servers")


class NodeSettings:
    """Settings of the node and its listeners."""

    node_id = TypedSetting(
        "node.id",
        0,
        "Id of this node in every answer. Clients compare it; any number will do.",
    )
    listeners = TypedSetting(
        "listeners",
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where to listen: `NAME://HOST:PORT` or `HOST:PORT`, several separated by commas. "
        "An empty host means every address, port 0 any free port.",
        check=check_listeners,
    )
    advertised_listeners = TypedSetting(
        "advertised.listeners",
        (),
        "The addresses that clients are told to connect to, by listener name. "
        "Empty: what was bound.",
        check=check_listeners,
    )
    listener_security_protocol_map = TypedSetting(
        "listener.security.protocol.map",
        (),
        "Protocol of each listener name, as in `INTERNAL:SASL_SSL`: `PLAINTEXT`, `SSL`, "
        "`SASL_PLAINTEXT` or `SASL_SSL`. A name that is not mapped and is no protocol is "
        "`PLAINTEXT`.",
        check=check_protocol_map,
    )
    listeners_without_login = TypedSetting(
        "kgw.listeners.without.login",
        False,
        "Whether a listener that other machines can reach may serve everybody: without a login, "
        "without certificates of clients (`ssl.client.auth=required`) and without access rules.",
    )


class StorageSettings:
    """Settings of the data directory, the backend and the state."""

    log_dirs = TypedSetting(
        "log.dirs",
        "kgw-data",
        "The data directory, also settable by `--data-dir`. One directory.",
        check=_check_directory,
    )
    data_dir_shared = TypedSetting(
        "kgw.data.dir.shared",
        False,
        "Whether a new data directory may be made where other files are. Otherwise such a "
        "directory is refused, as a path that was not meant.",
    )
    backend = TypedSetting(
        "kgw.backend",
        "embedded",
        "Where records live: `embedded` (the data directory), `memory` (nothing survives), "
        "`seaweedmq://FILER:PORT/NAMESPACE` (a SeaweedFS), or the URL of an installed backend. "
        "Also settable by `--backend`.",
    )
    state_url = TypedSetting(
        "kgw.state.url",
        "",
        "Where topics, groups, committed offsets and settings are kept: empty for SQLite in the "
        "data directory, else `postgresql://USER@HOST/DATABASE` or `mysql://USER@HOST/DATABASE` "
        "(docs/state.md). Records stay where they are. With SeaweedMQ empty is the SeaweedFS.",
        check=_check_url,
    )
    state_password = TypedSetting(
        "kgw.state.password",
        "",
        "Password for `kgw.state.url`. Never shown again; best given by its environment variable.",
        type_=SettingType.PASSWORD,
    )
    state_password_file = TypedSetting(
        "kgw.state.password.file",
        "",
        "File whose content, without the line's end, is the password for `kgw.state.url`. "
        "It is read anew for each connection.",
    )
    state_timeout_ms = TypedSetting(
        "kgw.state.timeout.ms",
        30_000,
        "How long the database of `kgw.state.url` may be away, or take for one statement, before "
        "nothing is written any more until the next start.",
        minimum=100,
    )
    checkpoint_interval_ms = TypedSetting(
        "kgw.checkpoint.interval.ms",
        30_000,
        "Time between checkpoints, which bound the next recovery.",
        minimum=100,
    )
    checkpoint_bytes = TypedSetting(
        "kgw.checkpoint.bytes",
        128 << 20,
        "Bytes appended after which a checkpoint is made before its time.",
        type_=LONG,
        minimum=1 << 20,
    )
    cache_bytes = TypedSetting(
        "kgw.cache.bytes",
        32 << 20,
        "Memory for recently appended batches, from which consumers at the end are served.",
        type_=LONG,
    )
    min_free_bytes = TypedSetting(
        "kgw.min.free.bytes",
        64 << 20,
        "Free space below which appends are refused, so that what is stored stays safe.",
        type_=LONG,
    )


def _check_patterns(value: Value) -> None:
    for pattern in value if isinstance(value, tuple) else ():
        namespace, dot, topic = pattern.partition(".")
        if not namespace or not dot or not topic or "/" in pattern:
            raise ValueError(f"{pattern}: <namespace>.<topic> is expected, as in sensors.*")


class SeaweedMqSettings:
    """Settings of the SeaweedMQ backend."""

    seaweedmq_layout = TypedSetting(
        "kgw.seaweedmq.layout",
        "batches",
        "How records stand in SMQ's log files. `batches`: as they came, a batch an entry. "
        "`records`: a record an entry, for SMQ's own readers and SQL; slower.",
        allowed=("batches", "records"),
    )
    seaweedmq_lease_ms = TypedSetting(
        "kgw.seaweedmq.lease.ms",
        10_000,
        "After so long without a renewal another gateway of the namespace takes over, and this "
        "one refuses requests until it has renewed. Renewed three times in that time.",
        minimum=1_000,
        maximum=600_000,
    )
    seaweedmq_replication = TypedSetting(
        "kgw.seaweedmq.replication",
        "",
        "How often SeaweedFS keeps what is written, by its own digits, as in `001`. Empty: as the "
        "filer says.",
        check=_check_replication,
    )
    seaweedmq_collection = TypedSetting(
        "kgw.seaweedmq.collection",
        "",
        "The collection of volumes that records go to. Empty: as the filer says.",
    )
    seaweedmq_disk_type = TypedSetting(
        "kgw.seaweedmq.disk.type",
        "",
        "The type of disk that records go to, as in `ssd`. Empty: as the filer says.",
    )
    seaweedmq_fsync = TypedSetting(
        "kgw.seaweedmq.fsync",
        False,
        "Whether volume servers sync records to their disks before they are acknowledged. It "
        "says nothing of the filer's own store.",
    )
    seaweedmq_waiting_bytes = TypedSetting(
        "kgw.seaweedmq.waiting.bytes",
        -1,
        "Memory for appends of all partitions that SeaweedFS has not taken yet; above it they are "
        "refused with an error that clients retry. -1: as much as `kgw.request.memory.bytes`.",
        type_=LONG,
        minimum=-1,
    )
    seaweedmq_mirror_offsets = TypedSetting(
        "kgw.seaweedmq.mirror.offsets",
        True,
        "Whether committed offsets are written, a second behind the commit, where SMQ keeps the "
        "positions of its groups, too: for people and tools.",
    )
    seaweedmq_native = TypedSetting(
        "kgw.seaweedmq.native",
        (),
        "Topics of SMQ's own publishers that are served, as in `sensors.*,logs.web`: "
        "`<namespace>.<topic>` with `*` and `?`. Clients know a topic by both names. Read only.",
        check=_check_patterns,
    )
    seaweedmq_native_write = TypedSetting(
        "kgw.seaweedmq.native.write",
        False,
        "Whether Kafka clients may write to those topics, through SMQ's broker: keys and values, "
        "without headers, idempotence and transactions.",
    )
    seaweedmq_acks = TypedSetting(
        "kgw.seaweedmq.acks",
        "filer",
        "When a record of those topics counts, for producers and consumers. `filer`: once it is in "
        "a log file, so at the broker's next flush. `broker`: once its broker has it in memory; "
        "when that ends, the last seconds are lost, and their offsets may be given out again.",
        allowed=("filer", "broker"),
    )
    seaweedmq_security_file = TypedSetting(
        "kgw.seaweedmq.security.file",
        "",
        "SeaweedFS's `security.toml`, where its servers ask for certificates or tokens.",
    )
    seaweedmq_tls_name = TypedSetting(
        "kgw.seaweedmq.tls.name",
        "",
        "The name that the servers' certificates are made out to, where that is not the host in "
        "`kgw.backend`.",
    )


class CreationSettings:
    """Settings for creating and deleting topics."""

    auto_create_topics_enable = TypedSetting(
        "auto.create.topics.enable",
        True,
        "Whether a Metadata request that allows it creates the topics it names.",
    )
    num_partitions = TypedSetting(
        "num.partitions",
        1,
        "Partitions of a topic that is created without a number.",
        minimum=1,
    )
    default_replication_factor = TypedSetting(
        "default.replication.factor",
        1,
        "Replication factor of a topic that is created without one. "
        "Above 1 only with `kgw.lenient.replication`, and even then there is one copy.",
        minimum=1,
        maximum=32_767,
    )
    lenient_replication = TypedSetting(
        "kgw.lenient.replication",
        False,
        "Accept replication factors above 1, for test suites that insist on them. "
        "There is still one copy, and the answers say so.",
    )
    partitions_max = TypedSetting(
        "kgw.partitions.max",
        20_000,
        "Partitions of all topics together; more are refused with POLICY_VIOLATION.",
        minimum=1,
    )
    topic_partitions_max = TypedSetting(
        "kgw.topic.partitions.max",
        10_000,
        "Partitions of one topic; more are refused with INVALID_PARTITIONS.",
        minimum=1,
    )
    delete_topic_enable = fixed(
        "delete.topic.enable",
        True,
        "Whether topics can be deleted.",
        "topics can always be deleted",
    )
    offsets_topic_replication_factor = fixed(
        "offsets.topic.replication.factor",
        1,
        "Copies of committed offsets.",
        ONE_NODE,
    )
    transaction_state_log_replication_factor = fixed(
        "transaction.state.log.replication.factor",
        1,
        "Copies of the transaction log.",
        ONE_NODE,
    )
    transaction_state_log_min_isr = fixed(
        "transaction.state.log.min.isr",
        1,
        "In-sync copies of the transaction log.",
        ONE_NODE,
    )


# Kafka's own tool resets these settings after it has moved partitions.
_THROTTLES = tuple(
    fixed(name, LONG_MAX, doc, ONE_NODE, type_=LONG, dynamic=True)
    for name, doc in (
        ("follower.replication.throttled.rate", "Bytes a second that followers fetch."),
        ("leader.replication.throttled.rate", "Bytes a second that leaders send to followers."),
        (
            "replica.alter.log.dirs.io.max.bytes.per.second",
            "Bytes a second that move from one log directory to another.",
        ),
    )
)


class TransactionCoordinatorSettings:
    """Settings of transactions."""

    transaction_max_timeout_ms = TypedSetting(
        "transaction.max.timeout.ms",
        900_000,
        "The longest time that a producer may ask for each of its transactions; a longer one is "
        "refused with INVALID_TRANSACTION_TIMEOUT. A transaction that takes longer than its "
        "producer asked for is aborted.",
        minimum=1,
    )
    transactional_id_expiration_ms = TypedSetting(
        "transactional.id.expiration.ms",
        604_800_000,
        "Time after which a transactional id without an open transaction is forgotten. A producer "
        "that comes back later gets a new producer id.",
        minimum=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = TypedSetting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often transactional ids that nobody uses are looked for.",
        minimum=1,
    )
    add_partitions_to_txn_retry_backoff_max_ms = TypedSetting(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        "How long what is to be added to a transaction waits for the end of the one before, until "
        "it is answered with CONCURRENT_TRANSACTIONS.",
    )
    transactional_ids_max = TypedSetting(
        "kgw.transactional.ids.max",
        100_000,
        "Transactional ids; more are refused with POLICY_VIOLATION.",
        minimum=1,
    )


class GroupCoordinatorSettings:
    """Settings of groups and their committed offsets."""

    group_min_session_timeout_ms = TypedSetting(
        "group.min.session.timeout.ms",
        6_000,
        "The shortest session timeout that a member of a group may ask for.",
    )
    group_max_session_timeout_ms = TypedSetting(
        "group.max.session.timeout.ms",
        1_800_000,
        "The longest session timeout that a member of a group may ask for.",
        minimum=1,
    )
    group_max_size = TypedSetting(
        "group.max.size",
        INT_MAX,
        "Members of one group, ids given to future members among them; "
        "more are refused with GROUP_MAX_SIZE_REACHED.",
        minimum=1,
    )
    group_initial_rebalance_delay_ms = TypedSetting(
        "group.initial.rebalance.delay.ms",
        0,
        "How long the first rebalance of a group without members waits for more of them. "
        "Kafka waits 3000.",
    )
    groups_max = TypedSetting(
        "kgw.groups.max",
        100_000,
        "Groups; more are refused.",
        minimum=1,
    )
    offset_metadata_max_bytes = TypedSetting(
        "offset.metadata.max.bytes",
        4_096,
        "Longest text kept with a committed offset; a longer one is refused with "
        "OFFSET_METADATA_TOO_LARGE.",
    )
    offsets_retention_minutes = TypedSetting(
        "offsets.retention.minutes",
        # Kafka's default is a week: a consumer that is away for longer silently starts at its
        # auto.offset.reset (docs/decisions/0061-damage-is-noticed.md).
        525_600,
        "How long the committed offsets of a group without members are kept, from the last "
        "commit or from when its last member left, whichever is later. A year; Kafka's default is "
        "10080, a week.",
        minimum=1,
    )
    offsets_retention_check_interval_ms = TypedSetting(
        "offsets.retention.check.interval.ms",
        600_000,
        "How often committed offsets are looked through for those that have expired.",
        type_=LONG,
        minimum=1,
    )


class LagSettings:
    """Settings of lag, its anomalies and its history."""

    lag_interval_ms = TypedSetting(
        "kgw.lag.interval.ms",
        60_000,
        "How often the lag of every group is looked at, for metrics, anomalies and the history; "
        "0 for never, otherwise 100 at least.",
        type_=LONG,
        check=_check_interval,
    )
    lag_risk_ms = TypedSetting(
        "kgw.lag.risk.ms",
        3_600_000,
        "A group counts as at risk in a partition when retention will remove records within this "
        "time that the group has yet to read.",
        type_=LONG,
    )
    lag_standing_ms = TypedSetting(
        "kgw.lag.standing.ms",
        600_000,
        "A group counts as standing in a topic when its members have committed nothing for this "
        "time while records came, and for twice the longest time that one of them may take between "
        "two polls (its rebalance timeout, Java's `max.poll.interval.ms`); 0 for never.",
        type_=LONG,
    )
    lag_falling_behind_ms = TypedSetting(
        "kgw.lag.falling.behind.ms",
        3_600_000,
        "A group counts as falling behind in a topic when it commits and yet has more to read from "
        "quarter to quarter of this time; 0 for never.",
        type_=LONG,
    )
    lag_metrics_groups = TypedSetting(
        "kgw.lag.metrics.groups",
        100,
        "Groups that have their own series in metrics; the others are counted together as `other`.",
        maximum=10_000,
    )
    lag_clients_max = TypedSetting(
        "kgw.lag.clients.max",
        10_000,
        "Positions that are remembered of clients that fetch, one for each client id and "
        "partition.",
        maximum=100_000,
    )
    lag_client_idle_ms = TypedSetting(
        "kgw.lag.client.idle.ms",
        600_000,
        "How long the position of a client that no longer fetches is remembered.",
        type_=LONG,
        minimum=1,
    )
    lag_history_ms = TypedSetting(
        "kgw.lag.history.ms",
        86_400_000,
        "How long samples of lag are kept, for a console to draw; 0 keeps none.",
        type_=LONG,
    )
    lag_history_samples_max = TypedSetting(
        "kgw.lag.history.samples.max",
        100_000,
        "Samples of lag that are kept at most, of all groups together; about 100 bytes each.",
        minimum=1,
        maximum=10_000_000,
    )


class AdminSettings:
    """Settings of metrics and the admin listeners."""

    metrics_labels = TypedSetting(
        "kgw.metrics.labels",
        (),
        "Metrics by `topic`, `partition` and `group`, several separated by commas: records and "
        "bytes in and out, sizes and offsets; of `group` the lag by topic, and by partition where "
        "`partition` is named, too.",
        check=_check_labels,
    )
    metrics_labels_series_max = TypedSetting(
        "kgw.metrics.labels.series.max",
        10_000,
        "Series that kgw.metrics.labels makes at most: whoever comes later is counted in one "
        "series together with others, `(other)`.",
        maximum=1_000_000,
    )
    admin_listeners = TypedSetting(
        "kgw.admin.listeners",
        (),
        "Where health, metrics and JSON are served over HTTP, as HOST:PORT, or over TLS, as "
        "`https://HOST:PORT`; nowhere unless set. Only loopback addresses, unless clients say who "
        "they are: by `kgw.admin.token.file`, `kgw.admin.login`, or `https://` with "
        "`ssl.client.auth=required`.",
        check=check_admin_listeners,
    )
    admin_token_file = TypedSetting(
        "kgw.admin.token.file",
        "",
        "File whose content, without the line's end, every request to the admin listeners has to "
        "carry as its Bearer token; `/health/live` and `/health/ready` say their status without "
        "it. 16 characters at least; the file must not be open to every user. It is read anew when "
        "it has changed.",
    )
    admin_login = TypedSetting(
        "kgw.admin.login",
        False,
        "Whether clients of the admin listeners log in, with HTTP Basic as a user of `kgw users`. "
        "The token of `kgw.admin.token.file` is taken in place of it. Without TLS the password "
        "can be read on the way: elsewhere than on loopback that needs "
        "`kgw.sasl.plain.without.tls`.",
    )
    admin_connections_max = TypedSetting(
        "kgw.admin.connections.max",
        32,
        "Connections to the admin listeners; a further one takes the place of that which has "
        "waited longest for a request, and is closed where all are being answered.",
        minimum=1,
        maximum=1_000,
    )


class SmqAgentSettings:
    """Settings of SeaweedMQ's agent API."""

    smq_agent_listener = TypedSetting(
        "kgw.smq.agent.listener",
        "",
        "Where the agent's API of SeaweedMQ is served over gRPC, as HOST:PORT, or over TLS, as "
        "`https://HOST:PORT`; nowhere unless set. Also `--smq-agent`. Needs the extra `seaweedmq` "
        "(docs/smq-agent.md).",
        check=check_agent_listener,
    )
    smq_agent_login = TypedSetting(
        "kgw.smq.agent.login",
        False,
        "Whether clients of the agent's API log in: each call has the metadata `authorization` "
        "with HTTP Basic, as a user of `kgw users`. Without TLS the password can be read on the "
        "way: elsewhere than on loopback that needs `kgw.sasl.plain.without.tls`.",
    )
    smq_agent_acks = TypedSetting(
        "kgw.smq.agent.acks",
        "client",
        "What moves a group of the agent's API: acknowledgements of the `client`, where it asks "
        "for a window; or `delivery` alone, as with SMQ's own agent.",
        allowed=("client", "delivery"),
    )
    smq_agent_sessions_max = TypedSetting(
        "kgw.smq.agent.sessions.max",
        1_000,
        "Publish sessions of the agent's API; more are refused with POLICY_VIOLATION.",
        minimum=1,
    )
    smq_agent_streams_max = TypedSetting(
        "kgw.smq.agent.streams.max",
        100,
        "Streams of the agent's API, publishing and subscribing ones together; more are refused "
        "with RESOURCE_EXHAUSTED.",
        minimum=1,
        maximum=10_000,
    )


class ProcessSettings:
    """Settings of the process: how it ends, and its log."""

    shutdown_timeout_ms = TypedSetting(
        "kgw.shutdown.timeout.ms",
        10_000,
        "Time to finish what is in flight after SIGTERM.",
    )
    handover_ms = TypedSetting(
        "kgw.handover.ms",
        10_000,
        "How long a server that is told to stop waits for one that stands by to take over. 0: it "
        "stops without.",
    )
    log_format = TypedSetting(
        "kgw.log.format",
        "auto",
        "Log lines for people (`text`), for machines (`json`), or by where they go (`auto`).",
        allowed=("auto", "text", "json"),
    )
    log_level = TypedSetting(
        "kgw.log.level",
        "info",
        "The least important log lines that are written.",
        allowed=("debug", "info", "warning", "error"),
    )
    debug_slow_callback_ms = TypedSetting(
        "kgw.debug.slow.callback.ms",
        0,
        "For finding what holds the event loop: whatever takes more processor time at once is "
        "logged by name. 0 is off; on, small requests take a quarter more of the processor.",
    )


class ServerSettings(
    NodeSettings,
    StorageSettings,
    SeaweedMqSettings,
    CreationSettings,
    TopicDefaultSettings,
    RetentionSettings,
    GroupCoordinatorSettings,
    TransactionCoordinatorSettings,
    LagSettings,
    AdminSettings,
    OtelSettings,
    SmqAgentSettings,
    TlsSettings,
    LoginSettings,
    OAuthSettings,
    DelegationTokenSettings,
    AccessSettings,
    LimitSettings,
    ProcessSettings,
):
    """Every setting of the server."""


SERVER_SECTIONS: dict[str, tuple[Setting, ...]] = {
    "node": rows(NodeSettings),
    "storage": rows(StorageSettings),
    "seaweedmq": rows(SeaweedMqSettings),
    "topics": (*rows(CreationSettings), *_THROTTLES),
    "topic defaults": rows(TopicDefaultSettings),
    "retention": rows(RetentionSettings),
    "groups": rows(GroupCoordinatorSettings),
    "transactions": rows(TransactionCoordinatorSettings),
    "lag": rows(LagSettings),
    "admin": rows(AdminSettings),
    "OpenTelemetry": rows(OtelSettings),
    "SMQ agent": rows(SmqAgentSettings),
    "TLS": rows(TlsSettings),
    "login": (*rows(LoginSettings), *rows(OAuthSettings)),
    "delegation tokens": rows(DelegationTokenSettings),
    "access rules": rows(AccessSettings),
    "limits": rows(LimitSettings),
    "process": rows(ProcessSettings),
}
"""All settings of the server, in the sections of the documentation."""

SERVER_SETTINGS = table(*(one for section in SERVER_SECTIONS.values() for one in section))

SERVER_ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Older names that Kafka still accepts."""
