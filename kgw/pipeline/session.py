"""Makes the SparkSession of the pipeline."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from kgw.pipeline.classic import check_not_remote
from kgw.pipeline.master import Master
from kgw.pipeline.planner import with_lookup
from kgw.pipeline.source import KgwDataSource

if TYPE_CHECKING:
    from collections.abc import Mapping

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The socket between Spark and its Python workers; it saves up to a quarter of the time.
    "spark.python.unix.domain.socket.enabled": "true",
}
_LOCAL_SETTINGS: Final = {
    # Only programs of this machine can connect to a command's session.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Only for local workers, which write to the terminal; others write to log files.
    "spark.python.daemon.module": "kgw.pipeline.daemon",
}
_PYTHON: Final = "spark.pyspark.python"


def session(
    app_name: str = "kgw",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
) -> SparkSession:
    """Return a session that knows `format("kgw")`: the running one, or a new one.

    `settings` override the defaults of this module. Workers run this process's Python interpreter,
    with its packages, unless spark.pyspark.python or PYSPARK_PYTHON names another one. Raises
    OptionError if it would be a session of Spark Connect.
    """
    check_not_remote(master, settings or {}, os.environ)
    chosen = Master() if master is None else Master(master)
    given = {**_SETTINGS, **(_LOCAL_SETTINGS if chosen.is_local else {}), **(settings or {})}
    # In a running program, PySpark reads only the variable for a new session.
    if _PYTHON in given:
        os.environ["PYSPARK_PYTHON"] = given[_PYTHON]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if chosen.is_local:
        # Otherwise Spark warns if the host name resolves to a loopback address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYTHONPATH"] = with_lookup(os.environ.get("PYTHONPATH", ""))
    builder = SparkSession.builder.appName(app_name).master(chosen.url)
    for name, value in given.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    spark.dataSource.register(KgwDataSource)
    return spark
