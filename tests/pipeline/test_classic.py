"""Sessions of Spark Connect are refused in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.pipeline.classic import check_classic, check_not_remote
from kgw.pipeline.errors import OptionError
from kgw.pipeline.session import session
from kgw.pipeline.sql.tables import tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_that_would_be_remote_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a variable, a setting or a master; Spark is not asked."""
    with pytest.raises(OptionError, match=r"Connect is not supported.* leave out master sc://h"):
        session(master="sc://h:15002")
    with pytest.raises(OptionError, match=r"leave out spark\.remote=sc://h"):
        session(settings={"spark.remote": "sc://h"})
    monkeypatch.setenv("SPARK_REMOTE", "local")
    with pytest.raises(OptionError, match="leave out SPARK_REMOTE=local, and name a master"):
        session()
    check_not_remote("local[2]", {"spark.driver.memory": "1g"}, {"SPARK_HOME": "/opt/spark"})


def test_tables_of_a_remote_session_are_refused() -> None:
    """Any other session is taken as it is."""
    # Stands in for the real one, which needs more packages.
    remote: SparkSession = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(OptionError, match=r"make one with kgw\.pipeline\.session\.session\(\)"):
        tables(remote, "127.0.0.1:1")
    check_classic(object())
