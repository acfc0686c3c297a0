"""The errors of the pipeline; each has a text of one line."""

from __future__ import annotations

from kgw.errors import KgwError


class PipelineError(KgwError):
    """The base class of the pipeline's errors."""


class OptionError(PipelineError):
    """An option is missing, unknown, or has an invalid value."""


class DataLossError(PipelineError):
    """Records to read are gone or never existed; the text names the topic and offsets.

    `is_removed`: the log now begins after them, so they cannot appear later.
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
    """Stored records cannot be read; the text names the topic, partition and offset.

    `end` is the first offset after them that can be read; None if it is not known.
    """

    def __init__(self, text: str, first: int, end: int | None) -> None:
        super().__init__(text)
        self.first = first
        self.end = end


class TopicChangedError(PipelineError):
    """A topic was deleted, or created again, since reading began."""
