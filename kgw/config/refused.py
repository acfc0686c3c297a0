"""Settings of Kafka that kgw does not support, each with the reason.

They are refused, not ignored: a setting that is accepted promises an effect.
"""

from __future__ import annotations

_CONSUMER_PROTOCOL = "the consumer protocol of KIP-848 is not served yet"
_STREAMS = "streams groups are not served yet"
_OFFSETS = "committed offsets are rows of the state store, not records of a topic"
_TRANSACTION_LOG = "transactional ids are rows of the state store, not records of a topic"
_TOKENS = "removed in Kafka 4; see delegation.token.secret.key"
_ONE_SECURITY = "one setting holds for every listener"
_LOGIN = "of the login kgw has sasl.enabled.mechanisms and the settings beside it"
_TLS = "Python's ssl module has nothing that it could mean"
_QUOTAS = "quotas are not served yet"
_ONE_NODE = "there is one node, and no replication"
_NO_QUORUM = "there is no controller quorum"
_TIERS = "there is no remote storage"
_CLASSES = "kgw loads no classes"
_THREADS = "kgw has one event loop, and no such threads"
_JAVA_METRICS = "metrics are kgw's own"
_SHARE = "share groups are not served yet"
_NOT_NEEDED = "kgw has nothing that it could mean"

REFUSED_TOPIC_SETTINGS = {
    "message.downconversion.enable": "removed in Kafka 4",
    "message.format.version": "removed in Kafka 4",
    "message.timestamp.difference.max.ms": "removed in Kafka 4; see message.timestamp.before.max.ms"
    " and message.timestamp.after.max.ms",
}

REFUSED_SERVER_SETTINGS = {
    "add.partitions.to.txn.retry.backoff.ms": "what waits is told when its time has come",
    "alter.config.policy.class.name": _CLASSES,
    "auto.leader.rebalance.enable": _ONE_NODE,
    "background.threads": _THREADS,
    "broker.rack": "racks come with several nodes",
    "client.quota.callback.class": _CLASSES,
    "config.providers": _CLASSES,
    "create.topic.policy.class.name": _CLASSES,
    "early.start.listeners": _NO_QUORUM,
    "inter.broker.listener.name": _ONE_NODE,
    "inter.broker.protocol.version": _ONE_NODE,
    "max.connection.creation.rate": "a rate of connections is not enforced yet",
    "max.connections.per.ip.overrides": "one limit holds for every address",
    "num.io.threads": _THREADS,
    "num.network.threads": _THREADS,
    "num.recovery.threads.per.data.dir": _THREADS,
    "principal.builder.class": _CLASSES,
    "process.roles": _NO_QUORUM,
    "queued.max.request.bytes": "see kgw.request.memory.bytes",
    "queued.max.requests": "see kgw.inflight.requests.max",
    "request.timeout.ms": _ONE_NODE,
    "server.max.startup.time.ms": _NO_QUORUM,
    "socket.receive.buffer.bytes": "the system sizes its socket buffers",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "a transaction is aborted when "
    "its time is over, and none is looked for",
    "transaction.two.phase.commit.enable": "two-phase commit is not served",
}

# If a prefix begins with another one, the longer one comes first.
_REFUSED_PREFIXES = (
    ("alter.log.dirs.", _ONE_NODE),
    ("broker.heartbeat.", _NO_QUORUM),
    ("broker.session.", _NO_QUORUM),
    ("control.plane.", _ONE_NODE),
    ("controlled.shutdown.", _ONE_NODE),
    ("controller.", _NO_QUORUM),
    ("delegation.token.", _TOKENS),
    ("delete.records.purgatory.", _NOT_NEEDED),
    ("fetch.purgatory.", _NOT_NEEDED),
    ("group.share.", _SHARE),
    ("group.consumer.", _CONSUMER_PROTOCOL),
    ("group.streams.", _STREAMS),
    ("group.", _THREADS),
    ("initial.broker.", _NO_QUORUM),
    ("kafka.metrics.", _JAVA_METRICS),
    ("leader.imbalance.", _ONE_NODE),
    ("listener.name.", _ONE_SECURITY),
    ("log.cleaner.", "kgw has no such buffers"),
    ("log.flush.", "see kgw.durability, kgw.flush.ms and kgw.checkpoint.interval.ms"),
    ("log.local.", _TIERS),
    ("log.message.", "removed in Kafka 4"),
    ("metadata.", _NO_QUORUM),
    ("metric.", _JAVA_METRICS),
    ("metrics.", _JAVA_METRICS),
    ("num.replica.", _ONE_NODE),
    ("offsets.", _OFFSETS),
    ("password.encoder.", _NOT_NEEDED),
    ("producer.id.expiration.check.", _NOT_NEEDED),
    ("producer.purgatory.", _NOT_NEEDED),
    ("quota.", _QUOTAS),
    ("remote.", _TIERS),
    ("replica.", _ONE_NODE),
    ("replication.", _ONE_NODE),
    ("reserved.broker.", _ONE_NODE),
    ("sasl.oauthbearer.", "the server only checks tokens, and loads no classes for it"),
    ("sasl.", _LOGIN),
    ("security.", _TLS),
    ("share.", _SHARE),
    ("socket.connection.setup.", _ONE_NODE),
    ("ssl.", _TLS),
    ("telemetry.", "client telemetry is not served yet"),
    ("transaction.state.", _TRANSACTION_LOG),
    ("transaction.", _NOT_NEEDED),
    ("zookeeper.", "there is no ZooKeeper"),
)


def why_refused(name: str) -> str | None:
    """Return why a broker setting of Kafka is refused; None for a name that Kafka does not have."""
    reason = REFUSED_SERVER_SETTINGS.get(name)
    if reason is not None:
        return reason
    for prefix, prefix_reason in _REFUSED_PREFIXES:
        if name.startswith(prefix):
            return prefix_reason
    return None
