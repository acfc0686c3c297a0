"""The server of any revision, with its own dependencies."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def old_server(revision: str) -> Iterator[list[str]]:
    """Give the command that serves with the code of a revision.

    Raises:
        SystemExit: There is no code of that revision.
    """
    with tempfile.TemporaryDirectory(prefix="kgw-old-code-") as parent:
        code = Path(parent)
        archive = subprocess.Popen(
            ["git", "archive", revision, "kgw", "requirements"], stdout=subprocess.PIPE
        )
        unpacked = subprocess.run(["tar", "-x", "-C", code], stdin=archive.stdout, check=False)
        if archive.wait() or unpacked.returncode:
            raise SystemExit(f"no code of {revision}")
        python = _python(code)
        _make_protos(code, python)
        yield ["env", "-C", str(code), python, "-m", "kgw", "serve"]


def _python(code: Path) -> str:
    """Return an interpreter with the dependencies of that code, which may be none of ours any more.

    It is kept for the next revision that needs the same.
    """
    wanted = code / "requirements" / "run.txt"
    known = hashlib.sha256(wanted.read_bytes()).hexdigest()[:16]
    environment = Path(tempfile.gettempdir()) / f"kgw-old-environment-{known}"
    python = str(environment / "bin" / "python")
    if not environment.exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        install = ("-m", "pip", "install", "--quiet", "--require-hashes", "-r", wanted)
        subprocess.run([python, *install], check=True)
    return python


def _make_protos(code: Path, python: str) -> None:
    """Generate the messages of SeaweedFS, if the revision has them and their compiler."""
    sources = [str(path) for path in sorted(code.glob("kgw/backend/seaweedmq/protos/*.proto"))]
    if sources and "grpcio-tools==" in (code / "requirements" / "run.txt").read_text():
        outputs = [f"--{kind}_out={code}" for kind in ("python", "grpc_python")]
        subprocess.run(
            [python, "-m", "grpc_tools.protoc", f"-I{code}", *outputs, *sources], check=True
        )
