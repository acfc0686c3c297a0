"""The filer and the volume servers, reached over gRPC and HTTP.

Public: `FilerChannel`, the `Filer` of `kgw.backend.seaweedmq.filer`, in `channel`; `ChannelOptions`
and `load_security` in `options`. Beneath it, in the order in which one builds on the other:
`statuses` and `encoding` are pure; `calls` has the deadline and the tries; `volumes` the chunks.
"""
