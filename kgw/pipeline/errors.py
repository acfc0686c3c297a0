"""What a pipeline refuses, and what it finds missing, each said in one line."""

from __future__ import annotations

from kgw.errors import KgwError


class PipelineError(KgwError):
    """Root of the pipeline's errors."""


class OptionError(PipelineError):
    """An option that is missing, unknown, or has a value that it cannot have."""


class DataLossError(PipelineError):
    """Records that were asked for are no more, or never were: says of which topic and offsets.

    `is_removed`: the log begins behind them, so that nothing can be there any more.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        first: int,
        end: int,
        why: str,
        *,
        is_removed: bool = False,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.first = first
        self.end = end
        self.why = why
        self.is_removed = is_removed
        super().__init__(
            f"topic {topic} partition {partition}: offsets {first} to {end - 1} cannot be read: "
            f"{why}; with failOnDataLoss=false they are skipped"
        )


class DamagedRecordsError(PipelineError):
    """Records that are stored and cannot be read: says of which topic, partition and offset.

    `end` is where what can be read begins again; None where that is not known.
    """

    def __init__(self, text: str, first: int, end: int | None) -> None:
        super().__init__(text)
        self.first = first
        self.end = end


class TopicChangedError(PipelineError):
    """A topic is not the one that it was when reading began."""
