from __future__ import annotations

from typing import TYPE_CHECKING

from bench.harness import servers

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_versions_of_kafka_and_java_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script that fetches the jars says them, and results keep them."""
    script = tmp_path / "kafka-broker.sh"
    script.write_text("#!/bin/sh\necho 4.3.0\necho 'openjdk version \"17.0.1\" 2021-10-19'\n")
    script.chmod(0o700)
    monkeypatch.setattr(servers, "KAFKA_SCRIPT", script)
    assert {"kafka": "4.3.0", "java": 'openjdk version "17.0.1" 2021-10-19'} == (
        servers.fetch_kafka(tmp_path)
    )
