"""Tables follow the commit log: exactly once, whatever dies, and whoever else publishes."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from kgw.pipeline.archive.audit import audit
from kgw.pipeline.archive.columns import SCHEMA
from kgw.pipeline.archive.commit_log import CHECKPOINT_EVERY
from kgw.pipeline.archive.entry import Hole
from kgw.pipeline.archive.errors import ArchiveError, PublishError
from kgw.pipeline.archive.tables import KINDS, TableSettings, publish, register
from kgw.pipeline.archive.tables.delta import Delta
from kgw.pipeline.archive.tables.iceberg import Iceberg, table_name
from tests.pipeline.archive.tables.archives import TOPIC_ID, Archived, decoded, iceberg, table_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.pipeline.archive.tables.changes import TableChange

EACH_KIND = pytest.mark.parametrize(
    "kind", ["delta", pytest.param("iceberg", marks=pytest.mark.slow)]
)
IMPLEMENTATIONS: dict[str, type[Delta | Iceberg]] = {"delta": Delta, "iceberg": Iceberg}


def found(archived: Archived) -> list[tuple[int, str]]:
    """Return levels and names of what an audit finds."""
    return [(one.level, one.name) for one in audit(archived.generation, TOPIC_ID, level=1)]


def history(archived: Archived, kind: str) -> list[int]:
    """Return the versions of the commit log that a table's commits say, the first one first."""
    if kind == "delta":
        told = [one.get("kgw.archive") for one in DeltaTable(str(archived.generation)).history()]
        return [one["version"] for one in reversed(told) if one is not None]
    catalog, table = iceberg(archived.generation)
    with catalog:
        return [
            int(one.summary.additional_properties["kgw.archive.version"])
            for one in table.metadata.snapshots
            if one.summary is not None
        ]


