"""Options that ``fit``, ``resolve`` and others share, and the ``Question`` they make."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuimg.errors import BadInput

if TYPE_CHECKING:
    from gpuimg.knowledge.base import Knowledge
    from gpuimg.knowledge.images import ImageFacts
    from gpuimg.knowledge.situation import Question
    from gpuimg.nouns import Host, ProjectNeeds

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.argument("requirements", nargs=-1, metavar="[REQ]..."),
    click.option(
        "-r",
        "files",
        multiple=True,
        metavar="FILE",
        help="requirements.txt, pyproject.toml, environment.yml, lock file.",
    ),
    click.option("--dockerfile", metavar="FILE", help="Its base and install steps."),
    click.option("--base", metavar="REF", help="Base image: nvidia/cuda:12.4.1-base-ubuntu22.04 …"),
    click.option("--image", metavar="REF", help="A built image: its labels and config are read through Docker."),
    click.option("--gpu", "gpus", multiple=True, metavar="NAME[:COUNT]", help="RTX 4090, A100-SXM4-80GB:8, sm_86 …"),
    click.option("--driver", metavar="V", help="Driver version: 550.54.14."),
    click.option("--driver-cuda", metavar="V", help="What nvidia-smi prints as CUDA Version."),
    click.option("--host", "host_file", metavar="FILE|-", help="nvidia-smi text, XML or CSV, or a provider's page."),
    click.option("--python", metavar="V", help="Python version: 3.11."),
    click.option("--os", "os_name", metavar="ID", help="ubuntu22.04, debian12, centos7 …"),
    click.option("--glibc", metavar="V", help="glibc version: 2.31."),
    click.option("--machine", type=click.Choice(["x86_64", "aarch64"]), help="Processor."),
    click.option("--runtime", type=click.Choice(["docker", "bare", "wsl2"]), help="Where it runs; default docker."),
)


def question_options(function: F) -> F:
    """The options of one question."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def build_question(
    knowledge: Knowledge,
    *,
    requirements: tuple[str, ...],
    files: tuple[str, ...],
    dockerfile: str | None,
    base: str | None,
    image: str | None,
    gpus: tuple[str, ...],
    driver: str | None,
    driver_cuda: str | None,
    host_file: str | None,
    python: str | None,
    os_name: str | None,
    glibc: str | None,
    machine: str | None,
    runtime: str | None,
) -> Question:
    """Options → ``Question``. Raises BadInput for what cannot be read."""
    from gpuimg.knowledge.requirement import join_arguments, parse_requirement
    from gpuimg.knowledge.situation import Question

    if not (requirements or files or dockerfile or base or image):
        raise BadInput(
            "nothing to judge: give a requirement (torch==2.5.1), -r FILE, --dockerfile FILE, --base or --image"
        )
    check_version("--driver", driver, "550.54.14")
    check_version("--driver-cuda", driver_cuda, "12.4")
    check_version("--glibc", glibc, "2.31")
    if os_name is not None and knowledge.os(os_name) is None:
        raise BadInput.at("--os", None, f"unknown system {os_name!r}", allowed=tuple(knowledge.oses), value=os_name)
    asked = tuple(parse_requirement(text, aliases=knowledge.aliases) for text in join_arguments(requirements))
    return Question(
        sole_index=replaces_pypi((*files, *([dockerfile] if dockerfile else []))),
        requirements=asked,
        needs=read_project(files, dockerfile),
        gpus=gpus,
        host=read_host(host_file),
        driver=clean(driver),
        driver_cuda=clean(driver_cuda),
        base=base,
        image=read_built(image, knowledge) if image else None,
        python=python,
        os=os_name,
        glibc=glibc,
        machine=machine,
        runtime=runtime,  # type: ignore[arg-type]
    )


def clean(version: str | None) -> str | None:
    """'v550.54.14', 'R550', '550.x', '550+' → digits and dots."""
    if not version:
        return None
    return version.strip().lstrip("vVrR").rstrip("+").removesuffix(".x").removesuffix(".X").removesuffix(".*")


def check_version(option: str, value: str | None, example: str) -> None:
    """Raises BadInput unless the value is digits and dots."""
    import re

    if value is not None and not re.fullmatch(r"[vVrR]?\d+(\.\d+)*(\.[xX*])?\+?", value.strip()):
        raise BadInput(f"{option}: {value!r} is not a version; it looks like {example}")


def read_text(name: str) -> str:
    """A file's text, or standard input for '-'. Raises BadInput."""
    if name == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        return Path(name).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadInput(f"{name}: cannot be read: {error.strerror or error}") from error


def read_host(name: str | None) -> Host:
    """What a host file says; an empty host without one."""
    from gpuimg.nouns import Host

    if name is None:
        return Host()
    from gpuimg.host import parse_host

    found = parse_host(read_text(name))
    if not (found.gpus or found.driver or found.driver_cuda or found.findings or found.toolkit or found.frameworks):
        raise BadInput(
            f"{name}: nothing about a GPU server in it; looked for nvidia-smi (table, -q, XML, CSV) and a provider's "
            "description with cards, driver or CUDA"
        )
    return found


def read_project(files: tuple[str, ...], dockerfile: str | None) -> ProjectNeeds | None:
    """What requirement files and a Dockerfile ask for."""
    if not files and dockerfile is None:
        return None
    from gpuimg.project import read_needs

    for name in (*files, *([dockerfile] if dockerfile else [])):
        if not Path(name).is_file():
            raise BadInput(f"{name}: no such file")
    needs = read_needs([Path(f) for f in files], Path(dockerfile) if dockerfile else None)
    if needs.python is None and dockerfile is not None:
        from dataclasses import replace

        needs = replace(needs, python=installed_python(read_text(dockerfile)))
    return needs


def replaces_pypi(files: tuple[str, ...]) -> bool:
    """Do the files give pip an index instead of PyPI (``--index-url``, ``-i``) and none beside it?"""
    import re

    text = "\n".join(read_text(name) for name in files)
    instead = re.search(r"(?m)(?:(?<=\s)|^)(?:--index-url|-i)[ =]", text)
    beside = re.search(r"--extra-index-url|extra-index-url\s*=", text)
    return instead is not None and beside is None


def installed_python(dockerfile: str) -> str | None:
    """The Python that a Dockerfile's last stage installs by name (apt's python3.11, conda's python=3.10), if only one."""
    import re

    stage = re.split(r"(?im)^\s*FROM\s", dockerfile)[-1]
    found = set(re.findall(r"(?<![\w/.-])python=?(3\.\d{1,2})(?:-dev|-venv|-full)?(?![\w.])", stage))
    return found.pop() if len(found) == 1 else None


def read_built(reference: str, knowledge: Knowledge) -> ImageFacts:
    """A built image's labels and environment, through the engine. Raises EnvironmentFault without one."""
    from dataclasses import replace

    from gpuimg.cli.built_image import inspect_image
    from gpuimg.knowledge.images import facts_of_config, read_image

    config = inspect_image(reference)
    return replace(facts_of_config(read_image(reference, knowledge), config, knowledge), reference=reference)
