"""What Spark calls to plan a read on the driver, and to read a range in a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kgw.pipeline.errors import OptionError
from kgw.pipeline.ranges import OffsetRange, Position, TopicPartition, admit
from kgw.pipeline.source.planning import Planner, connect, cut, reading
from kgw.pipeline.source.schema import decoded_columns, spark_batches, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from kgw.pipeline.options import SourceOptions
    from kgw.pipeline.wire import WireClient


class RangePartition(InputPartition):
    """What one task reads."""

    value: OffsetRange


def check_schema(options: SourceOptions, schema: StructType) -> None:
    """Raise OptionError for a schema that a user has given and that is another one."""
    if schema != spark_schema(options.columns):
        raise OptionError(
            "the schema of format kgw is fixed; the option columns says which columns there are"
        )


def read_range(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task's range."""
    wanted = partition.value
    if not isinstance(wanted, OffsetRange):
        # Where there is nothing to read, Spark makes a partition of its own.
        return
    with connect(options) as wire:
        for decoded in wire.decoded(
            wanted, columns=decoded_columns(options.columns), reading=reading(options)
        ):
            yield from spark_batches(decoded.batch, wanted.key, options.columns)


class KgwReader(DataSourceReader):
    """Reads a batch.

    Takes no filters: Spark 4.2 keeps the ranges of a filtered plan for later plans of the same
    DataFrame, so that those would read too little (docs/decisions/0117-format-kgw.md).
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the ranges to be read, cut for the tasks."""
        with connect(self._options) as wire:
            ranges = Planner(wire, self._options).batch_ranges()
        return [RangePartition(one) for one in cut(self._options, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one range's records."""
        return read_range(self._options, partition)


class KgwStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream, a micro-batch at a time. Tasks get it without its client."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self._options = options
        self._wire: WireClient | None = None
        self._latest: Position | None = None
        """Where partitions ended when that was asked last."""
        self._target: Position | None = None
        """Where this run of the query ends, if it does."""
        self._turn = 0
        """Which partition comes first where a limit of bytes has not a batch for each."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need of it."""
        return {**self.__dict__, "_wire": None, "_latest": None, "_target": None}

    def initialOffset(self) -> dict[str, dict[str, object]]:  # noqa: N802
        """Return where a new query begins."""
        return self._planner().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the options' limit of a micro-batch."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let this run of the query end where the partitions end now."""
        topic_ids, bounds = self._planner().look()
        self._target = Position(topic_ids, {key: one.latest for key, one in bounds.items()})

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, dict[str, object]]:
        """Return where a micro-batch that begins at `start` ends."""
        planner = self._planner()
        starts, latest = planner.latest(Position.from_json(start))
        self._latest = latest
        if self._target is not None:
            latest = self._up_to_target(starts, latest, self._target)
        if isinstance(limit, ReadMaxRows):
            ends = admit(starts, latest.offsets, limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            self._turn += 1
            ends = planner.admit_bytes(starts, latest, limit.max_bytes, self._turn)
        else:
            ends = dict(latest.offsets)
        return Position(latest.topic_ids, ends).to_json()

    def _up_to_target(
        self, starts: dict[TopicPartition, int], latest: Position, target: Position
    ) -> Position:
        """Return what of the latest offsets lies before the target; what came after it is left."""
        offsets = {
            key: max(starts[key], min(end, target.offsets.get(key, 0)))
            for key, end in latest.offsets.items()
        }
        return Position(latest.topic_ids, offsets)

    def reportLatestOffset(self) -> dict[str, dict[str, object]] | None:  # noqa: N802
        """Return where the partitions end, for the query's progress."""
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a micro-batch's ranges, cut for the tasks."""
        before, after = Position.from_json(start), Position.from_json(end)
        ranges = [
            OffsetRange(*key, before.offsets.get(key, 0), last, after.topic_ids[key.topic])
            for key, last in after.offsets.items()
        ]
        return [RangePartition(one) for one in cut(self._options, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one range's records."""
        return read_range(self._options, partition)

    def stop(self) -> None:
        """Close the client."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _planner(self) -> Planner:
        if self._wire is None:
            self._wire = connect(self._options)
        return Planner(self._wire, self._options)