def open_files(directory: Path) -> list[str]:
    """Return the files below a directory that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(descriptor.readlink()))
    return [one for one in found if one.startswith(f"{directory.resolve()}/")]


@EACH_KIND
def test_a_table_follows_its_archive(tmp_path: Path, kind: str) -> None:
    """Appends, a commit without a file, a merge, a compaction and retention: one commit each."""
    archived = Archived(tmp_path, kind)
    assert {kind: 0} == publish(archived.generation, TOPIC_ID)
    steps: list[Callable[[], object]] = [
        lambda: archived.append(10, 20),
        lambda: archived.append(20, 30),
        lambda: archived.commit(Hole(3, 30, 34, "control")),
        lambda: archived.append(35, 45),
        lambda: archived.replace(2, "merged"),
        lambda: archived.replace(3, "compacted"),
        lambda: archived.append(45, 50),
        lambda: archived.expire(1),
    ]
    for step in steps:
        step()
        assert (1, "table behind") in found(archived)
        assert {kind: archived.version} == publish(archived.generation, TOPIC_ID)
        assert archived.rows() == table_rows(archived.generation, kind)
        assert {kind: archived.version} == publish(archived.generation, TOPIC_ID)
        assert [] == found(archived)
    assert list(range(1, len(steps) + 1)) == history(archived, kind)


@EACH_KIND
def test_what_is_behind_is_made_up_for_in_one_commit(tmp_path: Path, kind: str) -> None:
    """Also files that have come and gone since, and are no more."""
    archived = Archived(tmp_path)
    archived.append(10, 20)
    archived.append(20, 30)
    archived.expire(1)
    archived.append(30, 40)
    register(archived.generation, TableSettings(kind))
    assert {kind: 4} == publish(archived.generation, TOPIC_ID)
    assert archived.rows() == table_rows(archived.generation, kind)
    assert [4] == history(archived, kind)


@EACH_KIND
def test_a_commit_carries_its_range(tmp_path: Path, kind: str) -> None:
    """The versions of the log, the topic id and the offsets of each partition."""
    archived = Archived(tmp_path, kind)
    archived.append(10, 20)
    archived.append(20, 30)
    publish(archived.generation, TOPIC_ID)
    if kind == "delta":
        table = DeltaTable(str(archived.generation))
        told = table.history(1)[0]["kgw.archive"]
        expected = {
            "topic_id": str(TOPIC_ID),
            "first_version": 1,
            "version": 2,
            "offsets": {"3": [[10, 29]]},
        }
        assert (expected, 2) == (told, table.transaction_version(f"kgw-archive-{TOPIC_ID}"))
        return
    catalog, published = iceberg(archived.generation)
    with catalog:
        snapshot = published.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    properties = snapshot.summary.additional_properties
    assert '{"3": [[10, 29]]}' == properties["kgw.archive.offsets"]
    assert str(TOPIC_ID) == properties["kgw.archive.topic-id"]


class Killed(BaseException):
    """The process is no more."""


@EACH_KIND
@pytest.mark.parametrize("step", ["make", "after make", "commit", "after commit"])
def test_a_publisher_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, step: str
) -> None:
    """At any step: the next one makes up for it, and nothing is in the table twice."""
    archived = Archived(tmp_path, kind)
    archived.append(10, 20)
    implementation = IMPLEMENTATIONS[kind]
    name = step.removeprefix("after ")
    original = getattr(implementation, name)

    def killed(*arguments: Any) -> None:
        if step.startswith("after"):
            original(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(implementation, name, killed)
        with pytest.raises(Killed):
            publish(archived.generation, TOPIC_ID)
    archived.append(20, 30)
    assert {kind: 2} == publish(archived.generation, TOPIC_ID)
    assert archived.rows() == table_rows(archived.generation, kind)
    assert [] == found(archived)


@EACH_KIND
@pytest.mark.parametrize("is_ahead", [True, False])
def test_two_publishers_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, *, is_ahead: bool
) -> None:
    """One that has read the table before the other commits does nothing to it: it reads again."""
    archived = Archived(tmp_path, kind)
    archived.append(10, 20)
    publish(archived.generation, TOPIC_ID)
    archived.append(20, 30)
    implementation = IMPLEMENTATIONS[kind]
    original = implementation.commit
    answers: list[bool | None] = []

    def commit(table: Any, change: TableChange) -> bool:
        if not answers:
            answers.append(None)
            if is_ahead:
                archived.append(30, 40)
            publish(archived.generation, TOPIC_ID)
        is_done = original(table, change)
        answers.append(is_done)
        return is_done

    monkeypatch.setattr(implementation, "commit", commit)
    published = publish(archived.generation, TOPIC_ID)
    assert {kind: archived.version} == published
    # None for the call that let the other one go before.
    assert [None, True, False] == answers
    assert archived.rows() == table_rows(archived.generation, kind)
    assert [] == found(archived)


def test_a_delta_table_that_somebody_has_written_to(tmp_path: Path) -> None:
    """Nothing is done to it, and the file is named; it is made anew when it was removed."""
    archived = Archived(tmp_path, "delta")
    archived.append(10, 20)
    publish(archived.generation, TOPIC_ID)
    rows = pa.Table.from_pylist([], SCHEMA).select(SCHEMA.names)
    foreign = pa.concat_tables([rows, pa.Table.from_pylist([foreign_row()], SCHEMA)])
    write_deltalake(str(archived.generation), foreign, mode="append")
    archived.append(20, 30)

    with pytest.raises(
        PublishError, match=r"not what was published: at version 1 it has part-.*_delta_log"
    ):
        publish(archived.generation, TOPIC_ID)
    assert [(1, "table differs")] == found(archived)
    for path in sorted((archived.generation / "_delta_log").glob("**/*"), reverse=True):
        path.unlink()
    assert {"delta": 2} == publish(archived.generation, TOPIC_ID)
    assert [] == found(archived)
    assert archived.rows() == table_rows(archived.generation, "delta")


def foreign_row() -> dict[str, Any]:
    """Return a row that no archive has."""
    return {"_partition": 3, "_offset": 99, "_ts_ns": 0, "_ts_type": 0, "_epoch": 0, "_value": b"x"}


def test_a_delta_table_whose_rows_were_deleted(tmp_path: Path) -> None:
    """Files of the archive that it has no more are named."""
    archived = Archived(tmp_path, "delta")
    piece = archived.append(10, 20)
    publish(archived.generation, TOPIC_ID)
    DeltaTable(str(archived.generation)).delete("_offset = 15")
    with pytest.raises(PublishError, match=f"at version 1 it lacks {piece.path} and it has"):
        publish(archived.generation, TOPIC_ID)


@pytest.mark.slow
def test_an_iceberg_table_that_somebody_has_written_to(tmp_path: Path) -> None:
    """Nothing is done to it, and the snapshot is named."""
    archived = Archived(tmp_path, "iceberg")
    archived.append(10, 20)
    publish(archived.generation, TOPIC_ID)
    catalog, table = iceberg(archived.generation)
    with catalog:
        table.append(pa.Table.from_pylist([foreign_row()], table.schema().as_arrow()))
        snapshot = table.current_snapshot()
    assert snapshot is not None
    archived.append(20, 30)

    told = f"its snapshot {snapshot.snapshot_id} is somebody else's; remove .*_iceberg"
    with pytest.raises(PublishError, match=told):
        publish(archived.generation, TOPIC_ID)
    assert [(1, "foreign table")] == found(archived)


@EACH_KIND
def test_a_table_ahead_of_its_log(tmp_path: Path, kind: str) -> None:
    """As of an archive that was put back from a copy."""
    archived = Archived(tmp_path, kind)
    archived.append(10, 20)
    archived.append(20, 30)
    publish(archived.generation, TOPIC_ID)
    (archived.generation / "_log" / f"{2:020d}.json").unlink()
    assert (1, "table ahead") in found(archived)
    with pytest.raises(PublishError, match="come to version 2, the commit log to 1"):
        publish(archived.generation, TOPIC_ID)


def test_a_table_of_other_columns(tmp_path: Path) -> None:
    """A foreign table that was there before is left alone."""
    archived = Archived(tmp_path, "delta")
    archived.append(10, 20)
    DeltaTable.create(str(archived.generation), Schema.from_arrow(pa.schema([("a", pa.int32())])))
    with pytest.raises(PublishError, match="its columns are not the archive's"):
        publish(archived.generation, TOPIC_ID)


def test_settings_of_a_table_may_be_changed(tmp_path: Path) -> None:
    """What changes no file does not matter."""
    archived = Archived(tmp_path, "delta")
    archived.append(10, 20)
    publish(archived.generation, TOPIC_ID)
    DeltaTable(str(archived.generation)).alter.set_table_description(
        "ours", commit_properties=CommitProperties()
    )
    archived.append(20, 30)
    assert {"delta": 2} == publish(archived.generation, TOPIC_ID)
    assert [] == found(archived)


@EACH_KIND
def test_a_library_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Is told in a line with what installs it; the archive stands."""
    archived = Archived(tmp_path, kind)
    archived.append(10, 20)
    library = {"delta": "deltalake", "iceberg": "pyiceberg.catalog.sql"}[kind]
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"kgw.pipeline.archive.tables.{kind}")
    with pytest.raises(PublishError) as raised:
        publish(archived.generation, TOPIC_ID)
    assert f"-m pip install 'kgw-broker[{kind}]', then `kgw pipeline publish`" in str(raised.value)
    assert 1 == len(str(raised.value).splitlines())
    assert [(1, "damaged table")] == found(archived)


