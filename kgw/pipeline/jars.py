"""Downloads the jars of Spark's Kafka connector and of Delta that fit a Spark version.

The POM of the first jar names the versions of the others. Each jar is downloaded by name. Further
POMs are not resolved: a repository may lack some, and Spark already has the other dependencies.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen
from xml.etree import ElementTree as ET

from kgw.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"
_DELTA: Final = {"4.2": "4.4.0"}
"""The Delta version for each minor version of Spark."""
_TIMEOUT_S: Final = 30.0
_MAVEN_TIMEOUT_S: Final = 300.0
_MAVEN_MISSES: Final = (
    "Could not find artifact",
    "was not found in",
    "is absent, but was requested",
)
_NAMESPACE: Final = "{http://maven.apache.org/POM/4.0.0}"


class JarsError(PipelineError):
    """A jar cannot be downloaded, or has another checksum than its repository says."""


class NoSuchArtifactError(JarsError):
    """The repository does not have the artifact."""


class Artifact(NamedTuple):
    """A file of a Maven repository."""

    group: str
    name: str
    version: str
    kind: str = "jar"

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.{self.kind}"

    @property
    def path(self) -> str:
        """The path below the root of a repository."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.file_name}"

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}:{self.kind}"


class JarSet(NamedTuple):
    """Jars that are used together: the main one, and its dependencies that Spark lacks."""

    first: Artifact
    needed: tuple[str, ...]
    settings: Mapping[str, str] = {}
    """The Spark settings that these jars need, besides `spark.jars`."""


def kafka_connector(spark_version: str) -> JarSet:
    """Return the jars for `format("kafka")` in a version of Spark."""
    return JarSet(
        Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", spark_version),
        ("spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2"),
    )


def versions_down(spark_version: str) -> list[str]:
    """Return a version and the earlier patch versions of its minor version, latest first. Pure.

    PySpark may be released before its connector; the connector of an earlier patch works, too.
    """
    minor, _, patch = spark_version.rpartition(".")
    if not patch.isdecimal():
        return [spark_version]
    return [f"{minor}.{number}" for number in range(int(patch), -1, -1)]


def delta_tables(spark_version: str) -> JarSet:
    """Return the jars for `format("delta")` in a version of Spark. Raises JarsError."""
    minor = ".".join(spark_version.split(".")[:2])
    if minor not in _DELTA:
        raise JarsError(
            f"which Delta is for Spark {spark_version} is not known; of {', '.join(_DELTA)} it is"
        )
    return JarSet(
        Artifact("io.delta", f"delta-spark_{minor}_2.13", _DELTA[minor]),
        ("delta-storage",),
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    )


def jars_of(wanted: JarSet, text: str) -> list[Artifact]:
    """Return the jars of a set; the POM of the first one names the versions of the others.

    Pure. Raises JarsError.
    """
    pom = wanted.first._replace(kind="pom")
    try:
        # The POM is as trustworthy as the jars: both are from the same repository, and the jars'
        # code will run.
        root = ET.fromstring(text)  # noqa: S314 - of Maven
    except ET.ParseError as error:
        raise JarsError(f"{pom} is no POM: {error}") from None
    found = {}
    for one in root.iterfind(f"{_NAMESPACE}dependencies/{_NAMESPACE}dependency"):
        told = {field.tag.removeprefix(_NAMESPACE): (field.text or "").strip() for field in one}
        if told.get("type", "jar") == "jar" and told.get("scope", "compile") == "compile":
            name = told.get("artifactId", "")
            found[name] = Artifact(told.get("groupId", ""), name, told.get("version", ""))
    missing = [name for name in wanted.needed if name not in found or not found[name].version]
    if missing:
        raise JarsError(f"{pom} does not say which version of {', '.join(missing)} it needs")
    return [wanted.first, *(found[name] for name in wanted.needed)]


def fetch_jars(
    directory: Path, wanted: JarSet, fetch: Callable[[Artifact, Path], None]
) -> list[Path]:
    """Download a set of jars into a directory, all of them or none.

    `fetch` downloads an artifact into a directory, under its file name, and checks it. Raises
    JarsError, OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".fetched-") as fetched:
        place = Path(fetched)
        pom = wanted.first._replace(kind="pom")
        fetch(pom, place)
        jars = jars_of(wanted, (place / pom.file_name).read_text(encoding="utf-8"))
        for jar in jars:
            fetch(jar, place)
        return [
            (place / jar.file_name).replace(directory.resolve() / jar.file_name) for jar in jars
        ]


def fetch_nearest(
    directory: Path, spark_version: str, fetch: Callable[[Artifact, Path], None]
) -> tuple[str, list[Path]]:
    """Download the Kafka connector of a Spark version, or of the latest patch before it.

    Returns the connector's version and the jars. Raises JarsError, OSError.
    """
    versions = versions_down(spark_version)
    for one in versions:
        try:
            return one, fetch_jars(directory, kafka_connector(one), fetch)
        except NoSuchArtifactError:
            if one == versions[-1]:
                raise
    raise AssertionError(versions)


def fetch_from(repository: str) -> Callable[[Artifact, Path], None]:
    """Return a function that downloads an artifact over HTTP and checks its SHA-1 file."""

    def fetch(artifact: Artifact, directory: Path) -> None:
        url = f"{repository.rstrip('/')}/{artifact.path}"
        expected = _get(f"{url}.sha1").decode("ascii", "replace").split()
        data = _get(url)
        found = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        if expected[:1] != [found]:
            raise JarsError(f"{url} has the SHA-1 {found}, not the one that is stored beside it")
        (directory / artifact.file_name).write_bytes(data)

    return fetch


def fetch_by_maven(artifact: Artifact, directory: Path) -> None:
    """Download with `mvn`, which has its mirrors, proxies and passwords from settings.xml."""
    command = ["mvn", "--batch-mode", "--quiet", "--strict-checksums", "dependency:copy"]
    command += [f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"]
    try:
        done = subprocess.run(  # noqa: S603 - names of artifacts, no shell
            command, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise JarsError(f"mvn did not get {artifact} in {_MAVEN_TIMEOUT_S:.0f} s") from None
    if done.returncode or not (directory / artifact.file_name).is_file():
        # Maven's lines contain colour codes, and some are empty.
        lines = (line.partition("[ERROR] ")[2].strip() for line in done.stdout.splitlines())
        told = next(filter(None, lines), done.stderr[-500:])
        is_missing = any(words in told for words in _MAVEN_MISSES)
        kind = NoSuchArtifactError if is_missing else JarsError
        raise kind(f"mvn cannot get {artifact}: {told}")


def has_maven() -> bool:
    """Return whether `mvn` is installed."""
    return shutil.which("mvn") is not None


def spark_jars(jars: list[Path]) -> str:
    """Return the value of the setting `spark.jars` for these jars."""
    return ",".join(map(os.fspath, jars))


def _get(url: str) -> bytes:
    if not url.startswith(("https://", "http://")):
        raise JarsError(f"not an address of a Maven repository: {url}")
    try:
        with urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - checked above
            data: bytes = answer.read()
    except HTTPError as error:
        kind = NoSuchArtifactError if error.code == HTTPStatus.NOT_FOUND else JarsError
        raise kind(f"{url}: {error.code} {error.reason}") from None
    except OSError as error:
        raise JarsError(f"{url} cannot be fetched: {error}") from None
    return data
