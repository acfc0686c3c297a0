"""Decodes values into columns: one for each field of their JSON objects."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql.functions import col, from_json
from pyspark.sql.types import StringType, StructField, StructType

from kgw.pipeline.archive.reading import read_range
from kgw.pipeline.errors import OptionError, PipelineError
from kgw.pipeline.spark_errors import in_one_line, quiet
from kgw.pipeline.sql.columns import ERROR, SYSTEM
from kgw.pipeline.wire import Reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from kgw.pipeline.cluster import Cluster
    from kgw.pipeline.sql.snapshot import Extent, TableSnapshot

SAMPLE: Final = 1000
"""How many records at the start of each partition are used to infer the columns."""

# A response of this size usually has enough records; a response of the default size might have the
# whole partition.
_SAMPLE_READING: Final = Reading(read_committed=True, max_fetch_bytes=1 << 20)
_DECODED: Final = "_kgw_decoded"
_MALFORMED: Final = "_kgw_malformed"
_OPTIONS: Final = {"columnNameOfCorruptRecord": _MALFORMED, "allowSingleQuotes": "false"}
_REASON: Final = "not a JSON object with these columns"


class Fields(NamedTuple):
    """The columns that values are decoded to."""

    schema: StructType
    left_out: tuple[str, ...] = ()
    """Fields that have no column, because another column has the same name."""


def given_fields(text: str) -> Fields:
    """Parse column definitions such as `a INT, b STRING`. Raises OptionError."""
    try:
        with quiet():
            schema = StructType.fromDDL(text)
    except PySparkException as error:
        raise OptionError(f"schema {text!r}: {in_one_line(error)}") from None
    if not isinstance(schema, StructType):
        raise OptionError(f"schema {text!r}: it must be like a INT, b STRING")
    fields = usable(schema.fields)
    if fields.left_out:
        raise OptionError(
            f"schema {text!r}: {fields.left_out[0]} is the name of another column already"
        )
    return fields


def inferred_fields(
    spark: SparkSession, snapshot: TableSnapshot, cluster: Cluster | None
) -> Fields:
    """Infer the columns from JSON objects among the first records of each partition.

    Raises PipelineError if there are none; ClientError.
    """
    texts = [
        text
        for extent in snapshot.extents
        for value in islice(_values(snapshot, extent, cluster), SAMPLE)
        if (text := _object(value)) is not None
    ]
    told = f"among the first {SAMPLE} records of each partition of topic {snapshot.topic}"
    if not texts:
        raise PipelineError(f"no JSON object is {told}: say by a schema which columns there are")
    fields = usable(spark.read.json(spark.sparkContext.parallelize(texts, 1)).schema.fields)
    if not fields.schema.fields:
        raise PipelineError(
            f"no object has a field {told}: say by a schema which columns there are"
        )
    return fields


def usable(given: Iterable[StructField]) -> Fields:
    """Leave out fields whose name a system column has, or another field, ignoring case. Pure."""
    taken = set(SYSTEM)
    kept: list[StructField] = []
    left_out: list[str] = []
    for field in given:
        if field.name.lower() in taken:
            left_out.append(field.name)
        else:
            taken.add(field.name.lower())
            kept.append(field)
    return Fields(StructType(kept), tuple(left_out))


def decoded_frame(frame: DataFrame, fields: Fields) -> tuple[DataFrame, list[str]]:
    """Return the rows with the column `ERROR`, and the expressions of the decoded columns."""
    schema = StructType([*fields.schema.fields, StructField(_MALFORMED, StringType())])
    decoded = frame.select(
        "*", from_json(col("_value").cast("string"), schema, _OPTIONS).alias(_DECODED)
    ).selectExpr(
        "*",
        f"case when _value is not null and not (is_valid_utf8(_value) and {_DECODED} is not null "
        f"and {_DECODED}.{_MALFORMED} is null) then '{_REASON}' end as {ERROR}",
    )
    columns = [
        f"case when {ERROR} is null then {_DECODED}.{_quoted(one)} end as {_quoted(one)}"
        for one in fields.schema.names
    ]
    return decoded, columns


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _values(
    snapshot: TableSnapshot, extent: Extent, cluster: Cluster | None
) -> Iterator[bytes | None]:
    """Yield a partition's values from its first record on, from the archive, then the log."""
    wanted = frozenset({"value"})
    covered = snapshot.coverage.partitions.get(extent.partition)
    if covered is not None and snapshot.generation is not None:
        for batch in read_range(
            snapshot.generation, covered, covered.start, covered.next, columns=wanted
        ):
            yield from batch.column("value").to_pylist()
    for one in snapshot.ranges:
        if one.partition == extent.partition and cluster is not None:
            with cluster.client(client_id="kgw-pipeline-sql") as wire:
                for decoded in wire.decoded(one, columns=wanted, reading=_SAMPLE_READING):
                    yield from decoded.batch.column("value").to_pylist()


def _object(value: bytes | None) -> str | None:
    """Return the text of a JSON object; None for anything else."""
    try:
        text = "" if value is None else value.decode()
        return text if isinstance(json.loads(text), dict) else None
    except (ValueError, RecursionError):
        return None
