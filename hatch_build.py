"""Makes Python of the `.proto` files, for wheels, sdists and editable installs alike."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from grpc_tools import protoc
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTOS = "kgw/backend/seaweedmq/protos"


class Protos(BuildHookInterface[Any]):
    """Hatchling's hook: called before each build, in the root of the sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write `*_pb2.py`, `*_pb2.pyi` and `*_pb2_grpc.py` beside their sources."""
        sources = sorted(str(path) for path in Path(self.root, PROTOS).glob("*.proto"))
        outputs = [f"--{kind}_out={self.root}" for kind in ("python", "pyi", "grpc_python")]
        known = files("grpc_tools").joinpath("_proto")
        arguments = ["protoc", f"-I{self.root}", f"-I{known}", *outputs, *sources]
        if not sources or protoc.main(arguments) != 0:
            message = f"the messages of {PROTOS} could not be generated"
            raise RuntimeError(message)
