"""Server settings of the seaweedmq backend (docs/seaweedmq.md)."""

import re

from kgw.config.setting import Setting, Value


def _check_replication(value: Value) -> None:
    if value and not re.fullmatch(r"[0-9]{3}", str(value)):
        raise ValueError("three digits, as in 001: copies in other data centres, racks, servers")


def _check_patterns(value: Value) -> None:
    for pattern in value if isinstance(value, tuple) else ():
        namespace, dot, topic = pattern.partition(".")
        if not namespace or not dot or not topic or "/" in pattern:
            raise ValueError(f"{pattern}: <namespace>.<topic> is expected, as in sensors.*")


SEAWEEDMQ_SETTINGS = (
    Setting(
        "kgw.seaweedmq.layout",
        "batches",
        "How records stand in SMQ's log files. `batches`: as they came, a batch an entry. "
        "`records`: a record an entry, for SMQ's own readers and SQL; slower.",
        allowed=("batches", "records"),
    ),
    Setting(
        "kgw.seaweedmq.lease.ms",
        10_000,
        "After so long without a renewal another gateway of the namespace takes over, and this "
        "one refuses requests until it has renewed. Renewed three times in that time.",
        minimum=1_000,
        maximum=600_000,
    ),
    Setting(
        "kgw.seaweedmq.replication",
        "",
        "How often SeaweedFS keeps what is written, by its own digits, as in `001`. Empty: as the "
        "filer says.",
        check=_check_replication,
    ),
    Setting(
        "kgw.seaweedmq.collection",
        "",
        "The collection of volumes that records go to. Empty: as the filer says.",
    ),
    Setting(
        "kgw.seaweedmq.disk.type",
        "",
        "The type of disk that records go to, as in `ssd`. Empty: as the filer says.",
    ),
    Setting(
        "kgw.seaweedmq.fsync",
        False,
        "Whether volume servers sync records to their disks before they are acknowledged. It "
        "says nothing of the filer's own store.",
    ),
    Setting(
        "kgw.seaweedmq.mirror.offsets",
        True,
        "Whether committed offsets are written, a second behind the commit, where SMQ keeps the "
        "positions of its groups, too: for people and tools.",
    ),
    Setting(
        "kgw.seaweedmq.native",
        (),
        "Topics of SMQ's own publishers that are served, as in `sensors.*,logs.web`: "
        "`<namespace>.<topic>` with `*` and `?`. Clients know a topic by both names. Read only.",
        check=_check_patterns,
    ),
    Setting(
        "kgw.seaweedmq.native.write",
        False,
        "Whether Kafka clients may write to those topics, through SMQ's broker: keys and values, "
        "without headers, idempotence and transactions.",
    ),
    Setting(
        "kgw.seaweedmq.acks",
        "filer",
        "When a record of those topics counts, for producers and consumers. `filer`: once it is in "
        "a log file, so at the broker's next flush. `broker`: once its broker has it in memory; "
        "when that ends, the last seconds are lost, and their offsets may be given out again.",
        allowed=("filer", "broker"),
    ),
    Setting(
        "kgw.seaweedmq.security.file",
        "",
        "SeaweedFS's `security.toml`, where its servers ask for certificates or tokens.",
    ),
    Setting(
        "kgw.seaweedmq.tls.name",
        "",
        "The name that the servers' certificates are made out to, where that is not the host in "
        "`kgw.backend`.",
    ),
)
