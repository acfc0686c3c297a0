"""kgw: an asyncio server that Kafka clients cannot tell from a broker."""

import sys

__version__ = "0.1.0"

if sys.platform == "win32":
    raise ImportError(
        "kgw does not run on Windows itself: install and run it in WSL, the Windows Subsystem for "
        "Linux (https://learn.microsoft.com/windows/wsl/install)"
    )
