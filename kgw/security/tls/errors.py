"""The error of a TLS setting. Pure."""

from __future__ import annotations


class TlsSettingError(ValueError):
    """A TLS setting cannot be used.

    The text is one sentence that begins with the setting's name. It contains no password and no
    private key.
    """
