"""apt, yum and their keys in RUN: repositories that are gone, the driver in an image, prompts, packages that do not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuimg.knowledge import Knowledge
from gpuimg.lint.docker_context import DockerContext, Run, StageView
from gpuimg.lint.facts import finding
from gpuimg.nouns import LintFinding
from gpuimg.project.installs import Install

KEY_BLOG = "https://developer.nvidia.com/blog/updating-the-cuda-linux-gpg-repository-key/"
CONTAINERS = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
APT = "https://docs.docker.com/build/building/best-practices/#apt-get"


def keys(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """Old repository keys and repositories that went away."""
    for view in context.views:
        new_key = any(re.search(r"3bf863cc|cuda-keyring", r.command.text) for r in view.runs)
        for run in view.runs:
            text = run.command.text
            where = (context.file, run.line)
            if "7fa2af80" in text and not re.search(r"apt-key del|del 7fa2af80|rm ", text) and not new_key:
                yield finding(
                    "apt-key", "error", where,
                    "the key 7fa2af80 was rotated in April 2022: apt-get update ends with NO_PUBKEY A4B469963BF863CC",
                    "install cuda-keyring_1.1-1_all.deb, or start from an nvidia/cuda tag", KEY_BLOG,
                )  # fmt: skip
            if re.search(r"compute/machine-learning/repos", text):
                yield finding(
                    "apt-gone", "error", where, "NVIDIA's machine-learning repository is gone (404); cuDNN moved to the CUDA repository",
                    "take cuDNN from the base image's tag or from pip", KEY_BLOG,
                )  # fmt: skip
            if re.search(r"nvidia\.github\.io/(nvidia-docker|nvidia-container-runtime)", text):
                yield finding(
                    "nvidia-docker", "warning", where, "the nvidia-docker repositories are frozen: the toolkit is in libnvidia-container's",
                    "https://nvidia.github.io/libnvidia-container/stable/deb", CONTAINERS,
                )  # fmt: skip
            if (
                re.search(r"\bapt-key (add|adv)\b", text)
                and view.base.os is not None
                and view.base.os.id in {"debian13", "ubuntu26.04"}
            ):
                yield finding(
                    "apt-key-command", "error", where, f"{view.base.os.id} has no apt-key any more", "put the key under /etc/apt/keyrings and name it with signed-by", "https://manpages.debian.org/bookworm/apt/apt-key.8.en.html",
                )  # fmt: skip
            found = re.search(r"cuda/repos/(ubuntu\d{4}|debian\d+|rhel\d+)", text)
            if found and view.base.os is not None and view.base.os.id.startswith(("ubuntu", "debian")):
                own = view.base.os.id.replace(".", "")
                if found[1] != own and found[1].startswith(("ubuntu", "debian")):
                    yield finding(
                        "repository-os", "warning", where, f"the CUDA repository for {found[1]} in an image of {view.base.os.id}", f"use …/cuda/repos/{own}/…", "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
                    )  # fmt: skip


_DRIVER = re.compile(
    r"^(nvidia-driver(-\d+.*)?|nvidia-\d{3}(-server)?|nvidia-utils-\d+.*|nvidia-smi|libcuda1(-\d+)?|nvidia-headless-.*|cuda-drivers(-\d+)?|nvidia-dkms-.*|nvidia-kernel-.*|xserver-xorg-video-nvidia.*|libnvidia-compute-\d+.*|nvidia-open.*|nvidia-cuda-driver)$"
)
_META = re.compile(r"^cuda(-\d+-\d+)?$")


def drivers(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """The driver belongs to the host: a copy in the image shadows or contradicts the one that is mounted."""
    for view in context.views:
        for run, made in view.installs:
            if made.manager not in {"apt", "yum"} or not view.own(run):
                continue
            for text in made.texts:
                name = re.split(r"[=:]", text)[0]
                if _DRIVER.match(name):
                    yield finding(
                        "driver-in-image", "error" if view.base.gpu and re.match(r"(libcuda1|nvidia-utils|libnvidia-compute)", name) else "warning",
                        (context.file, made.line),
                        f"{name} puts a driver into the image; the host's driver is mounted at start, and two versions end in 'Driver/library version mismatch'",
                        "remove it: the container runtime brings libcuda and nvidia-smi", CONTAINERS,
                    )  # fmt: skip
                elif _META.match(name):
                    yield finding(
                        "driver-in-image", "warning", (context.file, made.line),
                        f"the package {name} installs the driver and the whole toolkit (several GB)" + (": the base image has CUDA already" if view.base.gpu else ""),
                        "take cuda-toolkit-12-4 or single packages (cuda-nvcc-12-4), or nothing on an nvidia/cuda base", "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/#meta-packages",
                    )  # fmt: skip
                elif name in {
                    "nvidia-docker",
                    "nvidia-docker2",
                    "nvidia-container-toolkit",
                    "nvidia-container-runtime",
                }:
                    yield finding(
                        "nvidia-docker", "warning", (context.file, made.line), f"{name} belongs on the host, not in the image", "remove it", CONTAINERS,
                    )  # fmt: skip
                elif name == "nvidia-cuda-toolkit":
                    yield finding(
                        "second-cuda", "warning", (context.file, made.line),
                        "the distribution's nvidia-cuda-toolkit is a second, older CUDA beside "
                        + (f"the base's {view.base.facts.base_cuda} (base_cuda)" if view.base.facts.base_cuda else "the one the wheels bring"),
                        "remove it; for nvcc take a devel tag of nvidia/cuda", "https://packages.ubuntu.com/jammy/nvidia-cuda-toolkit",
                    )  # fmt: skip
        for run in view.runs:
            if view.own(run) and re.search(r"NVIDIA-Linux-x86_64-[\d.]+\.run", run.command.text):
                yield finding(
                    "driver-in-image", "error", (context.file, run.line), "the driver's .run installer inside an image: the driver belongs to the host", "remove it", CONTAINERS,
                )  # fmt: skip
            if (
                view.own(run)
                and re.search(r"cuda_[\d.]+_[\d.]+_linux\.run", run.command.text)
                and "--toolkit" not in run.command.text
                and run.command.program in {"sh", "bash"}
            ):
                yield finding(
                    "driver-in-image", "warning", (context.file, run.line), "the CUDA .run installer also installs a driver unless told otherwise", "add --toolkit --silent", "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/#runfile-installation",
                )  # fmt: skip


def apt_usage(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """Update and install apart, prompts that hang, packages the distribution does not have."""
    for view in context.views:
        updated = False
        copied_lists = any("/var/lib/apt/lists" in str(s.instruction.flags) for s in view.stage.steps)
        for run in view.runs:
            command, made = run.command, run.install
            where = (context.file, run.line)
            if command.program in {"apt-get", "apt", "aptitude"} and "update" in command.words[1:]:
                updated = True
            if command.program == "add-apt-repository" or unseen(run):
                updated = True  # these update the lists themselves, or may
            if re.search(r"rm\b.*/var/lib/apt/lists", command.text):
                updated = False
            if made is None or made.manager != "apt":
                continue
            missing_lists = not updated and view.base.plain and not copied_lists and not made.conditional
            if missing_lists and view.own(run) and any(not t.startswith(("/", ".")) for t in made.texts):
                yield finding(
                    "apt-no-update", "error", where, f"apt-get install without apt-get update before it: {view.base.reference} has no package lists",
                    "put 'apt-get update &&' in front, in the same RUN", APT,
                )  # fmt: skip
                updated = True
            if not view.own(run):
                continue
            yield from _prompts(view, run, made, where)
            yield from _names(view, made, where, kb)


def unseen(run: Run) -> bool:
    """Does the command run a script, or install what a file lists, so that nobody can say what it did?"""
    text, program = run.command.text, run.command.program
    if program.endswith((".sh", ".bash")) or (run.command.words and run.command.words[0].startswith("./")):
        return True
    if program in {"bash", "sh", "make", "ansible-playbook", "pyinfra", "nix-shell"} and not re.match(
        r"^(bash|sh)\s+-\w*c\b", text
    ):
        return True
    return (program == "xargs" and "apt" in text) or (program in {"apt-get", "apt"} and "$(" in text)


_PULLS = {
    "python3-pip", "python3-dev", "python3-venv", "git", "curl", "build-essential", "cmake", "ffmpeg", "vim", "wget", "python3",
    "software-properties-common", "libopencv-dev", "gcc", "g++", "openssh-server", "libgl1", "libgl1-mesa-glx", "python3-opencv",
}  # fmt: skip


def _prompts(view: StageView, run: Run, made: Install, where: tuple[str, int | None]) -> Iterator[LintFinding]:
    if not made.flags & {"-y", "--yes", "--assume-yes", "-qq", "-yq", "-yqq"} and not run.command.piped:
        variables = run.step.variables
        if "APT_GET_YES" not in variables and not any(
            "apt.conf" in r.command.text or "apt.conf.d" in " ".join(r.command.redirects) for r in view.runs
        ):
            # apt asks only when it has to install more than what was named: these surely bring dependencies
            sure = bool(_PULLS & {t.split("=")[0] for t in made.texts}) and view.base.plain
            yield finding(
                "apt-prompt",
                "error" if sure else "warning",
                where,
                "apt-get install without -y asks a question nobody answers: the build stops",
                "add -y",
                APT,
            )
    pulls_tz = {
        "tzdata",
        "software-properties-common",
        "python3-opencv",
        "libopencv-dev",
        "ffmpeg",
        "build-essential-tz",
        "keyboard-configuration",
        "xorg",
        "ubuntu-desktop",
        "cmake-gui",
    }
    noninteractive = (
        run.step.variables.get("DEBIAN_FRONTEND") == "noninteractive"
        or any(k == "DEBIAN_FRONTEND" for k, _ in run.command.assigned)
        or any(k == "DEBIAN_FRONTEND" for r in view.runs if r.step is run.step for k, _ in r.command.assigned)
    )
    ubuntu = view.base.os is not None and view.base.os.id in {
        "ubuntu18.04",
        "ubuntu20.04",
        "ubuntu22.04",
        "ubuntu24.04",
    }
    hit = pulls_tz & set(made.texts)
    if ubuntu and hit and not noninteractive and "TZ" not in run.step.variables:
        yield finding(
            "apt-prompt", "warning", where, f"{', '.join(sorted(hit))} may pull in tzdata, which asks for a time zone and hangs the build",
            "ARG DEBIAN_FRONTEND=noninteractive", APT,
        )  # fmt: skip


_GONE = {
    "libgl1-mesa-glx": ({"debian12", "debian13", "ubuntu24.04", "ubuntu26.04"}, "libgl1"),
    "python-pip": ({"ubuntu20.04", "ubuntu22.04", "ubuntu24.04", "debian11", "debian12", "debian13"}, "python3-pip"),
    "python-dev": ({"ubuntu22.04", "ubuntu24.04", "debian12", "debian13"}, "python3-dev"),
    "python": ({"ubuntu22.04", "ubuntu24.04", "debian12", "debian13"}, "python3 (and python-is-python3)"),
    "libtinfo5": ({"ubuntu24.04", "debian13"}, "libtinfo6"),
    "libncurses5": ({"ubuntu24.04", "debian13"}, "libncurses6"),
    "libssl1.1": ({"ubuntu22.04", "ubuntu24.04", "debian12", "debian13"}, "libssl3"),
    "libjasper-dev": ({"ubuntu18.04", "ubuntu20.04", "ubuntu22.04", "ubuntu24.04"}, "nothing: it was removed"),
    "python3-distutils": ({"ubuntu24.04", "debian13"}, "python3-setuptools"),
}  # fmt: skip
"""Packages the releases do not have (packages.ubuntu.com, packages.debian.org) → what replaces them."""


def _names(view: StageView, made: Install, where: tuple[str, int | None], kb: Knowledge) -> Iterator[LintFinding]:
    os_id = view.base.os.id if view.base.os else None
    if os_id is None or not os_id.startswith(("ubuntu", "debian")):
        return
    foreign = any(
        re.search(
            r"add-apt-repository|deadsnakes|sources\.list|\.list\b|\.sources\b",
            r.command.text + " ".join(r.command.redirects),
        )
        for r in view.runs
    )
    own = kb.python_of_os(os_id)
    deadsnakes = any("deadsnakes" in r.command.text for r in view.runs)
    if deadsnakes and os_id in {"ubuntu16.04", "ubuntu18.04", "ubuntu20.04"}:
        wanted = sorted({m[1] for t in made.texts if (m := re.match(r"^python(3\.\d+)", t)) and m[1] != own})
        wanted = [w for w in wanted if w not in _OTHER_PYTHONS.get(os_id, ())]
        if wanted:
            yield finding(
                "apt-package", "error", where,
                f"the deadsnakes archive dropped {os_id} after its end of life: 'Unable to locate package python{wanted[0]}'",
                f"use ubuntu22.04, or uv python install {wanted[0]}", "https://github.com/deadsnakes/issues/issues/328",
            )  # fmt: skip
    for text in made.texts:
        name = re.split(r"[=:/]", text)[0]
        gone = _GONE.get(name)
        if gone and os_id in gone[0]:
            yield finding(
                "apt-package", "error", where, f"{os_id} has no package {name}: 'has no installation candidate'", f"use {gone[1]}", "https://packages.ubuntu.com/",
            )  # fmt: skip
        python = re.match(r"^python(3\.\d+)(-(dev|venv|distutils|minimal|full))?$", name)
        if python and own and python[1] != own and not foreign and python[1] not in _OTHER_PYTHONS.get(os_id, ()):
            yield finding(
                "apt-package", "error", where, f"{os_id} has Python {own} and no python{python[1]}: 'Unable to locate package'",
                f"use the distribution's {own}, a base with {python[1]}, the deadsnakes archive, or uv python install {python[1]}", "https://packages.ubuntu.com/",
            )  # fmt: skip
        if "=" in text and re.match(r"(libcudnn|libnccl|cuda-|libcublas|tensorrt|libnvinfer)", name):
            built = re.search(r"\+cuda(\d+)\.(\d+)", text)
            if built and view.base.facts.base_cuda and built[1] != view.base.facts.base_cuda.split(".")[0]:
                yield finding(
                    "apt-cuda", "error", where, f"{text} is built for CUDA {built[1]}.{built[2]}, and the base has CUDA {view.base.facts.base_cuda} (base_cuda)", "take the package of the base's CUDA, or a cudnn tag", "https://docs.nvidia.com/deeplearning/cudnn/latest/reference/support-matrix.html",
                )  # fmt: skip


_OTHER_PYTHONS = {
    "ubuntu18.04": ("3.7", "3.8"),
    "ubuntu20.04": ("3.9",),
    "ubuntu22.04": ("3.11",),
    "debian10": (),
    "debian11": (),
}
"""Further interpreters in the distribution's own archive (packages.ubuntu.com: universe)."""


