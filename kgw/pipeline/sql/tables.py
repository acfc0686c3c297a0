"""Tables: queries over topics. The offsets of a table are fixed when a query first names it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit
from pyspark.sql.types import IntegerType, StructField, StructType

from kgw.pipeline.archive.archived_topics import archived_topic_ids, archived_topics
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.classic import check_classic
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.errors import OptionError
from kgw.pipeline.spark_errors import quiet
from kgw.pipeline.sql.columns import MARK, UNDECODED, check_decoding, of_system, shown
from kgw.pipeline.sql.decoding import (
    decoded_frame,
    given_fields,
    inferred_fields,
)
from kgw.pipeline.sql.snapshot import TableSnapshot, look
from kgw.pipeline.sql.tail import SPARK_SCHEMA, tail_frame

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from pyspark.sql import SparkSession

_SETTINGS: Final = {
    # Never list files in a Spark job: a table's files are known and local.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
}
_GLOB: Final = re.compile(r"([*?\[\]{}\\])")
_NAME: Final = re.compile(r"`((?:[^`]|``)+)`")


def tables(
    spark: SparkSession,
    bootstrap: str | None = None,
    *,
    properties: Mapping[str, str] | None = None,
    archive: Path | str | None = None,
    topic_ids: Collection[UUID] = (),
    decode: str | None = None,
    schema: str | Mapping[str, str] | None = None,
) -> Tables:
    """Return topics as tables: the archive's records, and later ones from the log at `bootstrap`.

    Without `bootstrap`, tables have only archived records; without `archive`, only those in the
    log. `properties` are those of Kafka's clients for TLS and the login. `topic_ids` selects topic
    ids if the archive has several for one topic. With `decode="json"`, the fields of JSON values
    become columns. `schema` gives these fields, such as `id INT, name STRING`, for all topics or as
    a mapping by topic; otherwise they are inferred from the first records. Raises OptionError,
    ArchiveError.
    """
    check_classic(spark)
    if bootstrap is None and archive is None:
        raise OptionError("neither an archive nor a server is given: there is nothing to query")
    cluster = None
    if bootstrap is not None:
        cluster = Cluster(bootstrap, properties or {})
        cluster.check()
    root = None if archive is None else Path(archive)
    check_decoding(decode)
    if schema is not None and decode is None:
        raise OptionError("a schema says what values are decoded to, and no decoding is given")
    there = set()
    if root is not None:
        there = {
            life for topic in archived_topics(root) for life in archived_topic_ids(root, topic)
        }
    for one in topic_ids:
        if one not in there:
            raise ArchiveError(f"there is no archive of a topic with topic id {one}")
    return Tables(
        spark,
        cluster,
        root=root,
        topic_ids=tuple(topic_ids),
        is_decoded=decode is not None,
        schema=schema,
    )


class Query(NamedTuple):
    """The rows of a query, and the indexes of the columns to show."""

    frame: DataFrame
    places: list[int]

    @property
    def names(self) -> list[str]:
        """The names of the columns to show."""
        return [self.frame.columns[place] for place in self.places]

    def shown(self) -> DataFrame:
        """Return the rows with only the columns to show."""
        names = self.frame.columns
        if len(self.places) == len(names):
            return self.frame
        # Rename by index, as a name may occur twice.
        unique = self.frame.toDF(*(f"_{place}" for place in range(len(names))))
        return unique.select(*(col(f"_{place}").alias(names[place]) for place in self.places))

    def with_columns_below(self, names: tuple[str, ...]) -> Query | None:
        """Return the rows with more columns of their source; `places` does not include these.

        None if the source lacks these columns, or if a result row is made of several rows or
        tables.
        """
        try:
            with quiet():
                # To sort by an unselected column, Spark adds it below the select list if this does
                # not change the rows, and drops it above the sort.
                plan = self.frame.sort(*names)._jdf.queryExecution().analyzed()  # noqa: SLF001
        except AnalysisException:
            return None
        if plan.nodeName() == "Sort":
            return self
        spark = self.frame.sparkSession
        jvm: Any = spark._jvm  # noqa: SLF001
        made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(
            spark._jsparkSession,  # noqa: SLF001
            plan.child().child(),
        )
        return Query(DataFrame(made, spark), self.places)


class Tables:
    """Topics as tables; see `tables`.

    A topic becomes a table when a query names it for the first time. Its offsets are fixed then:
    later queries see the same records, even if new records arrive, or old ones are archived or
    rewritten.
    """

    def __init__(
        self,
        spark: SparkSession,
        cluster: Cluster | None,
        *,
        root: Path | None,
        topic_ids: tuple[UUID, ...],
        is_decoded: bool,
        schema: str | Mapping[str, str] | None,
    ) -> None:
        self.session = spark.newSession()
        """A session of its own, so that the views of the tables do not change the caller's
        session."""
        for name, value in _SETTINGS.items():
            self.session.conf.set(name, value)
        self.snapshots: dict[str, TableSnapshot] = {}
        """The fixed offsets of each table, by topic."""
        self.notes: list[str] = []
        """Messages for the user about tables, e.g. about missing offsets."""
        self._cluster = cluster
        self._root = root
        self._topic_ids = topic_ids
        self._is_decoded = is_decoded
        self._schema = schema
        self._frames: dict[str, DataFrame] = {}

    def sql(self, query: str) -> DataFrame:
        """Return the rows of a query. Topics are table names; `a-b` must be quoted.

        Raises ArchiveError for a topic that does not exist, and for a gap between the archive and
        the log; ClientError, PipelineError, and Spark's AnalysisException and ParseException.
        """
        return self.query(query).shown()

    def query(self, query: str) -> Query:
        """Return a query together with its hidden columns; raises as `sql`."""
        with quiet():
            # Parse first: `parseQuery` accepts queries only, but `sql` would execute a command at
            # once.
            parser = self.session._jsparkSession.sessionState().sqlParser()  # noqa: SLF001
            parsed = parser.parseQuery(query).toJSON()
            try:
                frame = self._resolve(query)
            except AnalysisException as error:
                # The hidden columns of a `*` can break a query, e.g. a union with other rows: use
                # tables without them.
                closed = self._resolve_closed(query)
                if closed is None:
                    raise error from None
                return closed
            found = Query(frame, shown(frame.columns))
            # Ordinals in `order by` and `group by` would count the hidden columns of a `*`.
            counts = "UnresolvedStar" in parsed and "UnresolvedOrdinal" in parsed
            if not counts and not _depends_on_hidden(found.shown()):
                return found
            closed = self._resolve_closed(query)
            if closed is None:
                raise OptionError(
                    "the query names system columns, and has a star that does more than show "
                    "columns, as with distinct, a natural join, struct(*) or order by 1: name the "
                    "columns instead"
                )
            return closed

    def _resolve(self, query: str) -> DataFrame:
        """Return the rows of a query.

        Whenever Spark reports a missing table, open that topic and try again.
        """
        while True:
            try:
                return self.session.sql(query)
            except AnalysisException as error:
                name = _missing_table(error)
                if name is None or name in self.snapshots:
                    raise
                self._open(name)

    def _resolve_closed(self, query: str) -> Query | None:
        """Resolve a query on tables without system columns; None if it needs them."""
        try:
            for topic, frame in self._frames.items():
                places = shown(frame.columns)
                frame.select(*(frame.columns[one] for one in places)).createOrReplaceTempView(
                    f"`{topic}`"
                )
            frame = self.session.sql(query)
            return Query(frame, list(range(len(frame.columns))))
        except AnalysisException:
            return None
        finally:
            for topic, frame in self._frames.items():
                frame.createOrReplaceTempView(f"`{topic}`")

    def _open(self, topic: str) -> None:
        for other in self.snapshots:
            if other.lower() == topic.lower():
                raise OptionError(f"topics {other} and {topic} are the same name to Spark")
        snapshot = self._look(topic)
        frame = self._records(snapshot)
        columns = [f"_{one} as {one}" for one in UNDECODED]
        if self._is_decoded:
            frame, columns = self._decode(frame, snapshot)
        frame = frame.selectExpr(*columns, *of_system(is_decoded=self._is_decoded))
        frame.createOrReplaceTempView(f"`{topic}`")
        self._frames[topic] = frame
        self.snapshots[topic] = snapshot
        self.notes += [
            f"topic {topic} partition {one.partition}: offsets {one.first} to {one.last} are "
            + ("lost" if one.reason == "lost" else "removed by retention")
            for one in snapshot.holes
        ]
        if self._root is not None and snapshot.generation is None:
            self.notes.append(
                f"topic {topic} is not in {self._root}: it is read from the log alone"
            )

    def _look(self, topic: str) -> TableSnapshot:
        if self._cluster is None:
            return look(topic, root=self._root, wire=None, topic_ids=self._topic_ids)
        with self._cluster.client(client_id="kgw-pipeline-sql") as wire:
            return look(topic, root=self._root, wire=wire, topic_ids=self._topic_ids)

    def _records(self, snapshot: TableSnapshot) -> DataFrame:
        """Return the records of a table in the archive's columns, with their source files."""
        names = SPARK_SCHEMA.names
        frames = []
        files = sorted(snapshot.coverage.files())
        if files and snapshot.generation is not None:
            # The partition number is in a file's path, so that a condition on it selects files.
            schema = StructType([*SPARK_SCHEMA.fields[1:], StructField("p", IntegerType())])
            base = str(snapshot.generation.resolve())
            # Escape the base path: Spark treats paths, except those of single files, as glob
            # patterns.
            pattern = _GLOB.sub(r"\\\1", base)
            archived = (
                self.session.read.schema(schema)
                .option("basePath", base)
                .parquet(*(f"{pattern}/{one}" for one in files))
            )
            frames.append(
                archived.selectExpr("p as _partition", *names[1:], "'archive' as _source")
            )
        if snapshot.ranges and self._cluster is not None:
            tail = tail_frame(self.session, self._cluster, snapshot.ranges)
            frames.append(tail.selectExpr("*", "'log' as _source"))
        if not frames:
            # createDataFrame would make this session the active one, and the user's later calls
            # would use it.
            return self.session.range(0).select(
                *(lit(None).cast(one.dataType).alias(one.name) for one in SPARK_SCHEMA.fields),
                lit("log").alias("_source"),
            )
        return frames[0] if len(frames) == 1 else frames[0].union(frames[1])

    def _decode(self, frame: DataFrame, snapshot: TableSnapshot) -> tuple[DataFrame, list[str]]:
        given = self._schema
        if not (given is None or isinstance(given, str)):
            given = given.get(snapshot.topic)
        if given is not None:
            return decoded_frame(frame, given_fields(given))
        fields = inferred_fields(self.session, snapshot, self._cluster)
        if fields.left_out:
            self.notes.append(
                f"topic {snapshot.topic}: fields {', '.join(fields.left_out)} are no columns, as "
                "others have their names; _value has them"
            )
        return decoded_frame(frame, fields)


def _depends_on_hidden(frame: DataFrame) -> bool:
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - no other way to look
    return MARK in plan.toJSON()


def _missing_table(error: AnalysisException) -> str | None:
    """Return the name of the table that Spark did not find; None if the error is another one."""
    if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return None
    found = _NAME.fullmatch((error.getMessageParameters() or {}).get("relationName", ""))
    return None if found is None else found[1].replace("``", "`")
