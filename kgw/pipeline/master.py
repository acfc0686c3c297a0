"""The Spark master and Spark's settings, from the options of a command. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.pipeline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT_MASTER: Final = "local[*,4]"
"""Uses every processor, and tries a task up to four times; plain `local[*]` tries it once."""

_EVERY_PROCESSOR: Final = re.compile(r"local\[\*(,\d+)?\]")
_MASTER: Final = re.compile(r"local(-cluster)?(\[[^\]]+\])?|spark://.+|k8s://.+|yarn")
_HAS_AN_OPTION: Final = {"spark.master": "--master", "spark.default.parallelism": "--parallelism"}


class Master(NamedTuple):
    """The master that Spark runs on, its settings, and how many tasks it runs at once."""

    url: str = DEFAULT_MASTER
    settings: Mapping[str, str] = {}
    parallelism: int | None = None
    """The number of tasks at once; None for as many as there are processors."""

    @property
    def is_local(self) -> bool:
        """Whether Spark's tasks run in this process's own Java runtime."""
        return self.url.startswith("local")


def master_of(url: str, settings: Iterable[str] = (), parallelism: int | None = None) -> Master:
    """Return the master for options; settings are `KEY=VALUE`. Raises OptionError.

    With fewer tasks than processors, some processors stay free for a gateway on this machine, or
    for other programs of a standalone cluster. On YARN and Kubernetes, settings say how many
    processors Spark gets.
    """
    chosen = parse_settings(settings)
    if not _MASTER.fullmatch(url):
        raise OptionError(
            f"no master of Spark: {url}; it is local[N], spark://HOST:PORT, k8s://... or yarn"
        )
    if parallelism is None:
        return Master(url, chosen)
    if url.startswith("local"):
        if not (found := _EVERY_PROCESSOR.fullmatch(url)):
            raise OptionError(f"--master {url} says how many tasks there are: no --parallelism")
        return Master(f"local[{parallelism}{found[1] or ''}]", chosen, parallelism)
    more = {"spark.default.parallelism": str(parallelism)}
    if url.startswith("spark://"):
        more["spark.cores.max"] = str(parallelism)
    return Master(url, more | chosen, parallelism)


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """Return Spark's settings by name. Raises OptionError."""
    settings = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.startswith("spark."):
            raise OptionError(f"not a setting of Spark, spark.NAME=VALUE: {text}")
        if name in _HAS_AN_OPTION:
            raise OptionError(f"say {_HAS_AN_OPTION[name]} in place of {name}")
        if name in settings:
            raise OptionError(f"{name} is set twice")
        settings[name] = value
    return settings
