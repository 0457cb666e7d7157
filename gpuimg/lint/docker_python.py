"""Python in an image: is there one, is there pip, may pip install, and do the programs that are called exist?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuimg.knowledge import Knowledge
from gpuimg.lint.docker_context import DockerContext, Run, StageView
from gpuimg.lint.docker_system import unseen
from gpuimg.lint.facts import finding
from gpuimg.nouns import LintFinding
from gpuimg.project.installs import Install

PEP668 = "https://peps.python.org/pep-0668/"
HUB = "https://hub.docker.com/r/nvidia/cuda"


def externally_managed(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """System pip of Ubuntu 24.04, Debian 12 and later refuses to install outside a virtual environment."""
    for view in context.views:
        release = view.base.os
        tag = re.match(r"2\.(\d+)", view.base.facts.tag or "")
        managed = view.base.facts.repository.endswith("pytorch/pytorch") and tag is not None and int(tag[1]) >= 12
        if not managed and (release is None or not release.pep668 or not view.base.plain):
            continue
        named = view.base.reference if managed or release is None else release.id
        for run, made in view.installs:
            if made.conditional or made.manager not in {"pip", "uv"}:
                continue
            if _allowed_outside(view, run, made):
                continue
            if not made.requirements and not made.files and not made.local_paths and not made.texts:
                continue
            yield finding(
                "pep668", "error", (context.file, made.line),
                f"{named} marks its Python as externally managed (PEP 668): {'uv pip install --system' if made.manager == 'uv' else 'pip install'} refuses without a virtual environment",
                "RUN python3 -m venv /opt/venv and ENV PATH=/opt/venv/bin:$PATH before it (or --break-system-packages)", PEP668,
            )  # fmt: skip
            break


def _allowed_outside(view: StageView, run: Run, made: Install) -> bool:
    if (
        made.flags & {"--break-system-packages", "--target", "-t", "--prefix", "--root", "--python", "-p"}
        and "--system" not in made.flags
    ):
        return True
    if "--break-system-packages" in made.flags:
        return True
    variables = run.step.variables
    if (
        variables.get("PIP_BREAK_SYSTEM_PACKAGES")
        or variables.get("UV_BREAK_SYSTEM_PACKAGES")
        or "VIRTUAL_ENV" in variables
        or "UV_PROJECT_ENVIRONMENT" in variables
    ):
        return True
    if "PIP_CONFIG_FILE" in variables or "PIP_TARGET" in variables or "CONDA_DEFAULT_ENV" in variables:
        return True
    if made.manager == "uv" and not (made.flags & {"--system"} or variables.get("UV_SYSTEM_PYTHON")):
        return True
    if any("pip.conf" in s.instruction.value for s in view.stage.steps if s.instruction.keyword in {"COPY", "ADD"}):
        return True
    before = [r for r in view.runs if _before(r, run)]
    text = "\n".join(r.command.text for r in before)
    if re.search(r"EXTERNALLY-MANAGED|break-system-packages", text):
        return True
    executable = made.python_exe or made.executable
    if "/" in executable and not executable.startswith(("/usr/bin", "/bin", "/usr/local/bin")):
        return True
    path = variables.get("PATH", "")
    first = path.split(":")[0] if path else ""
    if (
        first
        and "$" not in first
        and not first.startswith(("/usr/bin", "/bin", "/usr/local/nvidia", "/usr/local/cuda", "/usr/sbin"))
    ):
        return True
    same = [r for r in before if r.step is run.step]
    if any(
        r.command.program in {"source", ".", "activate", "conda", "mamba", "micromamba", "pyenv", "poetry"}
        for r in same
    ):
        return True
    if re.search(
        r"miniconda|miniforge|mambaforge|micromamba|anaconda|pyenv|deadsnakes|Python-3\.\d+.*(tgz|tar)|uv python install|uv venv",
        text,
        re.I,
    ):
        return True
    return bool(
        made.python
        and view.base.os is not None
        and made.python != view.base.os.python
        and re.search(r"get-pip|ensurepip|altinstall", text)
    )


def _before(one: Run, other: Run) -> bool:
    if one.step is other.step:
        return one.line <= other.line and one is not other
    return (one.stage.index, one.step.instruction.line) < (other.stage.index, other.step.instruction.line)


_CURL_PYTHON = re.compile(
    r"miniconda|miniforge|mambaforge|micromamba|anaconda|pyenv|uv python install|uv venv|uv sync|uv run|astral\.sh/uv|Python-3\.|python3?\.?\d*\.tgz|get-pip|ensurepip|easy_install",
    re.I,
)


def pip_present(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """nvidia/cuda and the distributions' images hold no pip and mostly no Python."""
    for view in context.views:
        if not view.base.plain or view.base.musl or _brings_python(view):
            continue
        have = {name for name, _ in view.base.facts.frameworks}
        if have:
            continue
        apt: set[str] = set()
        for run in view.runs:
            made = run.install
            if made is not None and made.manager in {"apt", "yum", "apk"}:
                apt.update(re.split(r"[=:]", t)[0] for t in made.texts)
                continue
            if made is None or made.manager != "pip" or made.conditional:
                continue
            if not view.own(run):
                continue
            executable = made.executable.rsplit("/", 1)[-1]
            if "/" in made.executable and not made.executable.startswith("/usr/bin"):
                break
            if not any(
                re.match(r"^(python3?(\.\d+)?-pip|python3?\d*-pip|pipx|py3-pip|python3?(\.\d+)?-(full|venv))$", p)
                for p in apt
            ):
                installed = (
                    f": only {', '.join(sorted(p for p in apt if p.startswith('python')))} is installed"
                    if any(p.startswith("python") for p in apt)
                    else ""
                )
                yield finding(
                    "no-pip", "error", (context.file, made.line), f"{view.base.reference} holds no pip{installed}: '{executable}: not found'",
                    "apt-get install -y python3-pip before it", HUB,
                )  # fmt: skip
                break
            if executable == "python" and not _has_python_command(view, apt):
                yield _no_python(context, made.line, view)
                break


