"""Files in, findings out: which rules a file of each kind is given. The order of the rules is the order of the report."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gpuimg.errors import BadInput
from gpuimg.knowledge import Knowledge
from gpuimg.lint import (
    conda,
    cuda,
    docker_base,
    docker_cuda,
    docker_env,
    docker_python,
    docker_shell,
    docker_style,
    docker_system,
    indexes,
    names,
    pins,
    wheels,
)
from gpuimg.lint.base import base_of
from gpuimg.lint.compose import compose
from gpuimg.lint.docker_context import DockerContext, docker_context, package_sets
from gpuimg.lint.facts import Item, Options, PackageSet, finding, unique
from gpuimg.lint.hardware import hardware
from gpuimg.nouns import LintFinding
from gpuimg.project.detect import Kind, kind_of
from gpuimg.project.dockerfile import parse_dockerfile
from gpuimg.project.entries import FileNeeds
from gpuimg.project.readfile import parse_package_file
from gpuimg.project.text import read_text

PackageRule = Callable[[PackageSet, Knowledge], Iterable[LintFinding]]
DockerRule = Callable[[DockerContext, Knowledge], Iterable[LintFinding]]

PACKAGE_RULES: tuple[PackageRule, ...] = (
    names.names,
    names.faiss,
    pins.duplicates,
    pins.unknown_versions,
    pins.pairs,
    pins.torchtext_end,
    pins.numpy_abi,
    indexes.labels,
    indexes.index_lacks_version,
    indexes.paddle_posts,
    indexes.only_pytorch_index,
    indexes.unsafe_indexes,
    indexes.plain_http,
    indexes.extension_pages,
    wheels.python_versions,
    wheels.glibc,
    wheels.wheel_files,
    wheels.local_wheels,
    cuda.flavours,
    cuda.two_cudnn,
    cuda.replaced_framework,
    cuda.cuda_majors,
    cuda.bitsandbytes,
    cuda.exclusive,
    cuda.system_cuda,
)
DOCKER_RULES: tuple[DockerRule, ...] = (
    docker_base.arg_scope,
    docker_base.lost_args,
    docker_base.base_tags,
    docker_base.old_cuda_repository,
    docker_system.keys,
    docker_system.drivers,
    docker_system.apt_usage,
    docker_system.yum_usage,
    docker_system.held_packages,
    docker_python.externally_managed,
    docker_python.pip_present,
    docker_python.python_command,
    docker_python.python_missing,
    docker_python.opencv_libraries,
    docker_python.old_get_pip,
    docker_shell.shell,
    docker_cuda.compiler,
    docker_cuda.second_cuda,
    docker_cuda.search_path,
    docker_cuda.build_time_gpu,
    docker_cuda.llama_cpu,
    docker_cuda.build_isolation,
    docker_env.variables,
    docker_env.runtime_variables,
    docker_env.locale,
    docker_style.style,
)
KINDS = (
    "Dockerfile",
    "compose.yaml",
    "requirements.txt",
    "environment.yml",
    "pyproject.toml",
    "a lock file",
    "Pipfile",
    "setup.py",
    "a matrix",
)
PIP = "https://pip.pypa.io/en/stable/reference/requirements-file-format/"
RANK = {"error": 0, "warning": 1, "note": 2}


def lint_files(
    paths: Sequence[Path], kb: Knowledge, options: Options, today: datetime.date | None = None
) -> tuple[LintFinding, ...]:
    """Findings of several files, errors first within each file. Raises BadInput for what cannot be read as any kind."""
    found: list[LintFinding] = []
    for path in paths:
        text = read_text(path)
        found.extend(lint_text(text, str(path), kb, options, folder=path.parent, today=today))
    return tuple(found)


def lint_text(
    text: str, file: str, kb: Knowledge, options: Options, *, folder: Path | None = None, kind: Kind | None = None,
    today: datetime.date | None = None,
) -> tuple[LintFinding, ...]:  # fmt: skip
    """Findings of one file's text, sorted by severity and line. ``folder``: where files it names are looked for."""
    kind = kind or kind_of(Path(file).name, text)
    if not text.strip():
        raise BadInput.at(file, None, "is empty")
    made = unique(_findings(kind, text, file, kb, options, folder, today or datetime.date.today()))
    return tuple(sorted(made, key=lambda f: (RANK[f.severity], f.line or 0)))


def _findings(
    kind: Kind, text: str, file: str, kb: Knowledge, options: Options, folder: Path | None, today: datetime.date
) -> Iterator[LintFinding]:
    if kind == "dockerfile":
        yield from _dockerfile(text, file, kb, options, folder, today)
    elif kind == "compose":
        yield from compose(text, file, kb, folder)
    elif kind == "matrix":
        yield from _matrix(text, file, kb)
    elif kind == "unknown":
        raise BadInput.at(file, None, "is of no kind that is known here", allowed=KINDS)
    else:
        yield from _package_file(parse_package_file(text, file, kind, folder=folder), kb, options)


