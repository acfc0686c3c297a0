"""The protobuf messages and gRPC services of SeaweedFS that kgw uses.

The `.proto` files name SeaweedFS's packages, messages, fields and numbers; fields that kgw does not
use are left out, which the wire format allows. The build (hatch_build.py in the root) generates
`*_pb2.py` and `*_pb2_grpc.py` from them, which are not in git.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from kgw.errors import KgwError

if find_spec(f"{__name__}.filer_pb2") is None:
    # scripts/run installs a checkout without the protobuf compiler if no service needs it.
    _checkout = quote(f"{Path(__file__).parents[4]}[seaweedmq]")
    raise KgwError(
        "the Python of SeaweedFS's messages has not been made in this checkout: "
        f"{quote(sys.executable)} -m pip install --editable {_checkout}"
    )
