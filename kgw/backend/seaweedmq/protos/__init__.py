"""What is said to SeaweedFS: its messages, as far as kgw uses them.

The `.proto` files name SeaweedFS's packages, messages, fields and numbers; a field that kgw does
not use is left out, which the wire format allows. The build makes `*_pb2.py` of them, and
`*_pb2_grpc.py` with the services (hatch_build.py in the root): nobody keeps those.
"""
