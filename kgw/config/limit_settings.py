"""Server settings that limit clients: connections, requests, answers, memory."""

from kgw.config.setting import INT_MAX, Setting, SettingType, dynamic_setting

LONG = SettingType.LONG

LIMIT_SETTINGS = (
    Setting(
        "socket.request.max.bytes",
        100 << 20,
        "Largest request; a longer one closes its connection. Memory is charged as bytes arrive.",
        minimum=1024,
    ),
    Setting(
        "kgw.request.memory.bytes",
        -1,
        "Memory for requests of all connections together; reading pauses when it is spent. "
        "-1: a quarter of the memory that the process may use.",
        type_=LONG,
        minimum=-1,
    ),
    Setting(
        "kgw.inflight.requests.max",
        32,
        "Requests of one connection that wait for their answers; then its reading pauses.",
        minimum=1,
    ),
    Setting(
        "kgw.inflight.bytes.max",
        16 << 20,
        "Bytes of requests of one connection that wait for their answers; then its reading pauses.",
        type_=LONG,
        minimum=1024,
    ),
    Setting(
        "kgw.unsent.bytes.max",
        8 << 20,
        "Answer bytes that a client has not taken; above it no further request is started.",
        type_=LONG,
        minimum=1024,
    ),
    Setting(
        "kgw.unsent.timeout.ms",
        60_000,
        "Time without progress after which a client that takes no answers is dropped.",
        minimum=1,
    ),
    Setting(
        "kgw.frame.timeout.ms",
        30_000,
        "Time in which a request that has begun must have arrived.",
        minimum=1,
    ),
    Setting(
        "connections.max.idle.ms",
        600_000,
        "Time after which an idle connection is closed. -1: never.",
        type_=LONG,
        minimum=-1,
    ),
    dynamic_setting(
        "max.connections",
        INT_MAX,
        "Connections in all. The limit of file descriptors, raised at start, holds as well. "
        "Lowered while the server runs, it ends those that were used least recently.",
        minimum=1,
    ),
    dynamic_setting(
        "max.connections.per.ip",
        INT_MAX,
        "Connections from one address. Lowered while the server runs, it holds for further ones.",
        minimum=1,
    ),
    Setting(
        "socket.listen.backlog.size",
        1024,
        "Connections that may wait to be accepted.",
        minimum=1,
    ),
    Setting(
        "socket.send.buffer.bytes",
        -1,
        "What the system may take of answers before a client does, for each connection; "
        "-1 leaves it to the system.",
        minimum=-1,
    ),
    Setting(
        "fetch.max.bytes",
        55 << 20,
        "Largest answer to a Fetch, whatever the client asks for; one batch always fits.",
        minimum=1024,
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "Fetch sessions that are kept (KIP-227): one for each consumer that fetches incrementally. "
        "0: none, and every Fetch is complete.",
    ),
    Setting(
        "kgw.fetch.session.partitions.max",
        100_000,
        "Partitions in all fetch sessions together; one takes up to 500 bytes.",
    ),
    Setting(
        "max.request.partition.size.limit",
        2000,
        "Partitions in one answer to DescribeTopicPartitions (KIP-966).",
        minimum=1,
    ),
    Setting(
        "kgw.decompressed.bytes.max",
        64 << 20,
        "Largest batch after decompression, where records are read at all.",
        minimum=1024,
    ),
    Setting(
        "kgw.decompression.ratio.max",
        200,
        "Largest growth of a batch by decompression.",
        minimum=1,
    ),
    dynamic_setting(
        "producer.id.expiration.ms",
        86_400_000,
        "Time after which the sequence of a producer that has gone is forgotten.",
        minimum=1,
    ),
)
