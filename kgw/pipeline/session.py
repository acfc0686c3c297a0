"""Makes the SparkSession of the pipeline."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from kgw.client.client_properties import ALIASES, SECRETS
from kgw.pipeline.classic import check_not_remote
from kgw.pipeline.master import Master
from kgw.pipeline.planner import with_lookup
from kgw.pipeline.source import KgwDataSource

if TYPE_CHECKING:
    from collections.abc import Mapping

_OTHER_NAMES: Final = [alias for alias, name in ALIASES.items() if name in SECRETS]
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark hides options with a password, a secret or a token in their name or value, and those
    # whose name has one of these parts.
    "spark.sql.redaction.options.regex": "(?i)url|"
    + "|".join(re.escape(one) for one in sorted({*SECRETS, *_OTHER_NAMES})),
    # Connect Spark and its Python workers by a Unix socket; this saves up to a quarter of the time.
    "spark.python.unix.domain.socket.enabled": "true",
}
_LOCAL_SETTINGS: Final = {
    # Only programs on this machine may connect to the session of a command.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Only for local workers, which print to the terminal; other workers print to log files.
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
    """Return the running Spark session or a new one, with `format("kgw")` registered.

    `settings` take precedence over the defaults of this module. Workers use this process's Python
    interpreter and packages, unless spark.pyspark.python or PYSPARK_PYTHON names another one.
    Raises OptionError if this would be a session of Spark Connect.
    """
    check_not_remote(master, settings or {}, os.environ)
    chosen = Master() if master is None else Master(master)
    given = {**_SETTINGS, **(_LOCAL_SETTINGS if chosen.is_local else {}), **(settings or {})}
    # PySpark takes the interpreter of a new session from this variable only.
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