@EACH_KIND
def test_a_damaged_table(tmp_path: Path, kind: str) -> None:
    """Is told in a line, with what to do."""
    archived = Archived(tmp_path, kind)
    archived.append(10, 20)
    publish(archived.generation, TOPIC_ID)
    directory = {"delta": "_delta_log", "iceberg": "_iceberg"}[kind]
    for path in (archived.generation / directory).rglob("*"):
        if path.suffix in {".json", ".avro"}:
            path.write_bytes(b"{")
    archived.append(20, 30)
    with pytest.raises(PublishError, match=f"What is archived stands; .*{directory}") as raised:
        publish(archived.generation, TOPIC_ID)
    assert 1 == len(str(raised.value).splitlines())
    assert [(1, "damaged table")] == found(archived)


def test_a_table_that_fails_keeps_no_other_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the versions of those that are there."""
    archived = Archived(tmp_path, *KINDS)
    archived.append(10, 20)

    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Iceberg, "make", fail)
    monkeypatch.setattr(Delta, "make", fail)
    with pytest.raises(PublishError, match=r"the delta table .+; the iceberg table ") as raised:
        publish(archived.generation, TOPIC_ID)
    assert {} == raised.value.versions
    monkeypatch.undo()
    monkeypatch.setattr(Iceberg, "make", fail)
    with pytest.raises(PublishError, match="the iceberg table") as raised:
        publish(archived.generation, TOPIC_ID)
    assert {"delta": 1} == raised.value.versions


@pytest.mark.slow
@pytest.mark.parametrize("is_copied", [False, True])
def test_an_archive_that_is_elsewhere_now_is_published_anew(
    tmp_path: Path, *, is_copied: bool
) -> None:
    """Iceberg's paths are whole, those of where it was: a copy leaves the first table alone."""
    first = Archived(tmp_path / "first", *KINDS)
    first.append(10, 20)
    publish(first.generation, TOPIC_ID)
    rows = table_rows(first.generation, "iceberg")
    if is_copied:
        shutil.copytree(tmp_path / "first", tmp_path / "second")
    else:
        (tmp_path / "first").rename(tmp_path / "second")
    second = Archived(tmp_path / "second")
    assert [(1, "table behind")] == found(second)
    second.append(20, 30)
    assert {"delta": 2, "iceberg": 2} == publish(second.generation, TOPIC_ID)
    assert [] == found(second)
    assert second.rows() == table_rows(second.generation, "iceberg")
    # Once: the next commit goes on with the new table.
    second.append(30, 40)
    publish(second.generation, TOPIC_ID)
    assert [2, 3] == history(second, "iceberg")
    if is_copied:
        assert rows == table_rows(first.generation, "iceberg")
        assert [] == found(first)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    """Cannot be published; it is named."""
    archived = Archived(tmp_path, "delta")
    piece = archived.append(10, 20)
    (archived.generation / piece.path).unlink()
    with pytest.raises(PublishError, match=piece.path):
        publish(archived.generation, TOPIC_ID)


