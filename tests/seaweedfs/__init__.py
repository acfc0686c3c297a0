"""A real SeaweedFS: fetched once, started on 127.0.0.1, killed and started again at will.

`binary` fetches the program, `cluster` starts its processes, `namespace` confines those that would
listen everywhere. `python -m tests.seaweedfs` is `scripts/seaweedfs`.
"""