def _brings_python(view: StageView) -> bool:
    for one in (view.stage, *[r.stage for r in view.runs]):
        for step in one.steps:
            made = step.instruction
            if made.keyword in {"COPY", "ADD"} and (
                made.flag("from") or re.search(r"venv|conda|python|\buv\b", made.value)
            ):
                return True
    path = view.env.get("PATH", "")
    first = path.split(":")[0]
    if first and "$" not in first and re.search(r"conda|venv|pyenv|/opt/", first):
        return True
    if any(unseen(r) for r in view.runs):
        return True
    return any(
        _CURL_PYTHON.search(r.command.text) or r.command.program in {"conda", "mamba", "pyenv"} for r in view.runs
    )


def _has_python_command(view: StageView, apt: set[str] | frozenset[str]) -> bool:
    if apt & {"python-is-python3", "python", "python-dev", "python-minimal"} or (
        view.base.os is not None and view.base.os.id == "ubuntu16.04"
    ):
        return True
    return any(
        re.search(r"(ln|update-alternatives|alias|echo|virtualenv|venv)\b.*python", r.command.text) for r in view.runs
    )


def _no_python(context: DockerContext, line: int, view: StageView) -> LintFinding:
    return finding(
        "no-python", "error", (context.file, line), f"{view.base.reference} has no command 'python', only python3 once it is installed: 'python: not found'",
        "call python3, or install python-is-python3", HUB,
    )  # fmt: skip


def python_command(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """``python`` in RUN, CMD or ENTRYPOINT where only python3 exists."""
    for view in context.views:
        if not view.base.plain or view.base.musl or _brings_python(view) or view.base.facts.frameworks:
            continue
        apt = view.apt()
        if _has_python_command(view, apt):
            continue
        for run in view.runs:
            if (
                view.own(run)
                and run.command.program == "python"
                and not run.command.conditional
                and not (run.install is not None)
            ):
                yield _no_python(context, run.line, view)
                break
        else:
            if view.final:
                for step in view.stage.steps:
                    if step.instruction.keyword in {"CMD", "ENTRYPOINT"} and any(
                        c.program == "python" for c in step.commands()[:1]
                    ):
                        yield _no_python(context, step.instruction.line, view)


def python_missing(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """CMD or ENTRYPOINT calls python3, and nothing visible installs it into a base that has none."""
    view = context.final
    if not view.base.cuda_image or _brings_python(view) or any(re.match(r"python3", p) for p in view.apt()):
        return
    for step in view.stage.steps:
        if step.instruction.keyword in {"CMD", "ENTRYPOINT"} and any(
            re.match(r"python3(\.\d+)?$", c.program) for c in step.commands()[:1]
        ):
            yield finding(
                "no-python", "warning", (context.file, step.instruction.line),
                f"nothing here installs python3, and {view.base.reference} has none", "apt-get install -y python3 before it", HUB,
            )  # fmt: skip


def opencv_libraries(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """opencv-python (not -headless) needs libGL and GLib, which slim and CUDA images lack."""
    for view in context.views:
        slim = view.base.cuda_image or (
            view.base.facts.kind == "distribution"
            and (not view.base.facts.python_installed or "slim" in (view.base.facts.tag or ""))
        )
        if not slim or not view.final:
            continue
        apt = view.apt()
        if any(
            re.match(
                r"^(libgl1.*|libopencv.*|python3-opencv|libglu1.*|libgl-dev|mesa.*|ffmpeg|xorg|libgtk.*|libegl1|libsm6)$",
                p,
            )
            for p in apt
        ):
            continue
        for _, made in view.installs:
            names = {r.name: r for r in made.requirements}
            for name in made.files:
                needs = view.files.get(name)
                names.update({r.name: r for r in needs.requirements} if needs else {})
            for package in ("opencv-python", "opencv-contrib-python"):
                if package in names and not {f"{package}-headless"} & set(names):
                    yield finding(
                        "missing-library", "warning" if made.conditional else "error", (context.file, made.line),
                        f"{package} needs libGL.so.1 and libgthread, and {view.base.reference} has neither: ImportError at 'import cv2'",
                        f"use {package}-headless, or apt-get install libgl1 libglib2.0-0", "https://github.com/opencv/opencv-python#frequently-asked-questions",
                    )  # fmt: skip


def old_get_pip(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """The current get-pip.py refuses Pythons that pip no longer supports."""
    for view in context.views:
        text = [r for r in view.runs if "bootstrap.pypa.io/get-pip.py" in r.command.text]
        if not text:
            continue
        users = [
            r
            for r in view.runs
            if re.match(r"python(3(\.\d+)?)?$", r.command.program)
            and (re.search(r"get-pip\.py", r.command.text) or r.command.words[1:] in {(), ("-",)})
        ]
        for run in users or text:
            named = re.match(r"python(3\.\d+)$", run.command.program)
            python = (
                named[1] if named else (view.base.os.python if view.base.os is not None and view.base.plain else None)
            )
            if python is not None and int(python.split(".")[1]) < 9 and view.own(run):
                yield finding(
                    "old-get-pip", "error", (context.file, run.line), f"get-pip.py no longer supports Python {python}: 'This script does not work on Python {python}'",
                    f"https://bootstrap.pypa.io/pip/{python}/get-pip.py, or apt-get install python3-pip", "https://bootstrap.pypa.io/",
                )  # fmt: skip
                break
