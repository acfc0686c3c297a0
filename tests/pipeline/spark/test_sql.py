from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException, ParseException

from kgw.cli.main import main
from kgw.client import NewRecord
from kgw.pipeline.archive.archived_topics import archived_topic_ids
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.errors import OptionError, PipelineError
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from kgw.pipeline.jobs.backfill import Backfill
from kgw.pipeline.jobs.transform import Transform, stage, staged
from kgw.pipeline.sql.tables import Tables, tables
from tests.pipeline.jobs.runners import Backwards
from tests.pipeline.jobs.test_backfill import records

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.serving import ServedTopics

pytestmark = pytest.mark.slow

JSON_VALUES = (
    b'{"id":1,"name":"a","_ts":2}',
    b"bad",
    None,
    b'{"id":2}',
    b'{"id":"x","name":"b"}',
    b'{"name":"\xff"}',
    b"[1]",
    b"",
)


def archive(served: ServedTopics, root: Path, topic: str) -> None:
    """Archive what a topic has."""
    ArchiveJob(
        served.wire, served.cluster, root, Backwards(), ArchiveOptions(), now_ms=lambda: 0
    ).run_once(topic)


@pytest.fixture(scope="module")
def root(served: ServedTopics, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive of some topics, in a directory whose name Spark takes for a pattern."""
    made = tmp_path_factory.mktemp("archive of [a]{b}")
    for topic in ("orders", "_hyphen-and.dot", "growing"):
        served.create(topic, 2)
        served.number(topic, {0: 100, 1: 5})
        archive(served, made, topic)
        served.number(topic, {0: 7, 1: 3}, first=1000)
    return made


@pytest.fixture(scope="module")
def opened(spark: SparkSession, served: ServedTopics, root: Path) -> Tables:
    """Return tables of that archive and what came since."""
    return tables(spark, served.address, archive=root)


def test_archive_and_log_are_one_table(opened: Tables, served: ServedTopics, root: Path) -> None:
    """Each record once, from where it is; what comes or is archived later is not in it."""
    query = (
        "select _partition, _source, count(*), min(_index), max(_index), count(distinct value) "
        "from growing group by 1, 2 order by 1, 2"
    )
    expected = [
        (0, "archive", 100, 0, 99, 100),
        (0, "log", 7, 100, 106, 7),
        (1, "archive", 5, 0, 4, 5),
        (1, "log", 3, 5, 7, 3),
    ]
    assert expected == [tuple(row) for row in opened.sql(query).collect()]
    served.number("growing", {0: 9})
    archive(served, root, "growing")
    assert expected == [tuple(row) for row in opened.sql(query).collect()]
    assert [(0, 107), (1, 8)] == [
        (one.partition, one.end) for one in opened.snapshots["growing"].extents
    ]


def test_a_star_shows_what_is_the_users(opened: Tables) -> None:
    """System columns can be used anywhere, and are shown where they are named."""
    expected = [
        ("select * from orders", "key value"),
        ("select * from `_hyphen-and.dot`", "key value"),
        ("select *, _index from orders where _partition = 0", "key value _index"),
        ("select t.*, 1 as one from orders t order by _index", "key value one"),
        ("select _index, _ts as time from orders", "_index time"),
        ("with c as (select * from orders) select * from c where _source = 'log'", "key value"),
        ("with c as (select _index, value from orders) select * from c", "_index value"),
        ("select * from (select *, _ts_ns from orders) where _index = 1", "key value _ts_ns"),
        (
            "select o.*, u._index from orders o join `_hyphen-and.dot` u using (_index)",
            "_index key value _index",
        ),
        ("select * from orders o join orders u on o._key = u._key", "key value key value"),
        ("select * from orders union all select * from orders", "key value"),
        ("select * from orders union all select 'a', 'b'", "key value"),
        ("select distinct * from orders", "key value"),
        ("select * from orders natural join `_hyphen-and.dot`", "key value"),
        ("select *, value as v from orders order by 3", "key value v"),
        ("select count(*) from orders where _headers is null", "count(1)"),
    ]
    assert expected == [(query, " ".join(opened.sql(query).columns)) for query, _ in expected]


def test_a_star_that_compares_does_so_without_system_columns(opened: Tables) -> None:
    """As if there were none; with them in the same query it is refused."""
    distinct = "select count(*) from (select distinct * from orders where key = '3')"
    assert [(2,)] == [tuple(row) for row in opened.sql(distinct).collect()]
    for query in (
        "select distinct * from orders where _index = 3",
        "select *, _ts from orders order by 3",
    ):
        with pytest.raises(OptionError, match="name the columns instead"):
            opened.sql(query)


def test_what_is_no_query_is_refused(opened: Tables) -> None:
    """Spark would carry out a command before anybody sees it."""
    for text in ("drop view orders", "select )", ""):
        with pytest.raises(ParseException):
            opened.sql(text)
    with pytest.raises(AnalysisException, match=r"`indx` cannot be resolved. Did.*`_index`"):
        opened.sql("select indx from orders")
    with pytest.raises(PipelineError, match=r"there is no topic absent in .* or on the server"):
        opened.sql("select * from absent")


def test_what_is_asked_of_offsets_chooses_files(
    opened: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    """Partitions by the paths of files, offsets and times by their footers."""
    opened.sql(
        "select value from orders where _partition = 1 and _index > 2 and _ts_ns >= 0"
    ).explain()
    told = capsys.readouterr().out
    assert "PartitionFilters: [isnotnull(p" in told
    assert "PushedFilters: [IsNotNull(_offset), IsNotNull(_ts_ns), GreaterThan(_offset,2)" in told


def test_objects_become_columns(spark: SparkSession, served: ServedTopics, tmp_path: Path) -> None:
    """Rows that are no such object say so, and keep their bytes; the schema is found or given."""
    served.create("objects")
    served.produce("objects", {0: [NewRecord(None, one, 5) for one in JSON_VALUES[:2]]})
    archive(served, tmp_path, "objects")
    served.produce("objects", {0: [NewRecord(None, one, 5) for one in JSON_VALUES[2:]]})

    found = tables(spark, served.address, archive=tmp_path, decode="json")
    rows = found.sql("select *, _error is null, _value from objects order by _index").collect()
    nothing = (None, None, False)
    assert [
        ("1", "a", True),
        nothing,
        (None, None, True),
        ("2", None, True),
        ("x", "b", True),
        nothing,
        nothing,
        nothing,
    ] == [tuple(row)[:3] for row in rows]
    assert list(JSON_VALUES) == [row["_value"] for row in rows]
    assert ["id", "name"] == found.sql("select * from objects").columns
    assert any("fields _ts are no columns" in one for one in found.notes)

    given = tables(spark, served.address, decode="json", schema={"objects": "id INT, more INT"})
    rows = given.sql("select id, more from objects where _error is null").collect()
    assert [(1, None), (None, None), (2, None)] == [tuple(row) for row in rows]
    for schema, told in (("a FOO", "FOO"), ("id INT, ID INT", "ID is the name of"), ("INT", "INT")):
        with pytest.raises(OptionError, match=told):
            tables(spark, served.address, decode="json", schema=schema).sql("select 1 from objects")


def kgw(served: ServedTopics, *arguments: str, exit_code: int = 0) -> tuple[str, str]:
    """Run a command of the pipeline, and return what it prints as result and besides."""
    given = ("pipeline", *arguments, "-b", served.address)
    result = CliRunner().invoke(main, given, prog_name="kgw")
    assert exit_code == result.exit_code, result.output
    return result.stdout, result.stderr


@pytest.mark.usefixtures("spark")
def test_the_command_prints_rows_and_where_tables_end(served: ServedTopics, root: Path) -> None:
    """As JSON or aligned; what is left out is told, and so are mistakes, in a line each."""
    query = (
        "select *, _index, _ts, array(_ts) as times, x'ff' as raw, date'12026-11-28' as day "
        "from `_hyphen-and.dot` where _partition = 1"
    )
    of = ("sql", f"{query} order by _index", "--archive", str(root), "--limit", "2")
    told = json.loads(kgw(served, *of, "--json")[0])
    row = {"key": "0", "value": "1-0", "_index": 0, "_ts": "1970-01-01T00:00:00Z"}
    row |= {"times": ["1970-01-01T00:00:00Z"], "raw": {"base64": "/w=="}, "day": "+12026-11-28"}
    assert row == told["rows"][0]
    assert (2, True) == (len(told["rows"]), told["is_cut"])
    assert {"name": "_index", "type": "bigint"} in told["columns"]
    assert [107, 8] == [one["end_offset"] for one in told["tables"][0]["partitions"]]

    printed, notes = kgw(served, *of)
    assert "key  value  _index" == printed.splitlines()[0][:18]
    assert "There are more rows than these 2" in notes
    alone = kgw(
        served, "sql", "select count(*) from `_hyphen-and.dot`", *of[2:4], "--no-tail", "--json"
    )
    assert [{"count(1)": 105}] == json.loads(alone[0])["rows"]
    for wrong, error in (
        ("select foo from orders", "error: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column"),
        ("select *, * from orders", "error: several columns are called key"),
        ("select 1 / 0", "error: [DIVIDE_BY_ZERO]"),
    ):
        _, told_of = kgw(served, "sql", wrong, *of[2:4], exit_code=1)
        assert (1, error) == (len(told_of.splitlines()), told_of[: len(error)])


@pytest.mark.usefixtures("spark")
def test_rows_of_a_query_are_written_to_a_topic(
    served: ServedTopics, root: Path, tmp_path: Path
) -> None:
    """In order, with the times of their records; the staging directory is gone afterwards."""
    served.create("made", 2)
    query = "select key, concat(cast(value as string), '!') as value from orders where _index < 100"
    of = ("--archive", str(root), "-t", "orders", "--to", "made", "--sql", query)
    staging = tmp_path / "staging"
    told = json.loads(kgw(served, "backfill", *of, "--staging", str(staging), "--json")[0])
    assert [100, 5] == [one["records"] for one in told["partitions"]]
    for partition, count in ((0, 100), (1, 5)):
        expected = [
            (key, value + b"!", time, headers)  # type: ignore[operator] # a value of bytes
            for key, value, time, headers in records(served, "orders", partition)[:count]
        ]
        assert expected == records(served, "made", partition)
    assert not staging.exists()
    _, error = kgw(served, "backfill", *of, "--staging", str(staging), exit_code=1)
    assert "job orders:made has written to topic made before" in error


@pytest.mark.usefixtures("spark")
def test_rows_say_their_partition_time_and_headers(
    served: ServedTopics, root: Path, tmp_path: Path
) -> None:
    """Each column of a record can be the query's own."""
    served.create("given", 2)
    query = (
        "select key, value, cast(1 as bigint) as partition, 7000 + _index as timestamp, "
        "array(struct('h' as name, value as content)) as headers "
        "from orders where _partition = 0 and _index < 3"
    )
    of = ("--archive", str(root), "-t", "orders", "--to", "given", "--sql", query)
    kgw(served, "backfill", *of, "--staging", str(tmp_path / "staging"))
    assert [] == records(served, "given", 0)
    assert [
        (
            b"%d" % index,
            b"0-%d" % index,
            7000 + index,
            str([{"key": "h", "value": b"0-%d" % index}]),
        )
        for index in range(3)
    ] == records(served, "given", 1)


@pytest.mark.usefixtures("spark")
def test_columns_that_are_no_record_are_refused(
    served: ServedTopics, root: Path, tmp_path: Path
) -> None:
    """By name, and before anything is written."""
    served.create("unmade", 2)
    of = ("--archive", str(root), "-t", "orders", "--to", "unmade", "--staging", str(tmp_path))
    for query, told in (
        ("select key, _index as value from orders", "column value is bigint; cast it to string"),
        ("select value from orders", "the query returns no column key"),
        ("select key, value, 1 as one from orders", "column one is none of a record's"),
        ("select key, max(value) as value from orders group by key", "which partition a row goes"),
        ("select key, value from `_hyphen-and.dot`", "the query does not name topic orders"),
        (
            "select key, value, '1' as partition from orders",
            "column partition is string; it must be a number",
        ),
        (
            "select key, value, array('h') as headers from orders",
            "column headers is array<string>; it must be array<struct<key:string,value:binary>>",
        ),
        (
            "select key, value, array(struct('h', 1)) as headers from orders",
            "column headers is array<struct<col1:string,col2:int>>; it must be",
        ),
    ):
        _, error = kgw(served, "backfill", *of, "--sql", query, exit_code=1)
        assert told in error
    assert [] == list(tmp_path.rglob("*.parquet"))


def test_tables_leave_the_session_that_is_given_active(
    spark: SparkSession, served: ServedTopics, root: Path
) -> None:
    """Whatever a table is made of: an archive and a log, a log alone, or nothing at all."""
    served.create("nothing-yet")
    opened = tables(spark, served.address, archive=root)
    assert [(0,)] == [
        tuple(row) for row in opened.sql("select count(*) from `nothing-yet`").collect()
    ]
    opened.sql("select * from orders").collect()
    assert spark is type(spark).getActiveSession()
    frame = spark.range(3).selectExpr("cast(id as string) as value", "id as other")
    frame.write.format("kgw").option("kafka.bootstrap.servers", served.address).option(
        "topic", "nothing-yet"
    ).mode("append").save()
    assert 3 == served.wire.bounds("nothing-yet", [0])[0].latest


def test_a_query_that_has_enough_prints_its_rows_and_no_more(served: ServedTopics) -> None:
    """Workers that Spark leaves in the middle end without a word."""
    served.create("plenty", 2)
    for first in range(0, 400_000, 20_000):
        served.number("plenty", {0: 20_000, 1: 20_000}, first=first)
    asked = ["sql", "select key from plenty limit 3", "-b", served.address, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "kgw", "pipeline", *asked],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, 3) == (done.returncode, len(json.loads(done.stdout)["rows"])), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_a_query_is_not_written_to_what_it_reads(
    spark: SparkSession, served: ServedTopics, root: Path, tmp_path: Path
) -> None:
    """Unless that is said to be meant."""
    topic_id = archived_topic_ids(root, "orders")[0]
    generation = generation_directory(str(root), "orders", topic_id)
    asked = Backfill(served.cluster, "own", generation, topic_id, "orders")
    transform = Transform("select key, value from orders", root, "orders", topic_id, tmp_path)
    with pytest.raises(
        ArchiveError, match="the query reads topic orders, and topic orders is that"
    ):
        stage(spark, served.wire, transform, staged(transform, asked), now_ms=0)
    meant = transform._replace(may_write_back=True)
    made = staged(meant, asked)
    stage(spark, served.wire, meant, made, now_ms=0)
    assert CommitLog(made.generation, made.topic_id).read().version
