"""What a build adds to the sources: the messages of `.proto` files, and the commit's name.

For wheels, sdists and editable installs alike, but for the commit: an editable install follows the
checkout, so it has none.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PROTOS = "kgw/backend/seaweedmq/protos"
WHEEL_RECORD = "kgw/commit.txt"
SDIST_RECORD = "commit.txt"
SHORT_LENGTH = 12

_IMAGE = re.compile(r"!\[([^\]]*)\]\((?![a-z]+:)[^)]*\)\n?")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:)[^)]*\)")


class Additions(BuildHookInterface[Any]):
    """Hatchling's hook: called before each build, in the root of the sources."""

    made: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the Python of `.proto` files; into all but editable installs, put the commit."""
        if version == "editable":
            # scripts/run installs no compiler of messages for a server that has no use of them.
            if importlib.util.find_spec("grpc_tools") is not None:
                make_protos(self.root)
            return
        make_protos(self.root)
        record = Path(self.root, SDIST_RECORD)
        if not record.exists():
            self.made = record = Path(tempfile.mkdtemp(), SDIST_RECORD)
            record.write_text(f"{commit(self.root)}\n", encoding="ascii")
        target = SDIST_RECORD if self.target_name == "sdist" else WHEEL_RECORD
        build_data["force_include"][str(record)] = target

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what `initialize` has made elsewhere."""
        if self.made is not None:
            shutil.rmtree(self.made.parent)


class Readme(MetadataHookInterface):
    """Hatchling's hook for `dynamic` metadata: README.md as it stands alone on a package index."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_local_links(text)}


def make_protos(root: str) -> None:
    """Write `*_pb2.py`, `*_pb2.pyi` and `*_pb2_grpc.py` beside their sources. RuntimeError."""
    # Not needed for metadata, which is asked for alone, too.
    from grpc_tools import protoc

    sources = sorted(str(path) for path in Path(root, PROTOS).glob("*.proto"))
    outputs = [f"--{kind}_out={root}" for kind in ("python", "pyi", "grpc_python")]
    known = files("grpc_tools").joinpath("_proto")
    arguments = ["protoc", f"-I{root}", f"-I{known}", *outputs, *sources]
    if not sources or protoc.main(arguments) != 0:
        message = f"the messages of {PROTOS} could not be generated"
        raise RuntimeError(message)


def commit(root: str) -> str:
    """Return the commit of the sources: from KGW_COMMIT, else from git, else `unknown`.

    An image is built without git's folder, and is told by KGW_COMMIT. An sdist has a record of its
    own, and is not asked about here. `+changes` stands behind the commit of sources with changes.
    """
    told = os.environ.get("KGW_COMMIT", "").strip()
    if told:
        name, _, changes = told.partition("+")
        return f"{name[:SHORT_LENGTH]}+changes" if changes else name[:SHORT_LENGTH]
    try:
        # Not that of a repository which the sources only lie in.
        top, head = _git(root, "rev-parse", "--show-toplevel", "HEAD").splitlines()
        if not Path(top).samefile(root):
            return "unknown"
        changed = _git(root, "status", "--porcelain")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head[:SHORT_LENGTH] + ("+changes" if changed else "")


def without_local_links(text: str) -> str:
    """Return Markdown in which the texts of relative links stand alone, without such pictures."""
    return _LINK.sub(r"\1", _IMAGE.sub("", text))


def _git(root: str, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", root, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout
