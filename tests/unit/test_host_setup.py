"""gpuimg doctor: each thing that can be wrong with a machine is named with the command that mends it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpuimg.host.setup import CdiSpec, Setup, judge_setup, read_setup, read_specs

GOOD = Setup(
    docker="/usr/bin/docker",
    engine={
        "ServerVersion": "29.2.1",
        "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
        "Runtimes": {"runc": {}, "nvidia": {}},
        "DefaultRuntime": "runc",
        "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
        "CgroupDriver": "systemd",
        "SecurityOptions": ["name=seccomp,profile=builtin"],
    },
    buildx="0.20.0",
    toolkit="1.18.1",
    specs=(CdiSpec("/etc/cdi/nvidia.yaml", ("0", "all"), "580.95.05"),),
    driver="580.95.05",
    library_driver="580.95.05",
    cards=1,
    nodes=("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"),
    systemd=True,
    free_gib=300.0,
)


def _with(engine: dict[str, object] | None = None, **changes: object) -> Setup:
    changed = replace(GOOD, **changes)  # type: ignore[arg-type]
    return changed if engine is None else replace(changed, engine={**(GOOD.engine or {}), **engine})


def test_a_good_machine_has_nothing_to_mend() -> None:
    assert {f.severity for f in judge_setup(GOOD)} == {"ok"}


@pytest.mark.parametrize(
    ("setup", "rule", "severity", "command"),
    [
        (replace(GOOD, docker=None, engine=None), "docker", "fail", "get.docker.com"),
        (replace(GOOD, docker=None, engine=None, container=True), "docker", "fail", "verify --here"),
        (
            replace(
                GOOD, engine=None, engine_error="permission denied while trying to connect to the Docker daemon socket"
            ),
            "docker",
            "fail",
            "usermod -aG docker",
        ),
        (
            replace(
                GOOD, engine=None, engine_error="Cannot connect to the Docker daemon at unix:///var/run/docker.sock."
            ),
            "docker",
            "fail",
            "systemctl start docker",
        ),
        (_with({"ServerVersion": "20.10.21"}), "docker-version", "fail", "get.docker.com"),
        (_with({"DriverStatus": [["Backing Filesystem", "extfs"]]}), "image-store", "warn", "containerd-snapshotter"),
        (_with(buildx=None), "buildx", "fail", "docker-buildx-plugin"),
        (_with(driver=None), "driver", "fail", "modprobe nvidia"),
        (_with(driver=None, nouveau=True), "driver", "fail", "blacklist nouveau"),
        (_with(library_driver="580.105.08"), "driver-mismatch", "fail", "reboot"),
        (_with(nodes=("/dev/nvidia0", "/dev/nvidiactl")), "device-nodes", "warn", "nvidia-modprobe"),
        (_with({"Runtimes": {"runc": {}}}, toolkit=None), "toolkit", "fail", "nvidia-ctk runtime configure"),
        (_with(toolkit="1.17.4"), "toolkit-version", "warn", "only-upgrade"),
        (_with(toolkit_config='[nvidia-container-runtime]\nmode = "legacy"\n'), "toolkit-mode", "warn", "mode=auto"),
        (_with(specs=()), "lost-devices", "warn", "CDI"),
        (_with(specs=()), "cdi", "warn", "cdi generate"),
        (_with({"Runtimes": {"runc": {}}}, specs=()), "cdi", "fail", "cdi generate"),
        (_with(specs=(CdiSpec("/etc/cdi/nvidia.yaml", ("all",), "550.54.14"),)), "cdi-stale", "fail", "cdi generate"),
        (
            _with(specs=(CdiSpec("/etc/cdi/nvidia.yaml", ("all",), None, ("/usr/lib/x.so",)),)),
            "cdi-stale",
            "fail",
            "generate",
        ),
        (_with(specs=(CdiSpec("/etc/cdi/nvidia.yaml", error="PermissionError"),)), "cdi", "fail", "644"),
        (_with({"CDISpecDirs": []}), "cdi-engine", "warn", "cdi.enabled"),
        (_with({"CDISpecDirs": [], "ServerVersion": "24.0.7"}), "cdi-engine", "warn", "get.docker.com"),
        (_with({"SecurityOptions": ["name=rootless"]}), "rootless", "warn", "no-cgroups"),
        (_with({"DefaultRuntime": "nvidia"}), "default-runtime", "warn", "set-as-default=false"),
        (_with(free_gib=6.0), "disk", "fail", "prune"),
        (_with(free_gib=40.0), "disk", "warn", "prune"),
        (_with(cards=0), "gpu", "ask", "GPU host"),
        (
            _with(registries=(("r.example:5000", "http: server gave HTTP response to HTTPS client"),)),
            "registry",
            "fail",
            "insecure-registries",
        ),
    ],
)
def test_each_fault_names_its_command(setup: Setup, rule: str, severity: str, command: str) -> None:
    found = [f for f in judge_setup(setup) if f.rule == rule and f.severity == severity]
    assert found, [(f.rule, f.severity) for f in judge_setup(setup)]
    assert any(command in (f.fix or "") for f in found), found


def test_specs_are_read_with_what_they_lack(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.550.54.14"
    library.write_text("")
    (tmp_path / "nvidia.yaml").write_text(
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits: {}\n"
        f"containerEdits:\n  mounts:\n  - hostPath: {library}\n    containerPath: /usr/lib/libcuda.so.550.54.14\n"
        "  - hostPath: /nowhere/libnvidia-ml.so.550.54.14\n    containerPath: /usr/lib/libnvidia-ml.so.550.54.14\n"
    )
    (tmp_path / "other.json").write_text('{"kind": "vendor.com/net"}')
    (tmp_path / "broken.yaml").write_text("kind: [")
    broken, spec = read_specs(tmp_path)
    assert broken.error
    assert (spec.devices, spec.driver, spec.lacking) == (("all",), "550.54.14", ("/nowhere/libnvidia-ml.so.550.54.14",))


def test_this_machine_can_be_looked_at(tmp_path: Path) -> None:
    setup = read_setup(tmp_path)
    assert setup.cards == 0
    assert judge_setup(setup)
