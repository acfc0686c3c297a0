"""Server settings that limit clients: connections, requests, responses, memory."""

from kgw.config.setting import INT_MAX, SettingType, TypedSetting, dynamic_setting

LONG = SettingType.LONG


class LimitSettings:
    """Settings that limit clients."""

    socket_request_max_bytes = TypedSetting(
        "socket.request.max.bytes",
        100 << 20,
        "Largest request; a longer one closes its connection. Memory is charged as bytes arrive.",
        minimum=1024,
    )
    request_memory_bytes = TypedSetting(
        "kgw.request.memory.bytes",
        -1,
        "Memory for requests of all connections together; reading pauses when it is spent. "
        "-1: a quarter of the memory that the process may use.",
        type_=LONG,
        minimum=-1,
    )
    inflight_requests_max = TypedSetting(
        "kgw.inflight.requests.max",
        32,
        "Requests of one connection that wait for their answers; then its reading pauses.",
        minimum=1,
    )
    inflight_bytes_max = TypedSetting(
        "kgw.inflight.bytes.max",
        16 << 20,
        "Bytes of requests of one connection that wait for their answers; then its reading pauses.",
        type_=LONG,
        minimum=1024,
    )
    unsent_bytes_max = TypedSetting(
        "kgw.unsent.bytes.max",
        8 << 20,
        "Answer bytes that a client has not taken; above it no further request is started.",
        type_=LONG,
        minimum=1024,
    )
    unsent_timeout_ms = TypedSetting(
        "kgw.unsent.timeout.ms",
        60_000,
        "Time without progress after which a client that takes no answers is dropped.",
        minimum=1,
    )
    frame_timeout_ms = TypedSetting(
        "kgw.frame.timeout.ms",
        30_000,
        "Time in which a request that has begun must have arrived.",
        minimum=1,
    )
    connections_max_idle_ms = TypedSetting(
        "connections.max.idle.ms",
        600_000,
        "Time after which an idle connection is closed. -1: never.",
        type_=LONG,
        minimum=-1,
    )
    max_connections = dynamic_setting(
        "max.connections",
        INT_MAX,
        "Connections in all. The limit of file descriptors, raised at start, holds as well. "
        "Lowered while the server runs, it ends those that were used least recently.",
        minimum=1,
    )
    max_connections_per_ip = dynamic_setting(
        "max.connections.per.ip",
        INT_MAX,
        "Connections from one address. Lowered while the server runs, it holds for further ones.",
        minimum=1,
    )
    socket_listen_backlog_size = TypedSetting(
        "socket.listen.backlog.size",
        1024,
        "Connections that may wait to be accepted.",
        minimum=1,
    )
    socket_send_buffer_bytes = TypedSetting(
        "socket.send.buffer.bytes",
        -1,
        "What the system may take of answers before a client does, for each connection; "
        "-1 leaves it to the system.",
        minimum=-1,
    )
    fetch_max_bytes = TypedSetting(
        "fetch.max.bytes",
        55 << 20,
        "Largest answer to a Fetch, whatever the client asks for; one batch always fits.",
        minimum=1024,
    )
    max_incremental_fetch_session_cache_slots = TypedSetting(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "Fetch sessions that are kept (KIP-227): one for each consumer that fetches incrementally. "
        "0: none, and every Fetch is complete.",
    )
    fetch_session_partitions_max = TypedSetting(
        "kgw.fetch.session.partitions.max",
        100_000,
        "Partitions in all fetch sessions together; one takes up to 500 bytes.",
    )
    max_request_partition_size_limit = TypedSetting(
        "max.request.partition.size.limit",
        2000,
        "Partitions in one answer to DescribeTopicPartitions (KIP-966).",
        minimum=1,
    )
    decompressed_bytes_max = TypedSetting(
        "kgw.decompressed.bytes.max",
        64 << 20,
        "Largest batch after decompression, where records are read at all.",
        minimum=1024,
    )
    decompression_ratio_max = TypedSetting(
        "kgw.decompression.ratio.max",
        200,
        "Largest growth of a batch by decompression.",
        minimum=1,
    )
    producer_id_expiration_ms = dynamic_setting(
        "producer.id.expiration.ms",
        86_400_000,
        "Time after which the sequence of a producer that has gone is forgotten.",
        minimum=1,
    )
