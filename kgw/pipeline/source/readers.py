"""The classes that Spark calls to read: the driver plans ranges, and tasks read them."""

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
from kgw.pipeline.ranges import OffsetRange, StreamPosition, TopicPartition, admit
from kgw.pipeline.source.planning import ReadPlanner, cut
from kgw.pipeline.source.schema import decoded_columns, spark_batches, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from kgw.pipeline.options import SourceOptions
    from kgw.pipeline.wire import WireClient


class RangePartition(InputPartition):
    """The range of one task."""

    value: OffsetRange


def check_schema(options: SourceOptions, schema: StructType) -> None:
    """Raise OptionError if the user gave a schema that differs from the source's."""
    if schema != spark_schema(options.columns):
        raise OptionError(
            "the schema of format kgw is fixed; the option columns says which columns there are"
        )


def read_range(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task's range."""
    wanted = partition.value
    if not isinstance(wanted, OffsetRange):
        # Spark makes an empty partition if the query has no ranges.
        return
    with options.connect.client() as wire:
        for decoded in wire.decoded(
            wanted, columns=decoded_columns(options.columns), reading=options.reading
        ):
            yield from spark_batches(decoded.batch, wanted.key, options.columns)


class KgwReader(DataSourceReader):
    """The reader of a batch query.

    It has no filter pushdown: Spark 4.2 would reuse the ranges of a filtered plan for other plans
    of the same DataFrame, which would then miss records (docs/decisions/0117-format-kgw.md).
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of the query, cut for the tasks."""
        with self._options.connect.client() as wire:
            ranges = ReadPlanner(wire, self._options).batch_ranges()
        return [RangePartition(one) for one in cut(self._options, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range."""
        return read_range(self._options, partition)


class KgwStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query, by micro-batches. A task gets a copy without the client."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self._options = options
        self._wire: WireClient | None = None
        self._latest: StreamPosition | None = None
        """The ends of the partitions at the last call of `latestOffset`."""
        self._target: StreamPosition | None = None
        """With Trigger.AvailableNow, the position at which the run ends; else None."""
        self._turn = 0
        """Which partition is served first if a byte limit is too low for all partitions."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the client and positions, which tasks do not need."""
        return {**self.__dict__, "_wire": None, "_latest": None, "_target": None}

    def initialOffset(self) -> dict[str, dict[str, object]]:  # noqa: N802
        """Return the position at which a new query begins."""
        return self._planner().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a micro-batch that the options give."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Make this run of the query end at the present ends of the partitions."""
        topic_ids, bounds = self._planner().look()
        self._target = StreamPosition(topic_ids, {key: one.latest for key, one in bounds.items()})

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, dict[str, object]]:
        """Return the end of a micro-batch that begins at `start`."""
        planner = self._planner()
        starts, latest = planner.latest(StreamPosition.from_json(start))
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
        return StreamPosition(latest.topic_ids, ends).to_json()

    def _up_to_target(
        self, starts: dict[TopicPartition, int], latest: StreamPosition, target: StreamPosition
    ) -> StreamPosition:
        """Return the latest offsets, but none above the target; the next run reads the others."""
        offsets = {
            key: max(starts[key], min(end, target.offsets.get(key, 0)))
            for key, end in latest.offsets.items()
        }
        return StreamPosition(latest.topic_ids, offsets)

    def reportLatestOffset(self) -> dict[str, dict[str, object]] | None:  # noqa: N802
        """Return the ends of the partitions, which Spark shows in the query's progress."""
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of a micro-batch, cut for the tasks."""
        before, after = StreamPosition.from_json(start), StreamPosition.from_json(end)
        ranges = [
            OffsetRange(*key, before.offsets.get(key, 0), last, after.topic_ids[key.topic])
            for key, last in after.offsets.items()
        ]
        return [RangePartition(one) for one in cut(self._options, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range."""
        return read_range(self._options, partition)

    def stop(self) -> None:
        """Close the client."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _planner(self) -> ReadPlanner:
        if self._wire is None:
            self._wire = self._options.connect.client()
        return ReadPlanner(self._wire, self._options)
