"""What an OCI runtime is told, of an image and of how it is to be run."""

from __future__ import annotations

from tests.image.oci import Hardening, Limits, runtime_spec, seccomp_of
from tests.image.test_rules import GOOD

PROFILE = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "defaultErrnoRet": 38,
    "syscalls": [
        {"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": None},
        {"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["x"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["amd64"]}},
        {"names": ["y"], "action": "SCMP_ACT_ALLOW", "excludes": {"arches": ["amd64"]}},
        {
            "names": ["clone"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}],
            "excludes": {"caps": ["CAP_SYS_ADMIN"]},
        },
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
    ],
}


def test_what_docker_run_would_do() -> None:
    """The image's own user, program, variables and volume, with no right that it does not need."""
    spec = runtime_spec(GOOD, "/root-of-it", "/volume", "/group")
    process = spec["process"]
    assert {"uid": 10001, "gid": 10001, "additionalGids": []} == process["user"]
    assert ["kgw", "serve"] == process["args"]
    assert ["PATH=/opt/kgw/bin"] == process["env"]
    assert set() == {one for names in process["capabilities"].values() for one in names}
    assert process["noNewPrivileges"]
    assert {"path": "/root-of-it", "readonly": True} == spec["root"]
    (volume,) = [one for one in spec["mounts"] if one["type"] == "bind"]
    assert ("/volume", "/var/lib/kgw") == (volume["source"], volume["destination"])
    # Docker gives a container with a root that is read-only no /tmp to write to.
    assert "/tmp" not in {one["destination"] for one in spec["mounts"]}
    kinds = {one["type"] for one in spec["linux"]["namespaces"]}
    assert {"pid", "ipc", "uts", "mount", "cgroup"} == kinds
    resources = spec["linux"]["resources"]
    assert 256 << 20 == resources["memory"]["limit"]
    assert "blockIO" not in resources
    assert "seccomp" not in spec["linux"]


def test_arguments_and_variables() -> None:
    """Arguments take the place of the image's command, variables stand beside its own."""
    config = GOOD._replace(command=("--usual",))
    plain = runtime_spec(config, "/", "/v", "/g")["process"]
    given = runtime_spec(config, "/", "/v", "/g", arguments=["--other"], environment={"A": "1"})
    assert ["kgw", "serve", "--usual"] == plain["args"]
    assert ["kgw", "serve", "--other"] == given["process"]["args"]
    assert ["PATH=/opt/kgw/bin", "A=1"] == given["process"]["env"]


def test_a_control() -> None:
    """What a control leaves out is left out."""
    hardening = Hardening((0, 0), False, False, ("CAP_CHOWN",))
    spec = runtime_spec(GOOD, "/", "/v", "/g", hardening=hardening)
    assert 0 == spec["process"]["user"]["uid"]
    assert not spec["root"]["readonly"]
    assert not spec["process"]["noNewPrivileges"]
    assert ["CAP_CHOWN"] == spec["process"]["capabilities"]["effective"]


def test_a_slow_disk() -> None:
    """Only the rates that are given."""
    limits = Limits(device=(7, 1), read_bytes_per_s=5)
    resources = runtime_spec(GOOD, "/", "/v", "/g", limits=limits)["linux"]["resources"]
    expected = {"throttleReadBpsDevice": [{"major": 7, "minor": 1, "rate": 5}]}
    assert expected == resources["blockIO"]


def test_system_calls() -> None:
    """Of an engine's profile stays what is for this machine and needs no capability."""
    found = seccomp_of(PROFILE, "amd64")
    assert ("SCMP_ACT_ERRNO", 38) == (found["defaultAction"], found["defaultErrnoRet"])
    assert [["read"], ["x"], ["clone"], ["clone3"]] == [one["names"] for one in found["syscalls"]]
    assert "args" not in found["syscalls"][0]
    assert 1 == found["syscalls"][2]["args"][0]["value"]
    assert 38 == found["syscalls"][3]["errnoRet"]
    arm = [one["names"] for one in seccomp_of(PROFILE, "arm64")["syscalls"]]
    assert [["read"], ["y"], ["clone"], ["clone3"]] == arm
