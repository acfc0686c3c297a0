"""A data directory of Apache Kafka is not taken for a new one of kgw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.foreign import refuse_foreign
from kgw.backend.embedded.offline.log_place import opened_target
from kgw.cli.errors import ExitCode
from kgw.cli.main import main
from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KRAFT = "#\n#Sat Nov 28 10:00:00 UTC 2026\ncluster.id=u0kN-x\nversion=1\nnode.id=1\n"
ZOOKEEPER = "#\n#Mon Jan 04 10:00:00 UTC 2021\ncluster.id=hAeL1g\nversion=0\nbroker.id=0\n"
LOG = "00000000000000000000.log"
KAFKAS = {
    "KRaft": (
        {"meta.properties": KRAFT, f"__cluster_metadata-0/{LOG}": "", "bootstrap.checkpoint": ""},
        "is a data directory of Apache Kafka (cluster u0kN-x), which",
    ),
    "KRaft, with topics": (
        {
            "meta.properties": KRAFT,
            f"__cluster_metadata-0/{LOG}": "",
            f"orders-0/{LOG}": "",
            f"a.topic-with-dashes-11/{LOG}": "",
        },
        "is a data directory of Apache Kafka (cluster u0kN-x) with 2 partitions, which",
    ),
    "ZooKeeper": (
        {
            "meta.properties": ZOOKEEPER,
            "recovery-point-offset-checkpoint": "0\n0\n",
            "orders-0/00000000000000004711.log": "",
        },
        "is a data directory of Apache Kafka (cluster hAeL1g) with 1 partition, which",
    ),
    "just formatted": (
        {"meta.properties": KRAFT.replace("=", " = ")},
        "is a data directory of Apache Kafka (cluster u0kN-x), which",
    ),
    "before meta.properties": (
        {"replication-offset-checkpoint": "0\n0\n"},
        "is a data directory of Apache Kafka, which",
    ),
    "partitions alone": (
        {f"orders-0/{LOG}": "x", "lost+found/": ""},
        "is a data directory of Apache Kafka with 1 partition, which",
    ),
    "one partition": ({LOG: "x"}, "is a partition of Apache Kafka, which"),
}
OTHERS: dict[str, dict[str, str]] = {
    "empty": {},
    "a new file system": {"lost+found/": ""},
    "other folders": {"orders-0/notes.txt": "", "node-1/1.log": ""},
}


def make(root: Path, content: Mapping[str, str]) -> str:
    """Make a directory of files; a name that ends with a slash is a folder."""
    root.mkdir()
    for name, text in content.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return str(root)


def listed(root: Path) -> list[str]:
    """Return everything below a directory."""
    return sorted(str(one.relative_to(root)) for one in root.rglob("*"))


@pytest.mark.parametrize("kind", KAFKAS)
def test_kafkas_directories_are_recognised(tmp_path: Path, kind: str) -> None:
    """Of every age, with and without topics: it is said what it is, and where to go on."""
    content, expected = KAFKAS[kind]
    with pytest.raises(DataDirectoryError) as caught:
        refuse_foreign(RealFs(), make(tmp_path / "data", content))
    assert f"{tmp_path / 'data'} {expected} kgw does not open: " in str(caught.value)
    assert "docs/migration.md" in str(caught.value)


@pytest.mark.parametrize("kind", OTHERS)
def test_other_directories_are_not_taken_for_kafkas(tmp_path: Path, kind: str) -> None:
    """A new directory, and one with something else in it, can be served from."""
    refuse_foreign(RealFs(), make(tmp_path / "data", OTHERS[kind]))
    refuse_foreign(RealFs(), str(tmp_path / "not there"))


@pytest.mark.damages_storage("a format file alone is no data directory")
def test_a_directory_of_kgw_is_its_own(tmp_path: Path) -> None:
    """Whatever lies beside what kgw has written."""
    refuse_foreign(
        RealFs(), make(tmp_path / "data", {"meta.properties": KRAFT, "format.json": "{}"})
    )


async def test_logs_are_not_copied_into_kafkas_directory(tmp_path: Path) -> None:
    """`kgw log copy` makes its target where there is none, and not in one of another program."""
    path = make(tmp_path / "data", KAFKAS["ZooKeeper"][0])
    with pytest.raises(DataDirectoryError, match="of Apache Kafka"):
        async with opened_target(path):
            pass
    assert not (tmp_path / "data" / "partitions").exists()


COMMANDS = {
    "serve": ["serve", "--listen", "127.0.0.1:0", "--data-dir"],
    "log check": ["log", "check"],
    "log dump": ["log", "dump"],
    "log adopt": ["log", "adopt"],
    "log compact": ["log", "compact"],
    "log copy": ["log", "copy", "--to", "seaweedmq://127.0.0.1:1/there"],
    "state copy": ["state", "copy", "--to", "sqlite"],
    "state copy to a namespace": ["state", "copy", "--to", "seaweedmq://127.0.0.1:1/there"],
    "state copy into it": ["state", "copy", "seaweedmq://127.0.0.1:1/there", "--to"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_works_on_kafkas_directory(tmp_path: Path, name: str) -> None:
    """Each says the same, with the exit code of data directories, and writes nothing there."""
    content, expected = KAFKAS["ZooKeeper"]
    root = tmp_path / "data"
    path = make(root, content)
    before = listed(root)
    result = CliRunner(env={"KGW_CONFIG": None}).invoke(main, [*COMMANDS[name], path])
    assert ExitCode.DATA_DIRECTORY == result.exit_code, result.output
    assert f"{path} {expected}" in result.stderr
    assert before == listed(root)
