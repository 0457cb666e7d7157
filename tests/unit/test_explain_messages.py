"""Real messages from public issue threads get the right cause first, with the facts that matter in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuimg.explain import explain
from gpuimg.explain.catalogue import Pattern, entries, read_data
from gpuimg.explain.paste import LIMIT, clean

FILE = Path(__file__).parent.parent / "data" / "explain" / "messages.yaml"
MESSAGES: list[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", MESSAGES, ids=[f"{row['top']}-{n}" for n, row in enumerate(MESSAGES)])
def test_message(row: dict[str, Any]) -> None:
    causes = explain(row["text"])
    assert causes, "not recognised"
    assert causes[0].rule == row["top"], [c.rule for c in causes]
    said = " ".join(f"{c.cause} {c.fix}" for c in causes)
    for pattern in row.get("say", ()):
        assert re.search(pattern, said, re.I), (pattern, said)
    for pattern in row.get("never", ()):
        assert not re.search(pattern, said, re.I), (pattern, said)


@pytest.mark.parametrize("rule", [entry.rule for entry in entries()])
def test_every_entry_speaks_on_its_examples(rule: str) -> None:
    entry = next(e for e in entries() if e.rule == rule)
    assert entry.examples
    for example in entry.examples:
        causes = explain(example)
        spoken = {c.rule for c in causes}
        hidden = {hidden for e in entries() if e.rule in spoken for hidden in e.hides}
        computed = {"missing-library": "missing-", "missing-library-worded": "missing-", "cuda-number": "cuda-"}.get(
            rule
        )
        assert rule in spoken | hidden or (computed and any(r.startswith(computed) for r in spoken)), (example, spoken)


def test_rules_are_unique_and_rest_on_a_source() -> None:
    rules = [entry.rule for entry in entries()]
    files = {row["rule"] for row in read_data("libraries.yaml")}
    assert len(rules) == len(set(rules))
    for entry in entries():
        assert entry.texts["source"].startswith("https://"), entry.rule
        assert entry.texts["confidence"] in {"high", "medium", "low"}, entry.rule
        for hidden in entry.hides:
            assert hidden in rules or hidden in files or hidden.startswith("cuda-"), (entry.rule, hidden)


def test_the_literal_of_a_pattern_never_hides_a_match() -> None:
    """Every pattern is looked for with and without its literal, over everything the catalogue and the messages hold."""
    texts = [clean(example) for entry in entries() for example in entry.examples] + [row["text"] for row in MESSAGES]
    for entry in entries():
        for pattern in (*entry.patterns, *entry.condition.needs, *entry.condition.bars):
            bare = Pattern(pattern.text)
            bare.literal = ""
            for text in texts:
                found = bare.finditer(text, text.lower())
                if found:
                    assert pattern.finditer(text, text.lower()), (entry.rule, pattern.text, pattern.literal)


def test_wrapped_and_coloured_lines_are_read() -> None:
    wrapped = (
        "\x1b[31mdocker: Error response from daemon: could not select device driver\r\n"
        '  "" with capabilities:\n [[gpu]].\x1b[0m'
    )
    assert explain(wrapped)[0].rule == "no-gpu-support-in-docker"


def test_place_changes_the_diagnosis() -> None:
    message = 'could not select device driver "nvidia" with capabilities: [[gpu]]'
    assert "no NVIDIA GPU" in explain(f"# server without any GPU\n{message}")[0].cause
    assert "snap" in explain(f"{message}\n$ snap list docker")[0].fix
    bus = "Fatal Python error: Bus error\n"
    assert not any(
        "shm-size" in c.fix for c in explain(f"{bus}bare metal, num_workers=0\ntmpfs  64G  0  64G  0% /dev/shm")
    )
    worker = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error."
    assert "shm-size" in explain(worker)[0].fix
    assert not any("shm-size" in c.fix for c in explain(f"{worker}\ntmpfs  64G  0  64G  0% /dev/shm"))


def test_the_missing_file_is_the_one_after_the_colon() -> None:
    cause = explain(
        "Could not load library libcudnn_cnn_infer.so.8. Error: libnvrtc.so: cannot open shared object file"
    )[0]
    assert cause.rule == "missing-nvrtc"
    assert cause.cause.startswith("libnvrtc.so")


def test_a_file_that_is_there_needs_a_path_only() -> None:
    text = (
        "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object file: "
        "No such file or directory\n$ find / -name 'libcudnn_ops*'\n/opt/x/nvidia/cudnn/lib/libcudnn_ops_infer.so.8\n"
    )
    assert "LD_LIBRARY_PATH=/opt/x/nvidia/cudnn/lib" in explain(text)[0].fix


@pytest.mark.parametrize(
    "text", ["", "hello", "all good, training at 3 it/s", "你好", "{}", "Successfully installed torch-2.5.1"]
)
def test_nothing_recognised(text: str) -> None:
    assert explain(text) == ()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(MESSAGES), st.integers(0, 200), st.integers(0, 200), st.text(max_size=30))
def test_cut_and_noisy_pastes_never_break_it(row: dict[str, Any], start: int, end: int, noise: str) -> None:
    text = row["text"]
    for cause in explain(noise + text[start : len(text) - end] + noise):
        assert cause.cause
        assert cause.fix
        assert "[[" not in cause.cause + cause.fix


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    explain(data.decode("utf-8", "replace"))


def test_a_huge_log_is_read_in_time() -> None:
    import time

    log = "INFO step 1 loss 0.5 grad 1.0 /usr/lib/python3/x.py\n" * 60_000 + MESSAGES[0]["text"]
    assert len(log) > LIMIT
    start = time.monotonic()
    assert explain(log)[0].rule == MESSAGES[0]["top"]
    assert time.monotonic() - start < 5


def test_an_error_in_the_middle_of_a_long_log_is_found() -> None:
    step = "".join(f"step {n} loss {n / 7:.3f}\n" for n in range(30_000))
    assert explain(step + MESSAGES[0]["text"] + "\n" + step)[0].rule == MESSAGES[0]["top"]
