"""A directory of another program is not taken for a new one of kgw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.foreign import refuse_foreign, refuse_others
from kgw.backend.embedded.offline.log_place import opened_target
from kgw.backend.registry import open_backend
from kgw.cli.main import main
from kgw.cli.shared.errors import ExitCode
from kgw.clock import SystemClock
from kgw.config import Config
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
    """A new directory, and one with something else in it."""
    refuse_foreign(RealFs(), make(tmp_path / "data", OTHERS[kind]))
    refuse_foreign(RealFs(), str(tmp_path / "not there"))


FREE: dict[str, dict[str, str]] = {
    "empty": {},
    "a new file system": {"lost+found/": "", ".snapshot/": ""},
    "a start that was ended": {"kgw.lock": "", "partitions/": "", "format.json.tmp": ""},
    "one that was ended later": {"journal/": "", "meta.sqlite-wal": "", "quarantine/": ""},
    "copied records": {"kgw.lock": "", "partitions/": "", "copied.json": "{}"},
}
TAKEN: dict[str, tuple[dict[str, str], str]] = {
    "a file": ({"notes.txt": "", "lost+found/": ""}, "it has notes.txt; name"),
    "hidden files": ({".profile": "", ".ssh/": ""}, "it has .profile, .ssh; name"),
    "many": (
        {f"{number}.jpg": "" for number in range(9)},
        "it has 0.jpg, 1.jpg, 2.jpg and 6 more; name",
    ),
    "beside a start": ({"partitions/": "", "a": ""}, "it has a; name"),
}


@pytest.mark.parametrize("kind", FREE)
def test_a_directory_that_is_free_is_taken(tmp_path: Path, kind: str) -> None:
    """With what a file system has by itself, and what a start has left that did not get far."""
    refuse_others(RealFs(), make(tmp_path / "data", FREE[kind]))
    refuse_others(RealFs(), str(tmp_path / "not there"))


@pytest.mark.parametrize("kind", TAKEN)
async def test_other_peoples_files_are_not_taken_for_a_data_directory(
    tmp_path: Path, kind: str
) -> None:
    """It is said what is there, and how to use the directory all the same; nothing is written."""
    content, expected = TAKEN[kind]
    path = make(tmp_path / "data", content)
    before = listed(tmp_path / "data")
    with pytest.raises(DataDirectoryError) as caught:
        await EmbeddedBackend(path).open()
    assert f"{path} is no data directory of kgw, and not empty: {expected}" in str(caught.value)
    assert "kgw.data.dir.shared=true" in str(caught.value)
    with pytest.raises(DataDirectoryError) as caught:
        async with opened_target(path):
            pass
    assert expected in str(caught.value)
    assert "kgw.data.dir.shared" not in str(caught.value)
    assert before == listed(tmp_path / "data")


async def test_what_records_were_copied_to_is_no_strangers(tmp_path: Path) -> None:
    """They are copied on, the state comes behind them, and a server is started there."""
    path = str(tmp_path / "data")
    for _ in range(2):
        async with opened_target(path):
            pass
    assert {"copied.json", "kgw.lock", "partitions"} == set(listed(tmp_path / "data"))
    backend = EmbeddedBackend(path)
    await backend.open()
    await backend.aclose()


async def test_a_directory_is_shared_by_request(tmp_path: Path) -> None:
    """What is there stays, and later starts need not be told again."""
    path = make(tmp_path / "data", {"notes.txt": "mine"})
    for config in (Config.of(log_dirs=path, data_dir_shared=True), Config.of(log_dirs=path)):
        backend = open_backend(config, SystemClock())
        await backend.open()
        await backend.aclose()
    assert "mine" == (tmp_path / "data" / "notes.txt").read_text()
    assert (tmp_path / "data" / "format.json").exists()


@pytest.mark.damages_storage("a format file alone is no data directory")
def test_a_directory_of_kgw_is_its_own(tmp_path: Path) -> None:
    """Whatever lies beside what kgw has written."""
    path = make(tmp_path / "data", {"meta.properties": KRAFT, "format.json": "{}"})
    refuse_foreign(RealFs(), path)
    refuse_others(RealFs(), path)


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


def test_a_state_is_not_copied_among_other_files(tmp_path: Path) -> None:
    """It would make a data directory there."""
    path = make(tmp_path / "data", {"notes.txt": ""})
    command = [*COMMANDS["state copy into it"], path]
    result = CliRunner(env={"KGW_CONFIG": None}).invoke(main, command)
    assert ExitCode.DATA_DIRECTORY == result.exit_code, result.output
    assert "not empty: it has notes.txt" in result.stderr
    assert ["notes.txt"] == listed(tmp_path / "data")
