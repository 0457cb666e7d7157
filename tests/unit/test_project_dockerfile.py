"""Dockerfiles: scopes, lines, heredocs, and the install commands in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuimg.errors import BadInput
from gpuimg.project import read_needs
from gpuimg.project.dockerfile import parse_dockerfile
from gpuimg.project.installs import installs
from gpuimg.project.needs import stage_installs
from gpuimg.project.shell import commands, substitute

TEXT = """# syntax=docker/dockerfile:1
ARG CUDA=12.4.1
ARG OS=ubuntu22.04
FROM --platform=linux/amd64 nvidia/cuda:${CUDA}-devel-${OS:-x} AS build
ARG TORCH_VERSION=2.5.1
ENV A=1 B="two words" \\
    C=${TORCH_VERSION}
RUN apt-get update && \\
    # comment
    apt-get install -y --no-install-recommends \\
      python3.11 \\

      python3-pip; \\
    pip3.11 install "torch==${TORCH_VERSION}+cu124" \\
       --extra-index-url https://download.pytorch.org/whl/cu124 'numpy<2'
RUN <<EOF
set -e
pip install flash-attn==2.7.4.post1 --no-build-isolation
EOF
RUN --mount=type=cache,target=/root/.cache bash -c "source /v/bin/activate && pip install -r requirements.txt"
FROM build
RUN conda install -y pytorch==2.1.0 pytorch-cuda=12.1 -c pytorch -c nvidia && if [ "$X" = 1 ]; then uv pip install --system vllm; fi
USER 1000
"""


def test_stages_scopes_and_lines() -> None:
    made = parse_dockerfile(TEXT, "Dockerfile")
    assert made.directives == {"syntax": "docker/dockerfile:1"}
    assert [s.base for s in made.stages] == ["nvidia/cuda:12.4.1-devel-ubuntu22.04", "build"]
    assert made.stages[0].env == {"A": "1", "B": "two words", "C": "2.5.1"}
    assert made.final.env == made.stages[0].env
    assert made.final.user == "1000"
    assert made.root(made.final) is made.stages[0]
    found = [(i.manager, i.line, i.texts, i.python) for _, i in stage_installs(made, made.final)]
    assert found == [
        ("apt", 10, ("python3.11", "python3-pip"), None),
        ("pip", 14, ("torch==2.5.1+cu124", "numpy<2"), "3.11"),
        ("pip", 18, ("flash-attn==2.7.4.post1",), None),
        ("pip", 20, (), None),
        ("conda", 22, ("pytorch==2.1.0", "pytorch-cuda=12.1"), None),
        ("uv", 22, ("vllm",), None),
    ]
    last = [i for _, i in stage_installs(made, made.final)][-1]
    assert last.conditional


def test_build_args_win() -> None:
    made = parse_dockerfile("ARG V=1\nFROM x:$V\n", "Dockerfile", {"V": "2"})
    assert made.final.base == "x:2"


def test_variables_nobody_sets_stay_visible() -> None:
    made = parse_dockerfile("FROM a:${TAG}\n", "Dockerfile")
    assert made.final.base == "a:${TAG}"
    assert made.final.unset_args == ("TAG",)


@pytest.mark.parametrize(
    ("text", "values", "meant"),
    [
        ("$A-${B}", {"A": "1", "B": "2"}, "1-2"), ("${A:-x}", {}, "x"), ("${A:+y}", {"A": "1"}, "y"), ("${A%.*}", {"A": "12.4.1"}, "12.4"),
        ("${A//./-}", {"A": "12.4.1"}, "12-4-1"), ("\\$A", {"A": "1"}, "$A"), ("$A", {}, "$A"), ("${A##*.}", {"A": "1.2.3"}, "3"),
    ],
)  # fmt: skip
def test_substitution(text: str, values: dict[str, str], meant: str) -> None:
    assert substitute(text, values) == meant


def test_shell_words() -> None:
    found = commands(
        "A=1 pip install 'x<2' \"y>=3\" > log 2>&1 && sh -c 'pip install z' || true # end\nV=2.5; pip install torch==$V"
    )
    assert [c.words for c in found] == [
        ("pip", "install", "x<2", "y>=3"),
        ("sh", "-c", "pip install z"),
        ("pip", "install", "z"),
        ("true",),
        (),
        ("pip", "install", "torch==2.5"),
    ]
    assert found[0].assigned == (("A", "1"),)
    assert found[0].redirects == ("log",)
    assert found[3].conditional


@pytest.mark.parametrize(
    ("line", "manager", "names", "urls"),
    [
        ("python3.10 -m pip install -U torch==2.5.1 -i https://a/simple", "pip", ["torch"], ["https://a/simple"]),
        ("pip3 --no-cache-dir install torch", "pip", ["torch"], []),
        ("uv pip install --system --index-url https://b torch", "uv", ["torch"], ["https://b"]),
        ("uv add torch --index pytorch=https://c", "uv", ["torch"], ["https://c"]),
        ("mamba install -c pytorch pytorch=2.1", "conda", ["pytorch"], []),
        ("conda run -n x pip install jax[cuda12]", "pip", ["jax"], []),
        ("sudo -H pip install torch", "pip", ["torch"], []),
        ("PIP=1 /opt/venv/bin/pip install torch", "pip", ["torch"], []),
    ],
)
def test_install_forms(line: str, manager: str, names: list[str], urls: list[str]) -> None:
    found = installs(commands(line), "Dockerfile")
    assert len(found) == 1
    assert found[0].manager == manager
    assert [r.name for r in found[0].requirements] == names
    assert [i.url for i in found[0].indexes] == urls


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=200), st.text(alphabet="FROMRUNENVARG abc\\\n$\"'{}<>&|;=#EOF()`", max_size=150)))
def test_any_text_is_read_or_refused(text: str) -> None:
    for candidate in (text, f"FROM a\nRUN {text}"):
        try:
            made = parse_dockerfile(candidate, "Dockerfile")
        except BadInput:
            pass
        else:
            for stage in made.stages:
                stage_installs(made, stage)


def test_later_pins_replace_earlier_ones_and_branches_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(
        "FROM python:3.11\nRUN pip install torch==2.4.0 numpy\nRUN pip install torch==2.5.1\n"
        'RUN if [ -n "$X" ]; then pip install vllm==0.6.3; else pip install vllm==0.6.4; fi\nRUN pip install numpy\n',
        encoding="utf-8",
    )
    found = [(r.name, r.specifier) for r in read_needs([], path).requirements]
    assert found == [("numpy", ""), ("torch", "==2.5.1"), ("vllm", "==0.6.3")]
