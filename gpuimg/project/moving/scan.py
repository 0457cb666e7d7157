"""A project folder → what it needs and what will break on Linux."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuimg.errors import BadInput
from gpuimg.knowledge import Knowledge
from gpuimg.knowledge.images import read_image
from gpuimg.knowledge.tables import Build
from gpuimg.nouns import LintFinding, Requirement
from gpuimg.project.detect import kind_of
from gpuimg.project.dockerfile import parse_dockerfile
from gpuimg.project.entries import FileNeeds, exact_version
from gpuimg.project.moving import files as file_rules
from gpuimg.project.moving.code import Code, notebook_source, read_code
from gpuimg.project.moving.walk import Entry, walk
from gpuimg.project.needs import needs_of_dockerfile
from gpuimg.project.readfile import parse_package_file
from gpuimg.project.text import decode

IMPORTS: dict[str, str] = {
    "torch": "torch", "torchvision": "torchvision", "torchaudio": "torchaudio", "tensorflow": "tensorflow", "keras": "keras",
    "jax": "jax", "flax": "jax", "paddle": "paddlepaddle-gpu", "mindspore": "mindspore", "onnxruntime": "onnxruntime-gpu",
    "cupy": "cupy", "vllm": "vllm", "sglang": "sglang", "tensorrt_llm": "tensorrt-llm", "tensorrt": "tensorrt", "triton": "triton",
    "xformers": "xformers", "flash_attn": "flash-attn", "bitsandbytes": "bitsandbytes", "deepspeed": "deepspeed", "dgl": "dgl",
    "faster_whisper": "faster-whisper", "ctranslate2": "ctranslate2", "lightning": "torch", "pytorch_lightning": "torch", "timm": "torch",
    "mxnet": "mxnet", "numba": "numba", "llama_cpp": "llama-cpp-python", "detectron2": "detectron2", "mmcv": "mmcv", "diffusers": "torch",
}  # fmt: skip
"""Module → package whose version decides about CUDA."""
WINDOWS_PACKAGES = {
    "pywin32", "pypiwin32", "pywinauto", "wmi", "comtypes", "torch-directml", "tensorflow-directml", "tensorflow-directml-plugin",
    "onnxruntime-directml", "winshell", "win10toast", "pywin32-ctypes-only", "win-unicode-console", "windows-curses", "pyreadline",
    "triton-windows", "tensorflow-intel",
}  # fmt: skip
MAC_PACKAGES = {"tensorflow-macos", "tensorflow-metal", "mlx", "mlx-lm", "jax-metal", "pyobjc", "coremltools-mac"}
WINDOWS_CONDA = {
    "vs2015_runtime",
    "vc",
    "vc14_runtime",
    "ucrt",
    "pywin32",
    "pywinpty",
    "win_inet_pton",
    "wincertstore",
    "console_shortcut",
    "menuinst",
}
PACKAGE_FILE_LIMIT = 32 * 1024 * 1024
SOURCE_LIMIT = 2 * 1024 * 1024


@dataclass(frozen=True)
class Framework:
    """A framework the project uses: the requirement where one is written, else only the import."""

    name: str
    version: str | None
    specifier: str
    wheel_cuda: str | None
    how: str
    """'requirement', 'conda', 'image', 'import'."""
    file: str
    line: int | None
    source: str

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if v not in (None, "")}


@dataclass(frozen=True)
class Scan:
    """The answer of ``gpuimg scan``."""

    verdict: str
    """'ready', 'problems', or 'unknown' when the folder holds nothing that can be judged."""
    frameworks: tuple[Framework, ...]
    python: str | None
    findings: tuple[LintFinding, ...]
    files: int

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "frameworks": [f.to_json() for f in self.frameworks],
            "python": self.python,
            "findings": [f.to_json() for f in self.findings],
            "files": self.files,
        }


def scan(folder: Path, kb: Knowledge) -> Scan:
    """Reads a project. Nothing of it is run. Raises BadInput when the folder cannot be read."""
    entries = list(walk(folder))
    findings: list[LintFinding] = list(file_rules.names(entries))
    frameworks: list[Framework] = []
    imports: dict[str, tuple[str, int]] = {}
    dotted: list[tuple[str, str, tuple[str, ...], int]] = []
    pythons: list[str] = []
    judged = 0
    for entry in entries:
        data = _read(entry)
        if data is None:
            continue
        low = entry.name.lower()
        if low.endswith((".py", ".ipynb", ".pyw")):
            judged += 1
            findings.extend(file_rules.script(data, entry))
            for code in _codes(data, entry):
                findings.extend(code.findings)
                for module, line in code.imports.items():
                    imports.setdefault(module, (entry.name, line))
                dotted.extend((entry.name, m, n, line) for m, n, line in code.dotted)
            continue
        if low.endswith((".sh", ".bash")) or data.startswith((b"#!", b"\xef\xbb\xbf#!")):
            findings.extend(file_rules.script(data, entry))
        made = _package_file(data, entry, kb)
        if made is None:
            continue
        judged += 1
        found, python, more = made
        frameworks.extend(found)
        findings.extend(more)
        if python:
            pythons.append(python)
    findings.extend(file_rules.import_case(dotted, entries))
    local = {e.name.split("/")[0].removesuffix(".py") for e in entries}
    named = {f.name for f in frameworks}
    for module, (file, line) in imports.items():
        package = IMPORTS.get(module)
        if package is None or module in local or package in named or package.removesuffix("-gpu") in named:
            continue
        named.add(package)
        frameworks.append(Framework(package, None, "", None, "import", file, line, "import statement"))
        findings.append(
            LintFinding(
                "no-version",
                "warning",
                file,
                line,
                f"{module} is imported, and no requirements file names {package}: which version, with which CUDA, is anybody's guess",
                f"pin {package} in requirements.txt",
                "https://pip.pypa.io/en/stable/reference/requirements-file-format/",
            )
        )
    errors = any(f.severity == "error" for f in findings)
    verdict = "problems" if errors else "ready" if judged else "unknown"
    order = {"error": 0, "warning": 1, "note": 2}
    unique = list(dict.fromkeys(findings))
    unique.sort(key=lambda f: (order[f.severity], f.file, f.line or 0))
    return Scan(verdict, tuple(dict.fromkeys(frameworks)), pythons[0] if pythons else None, tuple(unique), len(entries))


def _read(entry: Entry) -> bytes | None:
    low = entry.name.lower()
    wanted = low.endswith(
        (".py", ".pyw", ".ipynb", ".txt", ".in", ".toml", ".lock", ".yml", ".yaml", ".cfg", ".sh", ".bash")
    ) or re.search(r"dockerfile|containerfile|pipfile", low)
    if not wanted and ("." in low.rsplit("/", 1)[-1] or entry.size > 65536):
        return None
    if (
        entry.size > (PACKAGE_FILE_LIMIT if low.endswith((".lock", ".txt")) else SOURCE_LIMIT)
        or not entry.path.is_file()
    ):
        return None
    try:
        return entry.path.read_bytes()
    except OSError:
        return None


def _codes(data: bytes, entry: Entry) -> list[Code]:
    try:
        text = decode(data, entry.name)
    except BadInput:
        return []
    if entry.name.endswith(".ipynb"):
        return [read_code(source, f"{entry.name}#cell{number}") for number, source in notebook_source(text)]
    return [read_code(text.lstrip("\ufeff"), entry.name)]


_LISTS = re.compile(
    r"(requirements|constraints|environment|conda|pyproject|pixi|setup\.cfg|setup\.py|pipfile|\.lock$|pylock|dockerfile|containerfile|\benv\.ya?ml)",
    re.I,
)


def _package_file(
    data: bytes, entry: Entry, kb: Knowledge
) -> tuple[list[Framework], str | None, list[LintFinding]] | None:
    """Frameworks, Python and findings of a file that lists packages; None when it is none."""
    base = entry.name.rsplit("/", 1)[-1]
    if base.endswith((".j2", ".tmpl", ".template", ".md")):
        return None
    if not _LISTS.search(entry.name if "requirements/" in entry.name else base):
        return None
    try:
        text = decode(data, entry.name)
        kind = kind_of(base, text)
        if kind in {"unknown", "compose", "matrix"}:
            return None
        if kind == "dockerfile":
            return _dockerfile(text, entry, kb)
        needs = parse_package_file(text, entry.name, kind, folder=None)
    except BadInput as error:
        return (
            [],
            None,
            [
                LintFinding(
                    "unreadable-file",
                    "warning",
                    entry.name,
                    None,
                    error.message,
                    "mend the file",
                    "https://packaging.python.org/",
                )
            ],
        )
    found = _frameworks(needs.requirements, "requirement", needs, kb) + _frameworks(
        _as_pip(needs.conda), "conda", needs, kb
    )
    return found, needs.python, list(_platform_findings(needs))


def _as_pip(conda: Sequence[Requirement]) -> tuple[Requirement, ...]:
    from dataclasses import replace

    return tuple(replace(r, name="torch") if r.name == "pytorch" else r for r in conda)


def _dockerfile(text: str, entry: Entry, kb: Knowledge) -> tuple[list[Framework], str | None, list[LintFinding]]:
    needs = needs_of_dockerfile(text, str(entry.path), entry.path.parent)
    base = parse_dockerfile(text, entry.name)
    found: list[Framework] = []
    line = base.root(base.final).line
    facts = read_image(needs.base or "", kb)
    for name, version in facts.frameworks:
        found.append(Framework(name, version, f"=={version}", facts.base_cuda, "image", entry.name, line, facts.source))
    only = FileNeeds("dockerfile", entry.name, tuple(r for r in needs.requirements if r.file == str(entry.path)))
    found += _frameworks(only.requirements, "requirement", only, kb)
    return found, needs.python, []


def _frameworks(requirements: Sequence[Requirement], how: str, needs: FileNeeds, kb: Knowledge) -> list[Framework]:
    known = {*kb.frameworks(), "xformers", "flash-attn", "bitsandbytes", "torchvision", "torchaudio", "cupy"}
    made = []
    cuda = next(
        (
            m[1]
            for r in needs.conda
            if r.name in {"pytorch-cuda", "cudatoolkit"} and (m := re.search(r"(\d+\.\d+)", r.specifier))
        ),
        None,
    )
    for one in requirements:
        if one.name not in known:
            continue
        version = exact_version(one)
        build = _build(one, version, kb)
        wheel_cuda = (cuda if how == "conda" else None) or (build.wheel_cuda if build else None)
        specifier = one.specifier + (f"+{one.local}" if one.local and version else "")
        made.append(
            Framework(
                one.name, version, specifier, wheel_cuda, how, needs.file, one.line, build.source if build else ""
            )
        )
    return made


def _build(one: Requirement, version: str | None, kb: Knowledge) -> Build | None:
    if version is None:
        return None
    rows = kb.builds(one.name, version, machine="x86_64")
    if one.local:
        return next((b for b in rows if b.local == one.local), None)
    if one.extras:
        named = next((b for b in rows if b.extra in one.extras), None)
        if named is not None:
            return named
    return next((b for b in rows if b.default), None)


def _platform_findings(needs: FileNeeds) -> list[LintFinding]:
    """Packages for Windows or macOS only, builds of conda for another platform."""
    made = []
    pypi = "https://pypi.org/project/"
    for one in needs.requirements:
        limited = one.marker is not None and re.search(r"win32|Windows|darwin|Darwin|os_name", one.marker) is not None
        if limited or needs.locked:
            continue
        if one.name in WINDOWS_PACKAGES:
            made.append(
                LintFinding(
                    "windows-package",
                    "error",
                    needs.file,
                    one.line,
                    f"{one.name} is for Windows: pip finds no version for Linux",
                    "remove it, or add ; sys_platform == 'win32'",
                    f"{pypi}{one.name}/",
                )
            )
        elif one.name in MAC_PACKAGES:
            made.append(
                LintFinding(
                    "mac-package",
                    "error",
                    needs.file,
                    one.line,
                    f"{one.name} is for macOS",
                    "remove it, or add ; sys_platform == 'darwin'",
                    f"{pypi}{one.name}/",
                )
            )
        wheel = re.search(r"-(win_amd64|win32|macosx_\w+)\.whl", one.url or "")
        if wheel:
            made.append(
                LintFinding(
                    "windows-package",
                    "error",
                    needs.file,
                    one.line,
                    f"a wheel for {wheel[1]}",
                    "take the linux_x86_64 wheel",
                    f"{pypi}{one.name}/",
                )
            )
        elif re.match(r"^(file:///)?[A-Za-z]:[\\/]", one.url or ""):
            made.append(
                LintFinding(
                    "windows-path",
                    "error",
                    needs.file,
                    one.line,
                    f"{one.url} is a path of Windows",
                    "pin the version instead",
                    f"{pypi}{one.name}/",
                )
            )
    windows = [r for r in needs.conda if r.name in WINDOWS_CONDA]
    if windows:
        made.append(
            LintFinding(
                "conda-platform",
                "error",
                needs.file,
                windows[0].line,
                f"{', '.join(r.name for r in windows[:5])}: a conda export of Windows, which cannot be solved on Linux",
                "conda env export --from-history",
                "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html",
            )
        )
    elif sum(bool(re.search(r"=[\w.]+=\w+", r.raw)) for r in needs.conda) > 5:
        made.append(
            LintFinding(
                "conda-platform",
                "warning",
                needs.file,
                needs.conda[0].line,
                "exact build strings belong to one platform",
                "conda env export --no-builds, or --from-history",
                "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html",
            )
        )
    return made
