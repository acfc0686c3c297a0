"""Kafka's own tools read what kgw stores."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import CompactionJob, LogSettings
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.seaweedmq.entries.layouts import Layout
from kgw.records.batch import Compression, read_batch
from kgw.records.builder import BatchBuilder
from kgw.testing.backend_harness import KEY, TOPIC
from kgw.testing.process import SERVE, GatewayProcess
from kgw.testing.segmented_suite import as_segmented
from tests.interop import scenario, transactions
from tests.interop.client import Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.client import Client
    from tests.seaweedfs.cluster import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]


# The last of Kafka 3, and of Kafka 4 the tool as it was in Scala and as it is in Java.
VERSIONS = ["3.9.1", "4.1.1", "4.4.0"]


@pytest.mark.damages_storage("the control alters a record")
def test_kafka_dump_log_reads_every_segment(
    clients: Callable[[str], Client], tmp_path: Path
) -> None:
    """kafka-dump-log finds no fault in segments and indexes, in any codec, after kills too."""
    data_dir = tmp_path / "data"
    with GatewayProcess(data_dir, "log.segment.bytes=2000000") as gateway:
        for name in ("franz-go", "java-4"):
            for codec in scenario.CODECS:
                topic = Topic(clients(name), gateway, f"{name}-{codec}")
                scenario.write(topic, codec, idempotent=True)
            gateway.kill()
            gateway.start()
        topic = Topic(clients("franz-go"), gateway, "franz-go-none")
        for _ in range(4):
            topic.produce(scenario.records(topic.client), idempotent=True)
    assert len(list(data_dir.rglob("*.log"))) > 2 * len(scenario.CODECS)
    script = Path(__file__).with_name("dump-log.sh")
    for version in VERSIONS:
        dumped = subprocess.run(
            [script, data_dir, version], capture_output=True, text=True, check=False
        )
        assert dumped.returncode == 0, dumped.stdout + dumped.stderr
        assert f"kafka-dump-log {version} read " in dumped.stdout
        assert "no complaint" in dumped.stdout
    # The control: the same tool does complain of a record that was altered.
    victim = max(data_dir.rglob("*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    dumped = subprocess.run([script, data_dir], capture_output=True, text=True, check=False)
    assert dumped.returncode == 1, dumped.stdout + dumped.stderr
    assert "complains" in dumped.stderr


async def test_kafka_dump_log_reads_compacted_segments(tmp_path: Path) -> None:
    """Empty batches, delete horizons and rewritten batches of every codec are as Kafka's own."""
    backend = EmbeddedBackend(tmp_path / "data")
    await backend.open()
    settings = LogSettings(segment_bytes=20_000, index_interval_bytes=1_000)
    log = await backend.create_partition(KEY, TOPIC, settings)
    for number in range(400):
        builder = BatchBuilder(
            compression=list(Compression)[number % 5],
            producer_id=7 if number < 5 else -1,
            producer_epoch=0 if number < 5 else -1,
            base_sequence=number * 5 if number < 5 else -1,
        )
        for place in range(5):
            value = None if (number + place) % 11 == 0 else b"%d-" % number + b"v" * 50
            key = b"key-%d" % ((number * 5 + place) % (300 if number < 200 else 40))
            builder.add(key=key, value=value, timestamp_ms=1_700_000_000_000 + number)
        await log.append([read_batch(builder.build())])
    job = CompactionJob(1 << 40, 1_700_000_000_000, 1_000, kept_batches=frozenset({0, 5, 10}))
    report = await as_segmented(log).compact(job)
    assert 0 < report.records_after < report.records_before
    later = job._replace(now_ms=job.now_ms + 2_000)
    assert (await as_segmented(log).compact(later)).tombstones_removed > 0
    await backend.aclose()
    script = Path(__file__).with_name("dump-log.sh")
    for version in VERSIONS:
        dumped = subprocess.run(  # noqa: ASYNC221 - nothing else is to be done meanwhile
            [script, tmp_path / "data", version, "compacted"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert dumped.returncode == 0, dumped.stdout + dumped.stderr
        assert "no complaint" in dumped.stdout


@pytest.mark.parametrize("layout", Layout)
def test_kafka_dump_log_reads_what_a_seaweedfs_held(
    clients: Callable[[str], Client], seaweedfs: Cluster, tmp_path: Path, layout: Layout
) -> None:
    """Segments that `kgw log copy` exports are without fault: every codec, transactions, kills."""
    url = seaweedfs.url(seaweedfs.new_namespace())
    settings = ("log.segment.bytes=2000000", f"kgw.seaweedmq.layout={layout}")
    command = (*SERVE, "--take-over")
    client = clients("java-4")
    with GatewayProcess(tmp_path / "gateway", *settings, command=command, backend=url) as gateway:
        for codec in scenario.CODECS:
            topic = Topic(client, gateway, codec)
            scenario.write(topic, codec, idempotent=True)
            for _ in range(2):
                topic.produce(scenario.records(client), codec, idempotent=True)
        gateway.kill()
        gateway.start()
        story = transactions.Story(client, gateway, "exported")
        story.open("producer")
        for commit in (True, False, True):
            story.transact("producer", commit=commit)
        client.close_producer("producer")
    exported = tmp_path / "exported"
    copied = subprocess.run(
        [sys.executable, "-m", "kgw", "log", "copy", url, "--to", exported],
        capture_output=True,
        text=True,
        check=False,
    )
    assert copied.returncode == 0, copied.stdout + copied.stderr
    # One segment a partition, whatever files the SeaweedFS had: of copied topics no settings are
    # known before their state is copied, too.
    assert len(scenario.CODECS) + len(story.places) == len(list(exported.rglob("*.log")))
    script = Path(__file__).with_name("dump-log.sh")
    for version in VERSIONS:
        dumped = subprocess.run(
            [script, exported, version], capture_output=True, text=True, check=False
        )
        assert dumped.returncode == 0, dumped.stdout + dumped.stderr
        assert "no complaint" in dumped.stdout
