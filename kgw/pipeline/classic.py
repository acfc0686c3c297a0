"""Refuses sessions of Spark Connect: jobs and tables need a Spark driver in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.pipeline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

REMOTE: Final = "SPARK_REMOTE"
_WHY: Final = (
    "Spark Connect is not supported: this needs a session whose driver runs in this process"
)


def check_classic(spark: object) -> None:
    """Raise OptionError for a session of Spark Connect."""
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        raise OptionError(f"{_WHY}; make one with kgw.pipeline.session.session()")


def check_not_remote(
    master: str | None, settings: Mapping[str, str], environment: Mapping[str, str]
) -> None:
    """Raise OptionError if these settings would make a session of Spark Connect."""
    given = {
        f"{REMOTE}={environment.get(REMOTE)}": environment.get(REMOTE),
        f"spark.remote={settings.get('spark.remote')}": settings.get("spark.remote"),
        f"master {master}": (master or "").startswith("sc://"),
    }
    for name, is_given in given.items():
        if is_given:
            raise OptionError(f"{_WHY}; leave out {name}, and name a master")
