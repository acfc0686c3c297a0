"""Server settings that are the defaults of topic settings.

`retention_settings` has the ones for old records.
"""

from kgw.config.setting import LONG_MAX, SettingType, Value, dynamic_setting, fixed

LONG = SettingType.LONG

ONE_NODE = "there is one node, so one replica"


def check_gzip_level(value: Value) -> None:
    """Raise ValueError for 0, which would not compress; Kafka refuses it, too (KIP-390)."""
    if value == 0:
        raise ValueError("the levels are -1 and 1 to 9")


# The dynamic settings are those that Kafka can change while a broker runs.
class TopicDefaultSettings:
    """Settings that are the defaults of topic settings."""

    message_max_bytes = dynamic_setting(
        "message.max.bytes",
        1_048_588,
        "Largest record batch accepted, unless the topic's max.message.bytes says otherwise.",
    )
    log_segment_bytes = dynamic_setting(
        "log.segment.bytes",
        1 << 30,
        "Size at which a segment file is closed and the next one begun.",
        minimum=1024,
    )
    log_index_interval_bytes = dynamic_setting(
        "log.index.interval.bytes",
        4096,
        "Bytes of log for each entry of a segment's offset index.",
    )
    log_index_size_max_bytes = dynamic_setting(
        "log.index.size.max.bytes",
        10 << 20,
        "Size of an index at which its segment is closed.",
        minimum=4,
    )
    log_message_timestamp_type = dynamic_setting(
        "log.message.timestamp.type",
        "CreateTime",
        "Whose time a record carries: its producer's (CreateTime) or the server's (LogAppendTime).",
        allowed=("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms = dynamic_setting(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a producer's timestamp may lie behind the server's clock.",
        type_=LONG,
    )
    log_message_timestamp_after_max_ms = dynamic_setting(
        "log.message.timestamp.after.max.ms",
        3_600_000,
        "How far a producer's timestamp may lie ahead of the server's clock.",
        type_=LONG,
    )
    compression_type = dynamic_setting(
        "compression.type",
        "producer",
        "What batches are stored in. `producer`: as they came. Anything else: a batch that comes "
        "in another codec is unpacked, within kgw.decompressed.bytes.max and "
        "kgw.decompression.ratio.max, its records are checked as with kgw.validation=records, and "
        "it is compressed again before it is stored.",
        allowed=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    )
    compression_gzip_level = dynamic_setting(
        "compression.gzip.level",
        -1,
        "Level of compression.type=gzip: 1 to 9, or -1 for zlib's own default, which is 6.",
        minimum=-1,
        maximum=9,
        check=check_gzip_level,
    )
    compression_lz4_level = dynamic_setting(
        "compression.lz4.level",
        9,
        "Level of compression.type=lz4. 9 is the fast compressor, as in Kafka, and any other the "
        "one that takes longer and makes less; it has levels 3 to 12, and takes what lies outside "
        "for the nearest of them.",
        minimum=1,
        maximum=17,
    )
    compression_zstd_level = dynamic_setting(
        "compression.zstd.level",
        3,
        "Level of compression.type=zstd. Those from 10 on are slow, and one thread does it for all "
        "topics; 22 takes 200 MB of memory for a batch of 8 MB.",
        minimum=-131_072,
        maximum=22,
    )
    log_preallocate = fixed(
        "log.preallocate",
        False,
        "Whether segment files get their full size at once.",
        "segments grow as they are written",
        dynamic=True,
    )
    log_flush_interval_messages = dynamic_setting(
        "log.flush.interval.messages",
        LONG_MAX,
        "An upper bound of records between two flushes. Every value holds where a record is "
        "flushed before it is acknowledged, as it is unless kgw.durability is `relaxed`.",
        type_=LONG,
        minimum=1,
    )
    log_flush_interval_ms = dynamic_setting(
        "log.flush.interval.ms",
        LONG_MAX,
        "An upper bound of time between two flushes. Every value holds where a record is flushed "
        "before it is acknowledged; with kgw.durability=relaxed the smaller of this and "
        "kgw.flush.ms counts.",
        type_=LONG,
    )
    durability = dynamic_setting(
        "kgw.durability",
        "strict",
        "When a record counts as written. `strict`: it survives a power cut. `relaxed`: it "
        "survives the end of the process, and is flushed kgw.flush.ms later; a power cut may take "
        "what has been acknowledged since, but never gives its offsets to other records.",
        allowed=("strict", "relaxed"),
    )
    flush_ms = dynamic_setting(
        "kgw.flush.ms",
        100,
        "Time after which an acknowledged record is flushed with kgw.durability=relaxed.",
        type_=LONG,
        minimum=1,
    )
    cold_compression = dynamic_setting(
        "kgw.cold.compression",
        "none",
        "What the records of old closed segments are put into. `zstd`: each segment is written "
        "anew once it is older than kgw.cold.compression.after.ms, beside everything else and "
        "as log.cleaner.enable and log.cleaner.io.max.bytes.per.second allow. Nothing changes for "
        "who reads but the codec; clients whose Fetch is too old for zstd (below version 10) get "
        "what was put into zstd so without compression. `none` leaves segments as they are, and "
        "does not take back what was done.",
        allowed=("none", "zstd"),
    )
    cold_compression_level = dynamic_setting(
        "kgw.cold.compression.level",
        9,
        "Level of kgw.cold.compression=zstd.",
        minimum=1,
        maximum=19,
    )
    cold_compression_after_ms = dynamic_setting(
        "kgw.cold.compression.after.ms",
        604_800_000,
        "Age of a segment's newest record above which kgw.cold.compression concerns it, counted "
        "as retention.ms is. The segment that is being written is closed by then only if "
        "segment.ms or segment.bytes closes it.",
        type_=LONG,
    )
    validation = dynamic_setting(
        "kgw.validation",
        "headers",
        "What is read of a batch before it is stored. `headers`: the batch header and the checksum "
        "over all of it; the records are not unpacked, so that a batch can be stored whose records "
        "are not what its header says, and which readers cannot read. `records`: each record as "
        "well, within kgw.decompressed.bytes.max and kgw.decompression.ratio.max; such a batch is "
        "refused. Compacted topics always read each record.",
        allowed=("headers", "records"),
    )
    max_decompressed_message_bytes = fixed(
        "max.decompressed.message.bytes",
        (1 << 31) - 9,
        "Largest record that is read out of a compressed batch.",
        "see kgw.decompressed.bytes.max and kgw.decompression.ratio.max",
        dynamic=True,
    )
    min_insync_replicas = fixed(
        "min.insync.replicas",
        1,
        "Copies that acks=all waits for.",
        ONE_NODE,
        dynamic=True,
    )
    unclean_leader_election_enable = fixed(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that lags may lead.",
        ONE_NODE,
        dynamic=True,
    )