def yum_usage(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """A package manager the base does not have."""
    for view in context.views:
        os_id = view.base.os.id if view.base.os else view.base.facts.os
        if os_id is None and not view.base.musl:
            continue
        deb = os_id is not None and os_id.startswith(("ubuntu", "debian"))
        for run in view.runs:
            program = run.command.program
            if not view.own(run) or run.command.conditional:
                continue
            wrong = (
                (deb and program in {"yum", "dnf", "microdnf", "apk"})
                or (not deb and not view.base.musl and program in {"apt-get", "apt", "apk"})
                or (view.base.musl and program in {"apt-get", "apt", "yum", "dnf"})
            )
            if wrong:
                yield finding(
                    "wrong-package-manager", "error", (context.file, run.line), f"{view.base.reference} has no {program}: not found",
                    f"use {'apt-get' if deb else 'apk' if view.base.musl else 'dnf or yum'}", "https://docs.docker.com/build/building/best-practices/",
                )  # fmt: skip


def held_packages(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """NVIDIA's images hold cuDNN, NCCL and cuBLAS: another version is refused."""
    for view in context.views:
        if not view.base.cuda_image or view.base.flavour in {None, "base"}:
            continue
        for run, made in view.installs:
            if made.manager != "apt" or not view.own(run) or "--allow-change-held-packages" in made.flags:
                continue
            held = [
                t for t in made.texts if re.match(r"(libnccl2|libnccl-dev|libcublas-\d|libcudnn\d)", t) and "=" in t
            ]
            held = [t for t in held if not t.startswith("libcudnn") or "cudnn" in (view.base.flavour or "")]
            own = view.base.facts.cudnn or "?"
            held = [t for t in held if not (t.startswith("libcudnn") and t.split("=")[1].startswith(own))]
            sure = any(t.startswith("libcudnn") for t in held) and own.count(".") >= 2
            if held and not any("apt-mark" in r.command.text and "unhold" in r.command.text for r in view.runs):
                yield finding(
                    "held-package", "error" if sure else "warning", (context.file, made.line),
                    f"{', '.join(held)}: the base holds these packages, and apt refuses to change them ('Held packages were changed')",
                    "take the base tag with the version you need, or add --allow-change-held-packages", "https://gitlab.com/nvidia/container-images/cuda",
                )  # fmt: skip