def _dockerfile(
    text: str, file: str, kb: Knowledge, options: Options, folder: Path | None, today: datetime.date
) -> Iterator[LintFinding]:
    context = docker_context(parse_dockerfile(text, file), kb, options, folder)
    for rule in DOCKER_RULES:
        yield from rule(context, kb)
    yield from docker_base.os_end_of_life(context, kb, today)
    for view in context.views:
        for packages in package_sets(view, context, kb):
            for package_rule in PACKAGE_RULES:
                yield from package_rule(packages, kb)
            yield from indexes.cpu_builds(packages, kb, gpu=view.base.gpu)
        for run, made in view.installs:
            if made.manager == "conda" and view.own(run):
                named = {r.name: r for r in made.requirements}
                default = made.channels or (("conda-forge",) if "micromamba" in made.executable else ("defaults",))
                yield from conda.packages_of_channels(named, default, (file, made.line), kb)
    if context.final.base.gpu or context.final.installs:
        yield from hardware(options, kb, dockerfile=(text, file, folder))


def _package_file(needs: FileNeeds, kb: Knowledge, options: Options) -> Iterator[LintFinding]:
    for problem in needs.problems:
        hard = needs.kind == "requirements" or "conda cannot" in problem.reason
        yield finding(
            "unreadable-line", "error" if hard else "warning", (problem.file, problem.line),
            f"{problem.reason}: {problem.text[:80]!r}", "write it as NAME==VERSION", PIP,
        )  # fmt: skip
    if needs.kind == "conda":
        yield from conda.conda_rules(needs, kb)
    for packages in file_package_sets(needs, kb, options):
        for rule in PACKAGE_RULES:
            yield from rule(packages, kb)
        yield from indexes.cpu_builds(packages, kb, gpu=packages.base is not None and packages.base.gpu)
    if any(name == "--pre" for name, _, _ in needs.options):
        line = next(line for name, _, line in needs.options if name == "--pre")
        yield finding(
            "prerelease",
            "warning",
            (needs.file, line),
            "--pre takes development builds of every package",
            "pin the one that is wanted",
            PIP,
        )
    yield from hardware(options, kb, needs=needs)


def file_package_sets(needs: FileNeeds, kb: Knowledge, options: Options) -> Iterator[PackageSet]:
    """What may be installed together: the main packages, and these with each extra or group. A lock was solved already."""
    if not needs.groups:
        yield file_packages(needs, kb, options)
        return
    optional = {id(r) for _, members in needs.groups for r in members}
    main = tuple(r for r in needs.requirements if id(r) not in optional)
    yield file_packages(replace(needs, requirements=main), kb, options)
    for _, members in needs.groups:
        yield file_packages(replace(needs, requirements=(*main, *members)), kb, options)


def file_packages(needs: FileNeeds, kb: Knowledge, options: Options) -> PackageSet:
    """The packages of one file as one environment."""
    constrained = {c.name: c for c in needs.constraints}
    items: list[Item] = []
    for one in needs.requirements:
        bound = constrained.get(one.name)
        if bound is not None and not one.specifier and not one.url:
            one = bound
        items.append(Item(one, needs.indexes))
    python = options.python or (
        needs.python if needs.python and needs.python.count(".") == 1 and needs.python[0].isdigit() else None
    )
    base = base_of(kb, options.base) if options.base else None
    release = kb.os(options.os) if options.os else (base.os if base else None)
    if python is None and base is not None:
        python = base.facts.python
    if python is None and release is not None and options.os:
        python = release.python
    return PackageSet(
        items=tuple(items), python=python, python_from="as given" if options.python else f"of {needs.file}" if python else "",
        python_range=needs.python if python is None else None,
        os=release, glibc=options.glibc or (release.glibc if release else None), machine=options.machine, base=base,
        kind="lock" if needs.locked else needs.kind,
        trusted_hosts=frozenset(v.split(":")[0] for n, v, _ in needs.options if n == "--trusted-host"), names_elsewhere=frozenset({"pytorch": "torch"}.get(r.name, r.name) for r in needs.conda),
    )  # fmt: skip


def _matrix(text: str, file: str, kb: Knowledge) -> Iterator[LintFinding]:
    """A matrix file: what its loader refuses, and every cell that no published wheel or base can make."""
    from gpuimg.knowledge.planning import Target, plan_cell
    from gpuimg.matrix.expand import expand
    from gpuimg.matrix.load import parse_matrix

    try:
        matrix = parse_matrix(text, file)
        cells = expand(matrix, Path(file), os_python=kb.python_of_os).cells
    except BadInput as error:
        place, _, message = error.message.partition(": ")
        line = place.rsplit(":", 1)[-1]
        yield finding(
            "matrix", "error", (file, int(line) if line.isdigit() else None), message or error.message,
            error.hint or "gpuimg plan shows the cells; the schema names the keys", "schema of matrix files, gpuimg/v1",
        )  # fmt: skip
        return
    targets = [Target(t.gpu, t.driver) for t in matrix.targets]
    for cell in cells:
        try:
            plan = plan_cell(cell, targets=targets, knowledge=kb)
        except BadInput as error:
            yield finding(
                "matrix-cell",
                "error",
                (file, cell.line),
                f"{cell.id}: {error.message}",
                error.hint or "see gpuimg plan",
                "gpuimg kb show",
            )
            continue
        for one in plan.findings:
            if one.verdict == "no":
                nearest = plan.instead[0] if plan.instead else None
                yield finding(
                    "matrix-cell", "error", (file, cell.line), f"{cell.id}: {one.evidence}",
                    one.fix or (f"nearest possible: {nearest}" if nearest else "see gpuimg plan"), one.source,
                )  # fmt: skip
