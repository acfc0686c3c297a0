"""Calls the filer and the volume servers over gRPC and HTTP.

Public: `FilerChannel`, the `Filer` of `kgw.backend.seaweedmq.filer`, in `channel`; `ChannelOptions`
and `load_security` in `options`. They use `statuses` and `encoding`, which are pure, `calls` for
deadlines and retries, and `volumes` for chunks.
"""
