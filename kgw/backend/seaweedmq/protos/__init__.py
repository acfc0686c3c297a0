"""What is said to SeaweedFS: its messages, as far as kgw uses them.

The `.proto` files name SeaweedFS's packages, messages, fields and numbers; a field that kgw does
not use is left out, which the wire format allows. The build makes `*_pb2.py` of them, and
`*_pb2_grpc.py` with the services (hatch_build.py in the root): nobody keeps those.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from kgw.errors import KgwError

if find_spec(f"{__name__}.filer_pb2") is None:
    # scripts/run installs a checkout without their compiler where nobody needs them.
    _checkout = quote(f"{Path(__file__).parents[4]}[seaweedmq]")
    raise KgwError(
        "the Python of SeaweedFS's messages has not been made in this checkout: "
        f"{quote(sys.executable)} -m pip install --editable {_checkout}"
    )
