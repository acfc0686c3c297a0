from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.offline.findings import Severity
from kgw.cli.doctor.spark import NEEDED, find_homes, find_java, find_package

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Commands

JAVA_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment'
JAVA_8 = 'java version "1.8.0_402"'


def failing(_: str) -> str:
    """Stand for a Java that is not there."""
    raise OSError("no such file")


@pytest.mark.parametrize(
    ("said", "severity", "told"),
    [
        (JAVA_17, Severity.OK, "version 17, /java/bin/java"),
        ('openjdk version "21" 2023-09-19', Severity.OK, "version 21, /java/bin/java"),
        ('openjdk version "16.0.2"', Severity.PROBLEM, "version 16, too old for Spark"),
        (JAVA_8, Severity.PROBLEM, "version 8, too old for Spark; install a Java runtime"),
        ("hello", Severity.PROBLEM, "does not say its version, but 'hello'; install"),
        (None, Severity.PROBLEM, "cannot be run: no such file; install"),
    ],
)
def test_the_java_that_spark_would_start_is_looked_at(
    said: str | None, severity: Severity, told: str
) -> None:
    """What is wrong comes with what to install."""
    run = failing if said is None else lambda _: said
    found = find_java({"JAVA_HOME": "/java"}, run)
    assert severity == found.severity
    assert told in found.detail


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of the package."""
    monkeypatch.setenv("PATH", "")
    found = find_java({})
    assert (Severity.PROBLEM, True) == (found.severity, "openjdk-17-jre-headless" in found.detail)


@pytest.mark.parametrize(
    ("name", "version", "severity"),
    [
        ("pyspark", "4.2.0", Severity.OK),
        ("pyspark", "4.3.0", Severity.PROBLEM),
        ("pyspark", "4.1.1", Severity.PROBLEM),
        ("pyspark", "5.0.0", Severity.PROBLEM),
        ("pyarrow", "20.0.0", Severity.PROBLEM),
        ("pyarrow", "21.0.0", Severity.OK),
        ("numpy", "2.0.2", Severity.PROBLEM),
        ("numpy", "2.1.0", Severity.OK),
        ("numpy", "3.0.0", Severity.OK),
        ("pandas", "2.1.4", Severity.PROBLEM),
        ("pandas", "2.2.0", Severity.OK),
    ],
)
def test_packages_have_a_least_version_and_one_that_is_too_new(
    name: str, version: str, severity: Severity
) -> None:
    """Those of the extra `spark`."""
    assert severity == find_package(name, version).severity


def test_a_package_of_a_wrong_version_is_told_with_the_right_ones() -> None:
    """From the least one on, up to the first one that is too new."""
    assert "is 4.3.0, not >=4.2,<4.3: " in find_package("pyspark", "4.3.0").detail
    assert "is 20.0.0, not >=21: " in find_package("pyarrow", "20.0.0").detail


@pytest.mark.parametrize("name", NEEDED)
def test_a_package_that_is_missing_is_a_problem(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how to install it."""

    def absent(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr("kgw.cli.doctor.spark.version", absent)
    found = find_package(name)
    assert Severity.PROBLEM == found.severity
    assert "is not installed: " in found.detail
    assert "kgw-broker[spark]" in found.detail


@pytest.mark.parametrize(("said", "exit_code"), [(JAVA_17, 0), (JAVA_8, 1), ("hello", 1)])
def test_the_exit_code_says_whether_spark_can_run(
    offline: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    exit_code: int,
) -> None:
    """Nothing is wrong but with the Java, which is the one of JAVA_HOME."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    result = offline.run("doctor", "--spark", "--json")
    found = json.loads(result.stdout)["findings"]
    problems = [one["subject"] for one in found if one["severity"] == "problem"]
    assert (exit_code, ["Java"] * exit_code) == (result.exit_code, problems)


def test_another_spark_is_a_warning(tmp_path: Path) -> None:
    """SPARK_HOME takes the place of PySpark's own, and its jars are the ones that count."""
    own, other = tmp_path / "own", tmp_path / "other"
    (other / "jars").mkdir(parents=True)
    (other / "jars" / "spark-sql-kafka-0-10_2.13-4.2.0.jar").touch()
    own.mkdir()

    warning, jars = find_homes({"SPARK_HOME": str(other)}, own)
    assert (Severity.WARNING, "SPARK_HOME") == (warning.severity, warning.subject)
    assert "spark-sql-kafka-0-10_2.13-4.2.0.jar" == jars.detail
    (alone,) = find_homes({"SPARK_HOME": str(own)}, own)
    assert "kgw pipeline jars --to DIR" in alone.detail


def test_the_command_tells_each_finding(offline: Commands) -> None:
    """Without a server, as JSON too."""
    result = offline.run("doctor", "--spark")
    assert "pyspark" in result.output
    findings = offline.run("doctor", "--spark", "--json")
    assert '"subject": "Java"' in findings.stdout
