"""Messages of frameworks, libraries, compilers, packaging and serving engines get the right cause first."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuimg.explain import explain
from gpuimg.explain.catalogue import entries, read_data

FILE = Path(__file__).parent.parent / "data" / "explain" / "frameworks.yaml"
MESSAGES: list[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
FILES = (
    "messages-25-loader.yaml",
    "messages-55-frameworks-more.yaml",
    "messages-65-serving.yaml",
    "messages-76-build.yaml",
    "messages-77-python.yaml",
)
EXAMPLES = [
    pytest.param(row["rule"], example, id=f"{row['rule']}-{n}")
    for name in FILES
    for row in read_data(name)
    for n, example in enumerate(row["examples"])
]
NO_FAULT_OF_THE_ENVIRONMENT = (
    "KeyError: 'input_ids'",
    "ValueError: Expected input batch_size (32) to match target batch_size (16).",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 768x10)",
    "AttributeError: 'NoneType' object has no attribute 'shape'",
    "TypeError: forward() got an unexpected keyword argument 'labels'",
    "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
    "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'",
    "IndexError: index 5 is out of bounds for axis 0 with size 3",
    "SyntaxError: invalid syntax",
    "Successfully installed torch-2.6.0 nvidia-cudnn-cu12-9.1.0.70",
    "INFO 05-01 10:00:00 [loader.py:447] Loading weights took 3.21 seconds",
    "WARNING: You are using pip version 20.0.2; however, version 24.0 is available.",
    "INFO: Started server process [1]\nINFO: Uvicorn running on http://0.0.0.0:8000",
    "torch.cuda.is_available() True\nLD_LIBRARY_PATH=/usr/local/cuda/lib64",
    "-- Could NOT find Doxygen (missing: DOXYGEN_EXECUTABLE)",
    "Epoch 1/10 loss 0.532 acc 0.81",
)
LISTED = "/opt/venv/lib/python3.11/site-packages/nvidia/curand/lib/libcurand.so.10"


@pytest.mark.parametrize("row", MESSAGES, ids=[f"{row['top']}-{n}" for n, row in enumerate(MESSAGES)])
def test_message(row: dict[str, Any]) -> None:
    causes = explain(row["text"])
    assert causes, "not recognised"
    assert causes[0].rule == row["top"], [c.rule for c in causes]
    first = f"{causes[0].cause} {causes[0].fix}"
    for pattern in row["say"]:
        assert re.search(pattern, first, re.I), (pattern, first)
    for pattern in row.get("never", ()):
        assert not any(re.search(pattern, f"{c.cause} {c.fix}", re.I) for c in causes), pattern


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_an_example_names_its_rule_first(rule: str, example: str) -> None:
    causes = explain(example)
    assert causes, "not recognised"
    named = rule == "missing-library-worded" and causes[0].rule.startswith("missing-")  # the library's own rule
    assert causes[0].rule == rule or named, [c.rule for c in causes]


@pytest.mark.parametrize("row", MESSAGES, ids=[f"{row['top']}-{n}" for n, row in enumerate(MESSAGES)])
def test_no_value_is_left_unfilled(row: dict[str, Any]) -> None:
    templates = {entry.rule: entry for entry in entries()}
    for cause in explain(row["text"]):
        entry = templates.get(cause.rule)
        if entry is None:  # named by a table of libraries or numbers
            continue
        texts = [entry.texts, *(variant.texts for variant in entry.variants)]
        for shown, name in ((cause.cause, "cause"), (cause.fix, "fix")):
            most = max(text.get(name, "").count("…") for text in texts)
            assert shown.count("…") <= most, shown


@pytest.mark.parametrize("text", NO_FAULT_OF_THE_ENVIRONMENT)
def test_what_is_no_fault_of_the_environment_gets_no_cause(text: str) -> None:
    assert not explain(text), [c.rule for c in explain(text)]


@pytest.mark.parametrize(
    "line",
    [
        LISTED,
        f"-rwxr-xr-x 1 root root 96525744 Jan  1 00:00 {LISTED}",
        f"lrwxrwxrwx 1 root root 12 Jan  1 00:00 {LISTED} -> {LISTED}.3.5",
    ],
)
def test_a_listed_library_is_there_but_off_the_path(line: str) -> None:
    message = "OSError: libcurand.so.10: cannot open shared object file: No such file or directory\n"
    fix = explain(message + line)[0].fix
    assert LISTED in fix
    assert "LD_LIBRARY_PATH=" + LISTED.rsplit("/", 1)[0] in fix


@pytest.mark.parametrize(
    "line", [f"  12: trying file={LISTED}", f"ImportError: cannot load {LISTED}", f"loading {LISTED}"]
)
def test_a_library_that_was_only_looked_for_is_not_there(line: str) -> None:
    message = "OSError: libcurand.so.10: cannot open shared object file: No such file or directory\n"
    assert "the file is there" not in explain(message + line)[0].fix
