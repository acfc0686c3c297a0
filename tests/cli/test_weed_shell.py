"""What SeaweedFS's own shell does to topics of kgw, on a real SeaweedFS."""

from __future__ import annotations

import json
import re
import subprocess
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.protos.schema_pb2 import Field, RecordType, ScalarType, Type
from kgw.backend.seaweedmq.topics.topic_conf import RECORD_TYPE
from kgw.cli.shared.errors import ExitCode
from kgw.testing.process import GatewayProcess
from tests import patience
from tests.cli.conftest import Commands
from tests.seaweedfs import binary

if TYPE_CHECKING:
    from pathlib import Path

    from tests.seaweedfs.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


def shell(cluster: Cluster, *commands: str) -> str:
    """Run commands in `weed shell`; return what it says. It must end in order."""
    addresses = [f"-{name}={cluster.address(name)}" for name in ("master", "filer")]
    ended = subprocess.run(
        [binary.weed(), "shell", *addresses],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
        timeout=patience.seconds(60),
        check=False,
    )
    assert 0 == ended.returncode, ended.stderr
    return ended.stdout + ended.stderr


def names_of(cluster: Cluster, namespace: str, topic: str) -> list[str]:
    """Return the names of the topic's files and directories, as the shell sees them."""
    said = shell(cluster, f"fs.tree /topics/{namespace}/{topic}")
    return sorted(re.findall(r"[\w.:-]*(?:kgw|offset|conf|parquet|\d{4}-\d{4})", said))


def record_type() -> str:
    """Return a record type as the setting has it."""
    field = Field(name="v", field_index=0, type=Type(scalar_type=ScalarType.INT64))
    return b64encode(RecordType(fields=[field]).SerializeToString()).decode()


def test_its_compaction_leaves_a_topic_with_a_record_type_alone(
    seaweedfs: Cluster, offline: Commands, tmp_path: Path
) -> None:
    """Its shell sees the fields, finds no file to compact, and does not end with a panic."""
    namespace = seaweedfs.new_namespace()
    with GatewayProcess(tmp_path / "data", backend=seaweedfs.url(namespace)) as process:
        kgw = Commands(process.bootstrap)
        settings = (f"{RECORD_TYPE}={record_type()}", "kgw.seaweedmq.layout=records")
        kgw.succeed("topics", "create", "late", "-p", "1")
        for setting in settings:
            kgw.succeed("topics", "alter", "late", "--set", setting)
        kgw.succeed("topics", "create", "more", "-p", "1", *(f"--set={one}" for one in settings))
        for topic in ("late", "more"):
            kgw.succeed("produce", topic, data="a\nb\n")
            conf = shell(seaweedfs, f"fs.cat /topics/{namespace}/{topic}/topic.conf")
            limit = patience.Limit(20)
            while '"name": "v"' not in conf:
                # The row is kept beside the files behind the answer.
                assert not limit.is_over, conf
                conf = shell(seaweedfs, f"fs.cat /topics/{namespace}/{topic}/topic.conf")
            before = names_of(seaweedfs, namespace, topic)
            shell(seaweedfs, f"mq.topic.compact -namespace {namespace} -topic {topic} -timeAgo 0s")
            assert before == names_of(seaweedfs, namespace, topic)
            assert ["a", "b"] == kgw.succeed("consume", topic).split()
    offline.succeed("log", "check", seaweedfs.url(namespace))


def test_what_it_truncates_is_not_begun_anew(
    seaweedfs: Cluster, offline: Commands, tmp_path: Path
) -> None:
    """The next start names the partition; what is lost for good is accepted by a command."""
    namespace = seaweedfs.new_namespace()
    url = seaweedfs.url(namespace)
    with GatewayProcess(tmp_path / "data", backend=url) as process:
        kgw = Commands(process.bootstrap)
        for topic in ("cut", "kept"):
            kgw.succeed("topics", "create", topic, "-p", "1")
            kgw.succeed("produce", topic, data="a\nb\n")
    shell(seaweedfs, f"mq.topic.truncate -namespace {namespace} -topic cut")
    checked = offline.run("log", "check", url, "--json")
    assert ExitCode.FAILED == checked.exit_code
    (problem,) = json.loads(checked.stdout)["problems"]
    assert "held records up to offset 2" in problem["detail"]
    with GatewayProcess(tmp_path / "data", backend=url) as process:
        kgw = Commands(process.bootstrap)
        assert ["a", "b"] == kgw.succeed("consume", "kept").split()
        limit = patience.Limit(20)
        while "cannot be opened" not in process.log():
            assert not limit.is_over, process.log()
        assert "the state has it end at 2" in process.log()
    (loss,) = offline.json("log", "accept-loss", url, "--topic", "cut", "--dry-run")
    assert (0, 2, None) == (loss["end_offset"], loss["goes_on_at"], loss["obstacle"])
    offline.succeed("log", "accept-loss", url, "--yes")
    assert [] == offline.json("log", "accept-loss", url, "--dry-run")
    offline.succeed("log", "check", url)
    with GatewayProcess(tmp_path / "data", backend=url) as process:
        kgw = Commands(process.bootstrap)
        kgw.succeed("produce", "cut", data="c\n")
        (partition,) = kgw.json("topics", "describe", "cut")[0]["partitions"]
        assert (2, 3) == (partition["log_start_offset"], partition["high_watermark"])


def test_an_entry_is_brought_back_as_the_page_says(
    seaweedfs: Cluster, offline: Commands, tmp_path: Path
) -> None:
    """Of one directory, with something after it in the session; a check says what it has cost."""
    namespace = seaweedfs.new_namespace()
    url = seaweedfs.url(namespace)
    with GatewayProcess(tmp_path / "data", backend=url) as process:
        kgw = Commands(process.bootstrap)
        kgw.succeed("topics", "create", "orders", "-p", "2")
        for partition in ("0", "1"):
            kgw.succeed("produce", "orders", "-p", partition, data="a\n")
    first = offline.succeed("log", "dump", url, "--json").splitlines()[0]
    partition = json.loads(first)["segment"].rpartition("/")[0]
    saved = tmp_path / "saved.meta"
    shell(seaweedfs, f"fs.meta.save -o {saved} /topics/{namespace}")
    load = (f"fs.meta.load -v=false -dirPrefix={partition} {saved}", "fs.du /topics")

    shell(seaweedfs, f"fs.rm {partition}/leader.offset")
    checked = offline.run("log", "check", url, "--json")
    (problem,) = json.loads(checked.stdout)["problems"]
    assert f"{partition}/leader.offset" == problem["path"]
    shell(seaweedfs, *load)
    offline.succeed("log", "check", url)
    with GatewayProcess(tmp_path / "data", backend=url) as process:
        kgw = Commands(process.bootstrap)
        assert ["a"] == kgw.succeed("consume", "orders", "-p", "0").split()
        kgw.succeed("produce", "orders", "-p", "0", data="b\n")
    # A load puts back what is there, too: what was appended since it was saved is gone by it.
    shell(seaweedfs, *load)
    checked = offline.run("log", "check", url, "--json")
    assert ExitCode.FAILED == checked.exit_code
    assert ["the log ends at 1, before 2"] == [
        one["detail"][:27] for one in json.loads(checked.stdout)["problems"]
    ]