@pytest.mark.slow
def test_a_commit_that_the_catalog_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nobody else has committed: it is told, and not tried for ever."""
    archived = Archived(tmp_path, "iceberg")
    archived.append(10, 20)
    publish(archived.generation, TOPIC_ID)
    archived.append(20, 30)

    def refuse(*_: object) -> None:
        raise CommitFailedException("no")

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", refuse)
        with pytest.raises(PublishError, match="CommitFailedException: no"):
            publish(archived.generation, TOPIC_ID)
    assert {"iceberg": 2} == publish(archived.generation, TOPIC_ID)


@pytest.mark.slow
def test_a_log_that_lacks_a_version(tmp_path: Path) -> None:
    """Before a checkpoint, where nobody else looks: nothing is published of it."""
    archived = Archived(tmp_path, "delta")
    for offset in range(CHECKPOINT_EVERY):
        archived.commit(Hole(3, offset, offset, "lost"))
    (archived.generation / "_log" / f"{3:020d}.json").unlink()
    with pytest.raises(ArchiveError, match="version 3 is missing"):
        publish(archived.generation, TOPIC_ID)


@pytest.mark.slow
def test_tables_of_both_kinds(tmp_path: Path) -> None:
    """One archive publishes both, and the audit looks at both."""
    archived = Archived(tmp_path, *KINDS)
    archived.append(10, 20)
    assert [(1, "table behind"), (1, "table behind")] == found(archived)
    assert {"delta": 1, "iceberg": 1} == publish(archived.generation, TOPIC_ID)
    assert [] == found(archived)


def test_what_cannot_be_registered(tmp_path: Path) -> None:
    """An unknown kind, a Delta table in a catalog, and another catalog than before."""
    archived = Archived(tmp_path)
    with pytest.raises(ArchiveError, match="unknown kind of table 'hudi'; there is delta, iceberg"):
        register(archived.generation, TableSettings("hudi"))
    with pytest.raises(ArchiveError, match="a delta table is in no catalog; mine was named"):
        register(archived.generation, TableSettings("delta", "mine"))
    register(archived.generation, TableSettings("iceberg", "mine"))
    register(archived.generation, TableSettings("iceberg", "mine"))
    with pytest.raises(ArchiveError, match="in catalog mine, not in the archive; remove"):
        register(archived.generation, TableSettings("iceberg"))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"format": 1, "kind": "hudi", "catalog": None}, "names a table that this version cannot"),
        ({"format": 2, "kind": "delta", "catalog": None}, "names a table that this version cannot"),
        ({"format": 1}, "is damaged"),
    ],
)
def test_a_table_of_a_later_version(tmp_path: Path, value: object, told: str) -> None:
    """Is an error for who publishes, and a finding of the audit: it is not passed over."""
    archived = Archived(tmp_path)
    archived.append(10, 20)
    directory = archived.generation / "_tables"
    directory.mkdir()
    (directory / "hudi.json").write_text(json.dumps(value))
    with pytest.raises(ArchiveError, match=told):
        publish(archived.generation, TOPIC_ID)
    assert [(1, "damaged table")] == found(archived)


@pytest.mark.slow
def test_a_catalog_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name in the settings of pyiceberg; one that is not there is told in a line."""
    import pyiceberg.catalog as catalogs
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", f"sqlite:///{tmp_path}/mine.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__WAREHOUSE", f"file://{tmp_path}/mine")
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())
    archived = Archived(tmp_path)
    archived.append(10, 20)
    register(archived.generation, TableSettings("iceberg", "mine"))
    assert {"iceberg": 1} == publish(archived.generation, TOPIC_ID)
    catalog = load_catalog("mine")
    assert isinstance(catalog, SqlCatalog)
    with catalog:
        rows = catalog.load_table(f"kgw.{table_name('or.ders', TOPIC_ID)}").scan().to_arrow()
    assert [one["offset"] for one in archived.rows()] == rows["_offset"].to_pylist()
    assert not (archived.generation / "_iceberg").exists()

    other = Archived(tmp_path / "other")
    other.append(10, 20)
    register(other.generation, TableSettings("iceberg", "absent"))
    with pytest.raises(PublishError, match="URI missing"):
        publish(other.generation, TOPIC_ID)


