"""`kgw doctor --spark`: checks whether Spark can run here, and says what to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kgw.backend.seaweedmq.offline.findings import CheckResult, Severity
from kgw.cli.doctor.findings import print_findings
from kgw.version import install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kgw.cli.shared.errors import ExitCode

LEAST_JAVA: Final = 17
"""The oldest Java version that Spark 4 supports: https://spark.apache.org/docs/4.0.0/"""
NEEDED: Final = {
    "pyspark": ((4, 2), (4, 3)),
    "pyarrow": ((21,), None),
    "numpy": ((2, 1), None),
    # PySpark needs pandas if rows pass through Python, as for `kgw pipeline backfill --sql`.
    "pandas": ((2, 2), None),
}
"""For each package the oldest version that works, and the first that is too new; equal to kgw's
extra `spark`.
"""
_CONNECTOR: Final = "spark-sql-kafka-0-10_"
_JAVA_TIMEOUT_S: Final = 20.0
_INSTALL_JAVA: Final = (
    f"install a Java runtime, version {LEAST_JAVA} or later (Debian, Ubuntu: apt install "
    "openjdk-17-jre-headless), or name one with JAVA_HOME"
)


def examine_spark(*, is_json: bool) -> ExitCode:
    """Check Spark's needs, print the findings, and return the exit code."""
    findings = [find_java(os.environ), *(find_package(name) for name in NEEDED)]
    findings += find_homes(os.environ, _pyspark_directory())
    return print_findings(findings, is_json=is_json)


def find_java(
    environment: Mapping[str, str], run: Callable[[str], str] | None = None
) -> CheckResult:
    """Check the Java that Spark would start: that in JAVA_HOME if it is set, else in PATH.

    `run` returns the output of `java -version`, or raises OSError.
    """
    home = environment.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        return CheckResult("Java", Severity.PROBLEM, f"there is none: {_INSTALL_JAVA}")
    where = f"{found} (JAVA_HOME={home})" if home else f"{found} (JAVA_HOME is not set)"
    try:
        said = (run or _run_java)(found)
    except (OSError, subprocess.SubprocessError) as error:
        told = f"{where} cannot be run: {error}; {_INSTALL_JAVA}"
        return CheckResult("Java", Severity.PROBLEM, told)
    number = java_version(said)
    if number is None:
        told = f"{where} does not say its version, but {said[:200]!r}; {_INSTALL_JAVA}"
        return CheckResult("Java", Severity.PROBLEM, told)
    if number < LEAST_JAVA:
        told = f"{where} has version {number}, too old for Spark; {_INSTALL_JAVA}"
        return CheckResult("Java", Severity.PROBLEM, told)
    return CheckResult("Java", Severity.OK, f"version {number}, {where}")


def java_version(said: str) -> int | None:
    """Return Java's major version: 17 for `"17.0.15"`, 8 for `"1.8.0_402"`."""
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None


def find_package(name: str, installed: str | None = None) -> CheckResult:
    """Check a package's version: `installed` if given, else the installed one."""
    least, before = NEEDED[name]
    wanted = f">={'.'.join(map(str, least))}"
    if before is not None:
        wanted += f",<{'.'.join(map(str, before))}"
    if installed is None:
        try:
            installed = version(name)
        except PackageNotFoundError:
            told = f"is not installed: {install_command('spark')} ({name}{wanted})"
            return CheckResult(name, Severity.PROBLEM, told)
    numbers = tuple(int(one) for one in re.findall(r"\d+", installed)[:2])
    if numbers < least or (before is not None and numbers >= before):
        told = f"is {installed}, not {wanted}: {install_command('spark')}"
        return CheckResult(name, Severity.PROBLEM, told)
    return CheckResult(name, Severity.OK, installed)


def find_homes(environment: Mapping[str, str], pyspark: Path | None) -> list[CheckResult]:
    """Check which Spark would start, and whether it has the jars of its Kafka connector."""
    if pyspark is None:
        return []
    findings = []
    home = environment.get("SPARK_HOME")
    if home and Path(home).resolve() != pyspark.resolve():
        told = f"{home} is started in place of PySpark's own Spark: unset it, or check that it fits"
        findings.append(CheckResult("SPARK_HOME", Severity.WARNING, told))
    jars = [path.name for path in (Path(home or pyspark) / "jars").glob(f"{_CONNECTOR}*.jar")]
    told = (
        ", ".join(jars)
        if jars
        else 'not in Spark itself, and format("kgw") needs none; for format("kafka") get its '
        "jars with `kgw pipeline jars --to DIR` and set spark.jars"
    )
    return [*findings, CheckResult("Kafka connector", Severity.OK, told)]


def _pyspark_directory() -> Path | None:
    try:
        return Path(str(distribution("pyspark").locate_file("pyspark")))
    except PackageNotFoundError:
        return None


def _run_java(java: str) -> str:
    done = subprocess.run(  # noqa: S603 - the user's own Java
        [java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False
    )
    return done.stderr + done.stdout
