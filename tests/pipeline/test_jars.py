from __future__ import annotations

import hashlib
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from kgw.pipeline.jars import (
    Artifact,
    JarsError,
    NoSuchArtifactError,
    delta_tables,
    fetch_from,
    fetch_jars,
    fetch_nearest,
    jars_of,
    kafka_connector,
    spark_jars,
    versions_down,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONNECTOR = kafka_connector("4.2.0")
NAMES = (
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)


def pom(*, scope: str = "compile") -> str:
    """Return the part of the connector's POM that names what it needs."""
    rows = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version><scope>{scope}</scope></dependency>"
        for group, name, version in NAMES
    )
    return (
        f'<project xmlns="http://maven.apache.org/POM/4.0.0"><dependencies>{rows}'
        "</dependencies></project>"
    )


def test_a_pom_names_the_jars() -> None:
    """The connector's own jar comes first, and each has the version that the POM says."""
    found = jars_of(CONNECTOR, pom())
    assert [CONNECTOR.first, *(Artifact(*one) for one in NAMES)] == found
    assert "org/apache/kafka/kafka-clients/3.9.2/kafka-clients-3.9.2.jar" == found[2].path


@pytest.mark.parametrize(
    ("text", "told"), [(pom(scope="test"), "does not say which version"), ("<", "is no POM")]
)
def test_a_pom_that_does_not_name_them_is_refused(text: str, told: str) -> None:
    """With the name of the POM."""
    with pytest.raises(JarsError, match=f"spark-sql-kafka-0-10_2.13:4.2.0:pom {told}"):
        jars_of(CONNECTOR, text)


def test_all_jars_are_put_into_the_directory_or_none(tmp_path: Path) -> None:
    """A failure leaves what was there, and nothing else."""
    is_failing = True

    def fetch(artifact: Artifact, directory: Path) -> None:
        if is_failing and artifact.name == "commons-pool2":
            raise JarsError("it is not there")
        text = pom() if artifact.kind == "pom" else artifact.name
        (directory / artifact.file_name).write_text(text)

    with pytest.raises(JarsError, match="it is not there"):
        fetch_jars(tmp_path, CONNECTOR, fetch)
    assert [] == list(tmp_path.iterdir())

    is_failing = False
    found = fetch_jars(tmp_path, CONNECTOR, fetch)
    assert sorted(found) == sorted(tmp_path.iterdir())
    assert 4 == len(spark_jars(found).split(","))


def test_the_nearest_connector_before_is_taken(tmp_path: Path) -> None:
    """PySpark 4.2.2 may be there before its connector is; one of another minor never fits."""
    asked = []

    def fetch(artifact: Artifact, directory: Path) -> None:
        asked.append(artifact.version)
        if artifact.version in {"4.2.2", "4.2.1"}:
            raise NoSuchArtifactError("404")
        text = pom() if artifact.kind == "pom" else artifact.name
        (directory / artifact.file_name).write_text(text)

    found, jars = fetch_nearest(tmp_path, "4.2.2", fetch)
    assert ("4.2.0", 4) == (found, len(jars))
    assert ["4.2.2", "4.2.1", "4.2.0"] == asked[:3]
    assert ["4.2.2", "4.2.1", "4.2.0"] == versions_down("4.2.2")
    assert ["4.3.0.dev1"] == versions_down("4.3.0.dev1")


@pytest.mark.parametrize("error", [NoSuchArtifactError("404"), JarsError("no network")])
def test_no_connector_at_all_is_told(tmp_path: Path, error: JarsError) -> None:
    """What cannot be asked is not taken for what is not there."""
    asked = []

    def fetch(artifact: Artifact, _: Path) -> None:
        asked.append(artifact.version)
        raise error

    with pytest.raises(JarsError, match=str(error)):
        fetch_nearest(tmp_path, "4.2.1", fetch)
    expected = ["4.2.1", "4.2.0"] if isinstance(error, NoSuchArtifactError) else ["4.2.1"]
    assert expected == asked


def test_delta_is_fetched_for_the_spark_that_it_is_for() -> None:
    """The jar has the version of Spark in its name; another one has no Delta that is known."""
    told = str(delta_tables("4.2.0").first)
    assert "io.delta:delta-spark_4.2_2.13:4.4.0:jar" == told
    with pytest.raises(JarsError, match=r"which Delta is for Spark 4\.3\.0 is not known"):
        delta_tables("4.3.0")


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A repository over HTTP, and the directory that it serves."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    served = tmp_path / "repository"
    served.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(served)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", served
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_a_repository_has_is_compared_with_its_checksum(
    repository: tuple[str, Path], tmp_path: Path
) -> None:
    """What is missing, or is not what its checksum says, is refused by its address."""
    address, served = repository
    artifact = Artifact(*NAMES[1])
    fetch = fetch_from(address)
    with pytest.raises(NoSuchArtifactError, match=r"kafka-clients-3\.9\.2\.jar\.sha1: 404"):
        fetch(artifact, tmp_path)

    file = served / artifact.path
    file.parent.mkdir(parents=True)
    file.write_bytes(b"a jar")
    checksum = file.with_name(file.name + ".sha1")
    checksum.write_text(hashlib.sha1(b"a jar", usedforsecurity=False).hexdigest() + "  name\n")
    fetch(artifact, tmp_path)
    assert b"a jar" == (tmp_path / artifact.file_name).read_bytes()

    file.write_bytes(b"another jar")
    with pytest.raises(JarsError, match=r"kafka-clients-3\.9\.2\.jar has the SHA-1 "):
        fetch(artifact, tmp_path)


@pytest.mark.parametrize(
    ("address", "told"),
    [("ftp://example.org", "not an address"), ("http://127.0.0.1:1", "cannot be fetched")],
)
def test_what_is_no_repository_is_refused(address: str, told: str, tmp_path: Path) -> None:
    """By its address, in a line."""
    with pytest.raises(JarsError, match=told):
        fetch_from(address)(Artifact(*NAMES[1]), tmp_path)


def test_the_command_fetches_for_the_installed_spark_from_the_repository_that_it_is_given(
    repository: tuple[str, Path], tmp_path: Path
) -> None:
    """And prints the settings that make a session use the jars."""
    address, served = repository
    connector = kafka_connector(version("pyspark"))
    parent = Artifact(connector.first.group, connector.first.name, connector.first.version, "pom")
    for artifact in (parent, connector.first, *(Artifact(*one) for one in NAMES)):
        content = (pom() if artifact.kind == "pom" else artifact.name).encode()
        file = served / artifact.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        checksum = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        file.with_name(file.name + ".sha1").write_text(checksum)

    directory = tmp_path / "jars"
    jars = ["pipeline", "jars", "--to", str(directory), "--repository", address, "--json"]
    result = CliRunner().invoke(main, jars, prog_name="kgw")
    assert 0 == result.exit_code, result.output
    told = json.loads(result.stdout)
    assert version("pyspark") == told["spark"]
    assert sorted(map(str, directory.iterdir())) == sorted(told["jars"])
    assert 4 == len(told["settings"]["spark.jars"].split(","))
    # What other repositories have of the name is no such text.
    assert b"kafka-clients" == (directory / Artifact(*NAMES[1]).file_name).read_bytes()