@pytest.mark.slow
def test_an_iceberg_table_that_is_closed_keeps_no_file_open(tmp_path: Path) -> None:
    """Neither its catalog: a job that follows a topic opens it for each commit."""
    archived = Archived(tmp_path, "iceberg")
    archived.append(10, 20)
    table = Iceberg(archived.generation, TOPIC_ID, None)
    table.make()
    assert 1 <= len(open_files(tmp_path))
    table.close()
    assert [] == open_files(tmp_path)


def test_statistics_of_a_delta_table_are_exact(tmp_path: Path) -> None:
    """Readers answer `min` and `max` by them: a marker's offset is not one of a record."""
    archived = Archived(tmp_path, "delta")
    archived.append(10, 20)
    publish(archived.generation, TOPIC_ID)
    actions = DeltaTable(str(archived.generation)).get_add_actions(flatten=True)
    (told,) = pa.table(actions).to_pylist()
    assert (9, 11, 19) == (told["num_records"], told["min._offset"], told["max._offset"])
    times = (told["min._ts_ns"], told["max._ts_ns"], told["null_count._ts_ns"])
    assert (-1_000_000, 5_000_000, 4) == times
    assert (3, 3) == (told["min._partition"], told["max._partition"])


def test_a_merge_is_no_change_of_rows(tmp_path: Path) -> None:
    """A Delta table says so of the files, for those who follow it."""
    archived = Archived(tmp_path, "delta")
    archived.append(10, 20)
    archived.append(20, 30)
    publish(archived.generation, TOPIC_ID)
    archived.replace(2, "merged")
    publish(archived.generation, TOPIC_ID)
    text = (archived.generation / "_delta_log" / f"{2:020d}.json").read_text()
    actions = [json.loads(line) for line in text.splitlines()]
    files = [one for action in actions for name, one in action.items() if name in {"add", "remove"}]
    assert [False] * 3 == [one["dataChange"] for one in files]


@pytest.mark.slow
def test_an_iceberg_table_is_pruned_by_offset(tmp_path: Path) -> None:
    """A scan of some offsets reads the files that may have them."""
    archived = Archived(tmp_path, "iceberg")
    first, second = archived.append(10, 20), archived.append(20, 30)
    publish(archived.generation, TOPIC_ID)
    catalog, table = iceberg(archived.generation)
    with catalog:
        planned = [one.file.file_path for one in table.scan("_offset >= 20").plan_files()]
        rows = table.scan("_offset >= 29").to_arrow()
    assert [f"file://{archived.generation}/{second.path}"] == planned
    assert first.path not in planned
    assert [29] == rows["_offset"].to_pylist()


@pytest.mark.slow
def test_pyiceberg_reads_all_columns(tmp_path: Path) -> None:
    """But for headers that are null: https://github.com/apache/iceberg-python/issues/3833."""
    archived = Archived(tmp_path, "iceberg")
    archived.append(10, 30)
    publish(archived.generation, TOPIC_ID)
    catalog, table = iceberg(archived.generation)
    with catalog:
        rows = decoded(table.scan().to_arrow())
    expected = [one | {"headers": one["headers"] or []} for one in archived.rows()]
    assert expected == rows
