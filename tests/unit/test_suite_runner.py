"""The suite's own machinery: document, seal, profiles, verdicts, zipapp, command line, old Pythons."""

from __future__ import annotations

import ast
import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuimg.suite import challenge, document, framing
from gpuimg.suite.document import BadDocument, read_document
from gpuimg.suite.pack import build_zipapp, source_digest, source_files
from gpuimg.suite.profiles import BadProfile, bundled, load_profile
from gpuimg.suite.registry import NEEDS, all_checks, check, passed
from gpuimg.suite.runner import verdict_of

ROOT = Path(__file__).resolve().parents[2]
CHECKS = all_checks()


# --- frames and documents -----------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=1, max_size=40), VALUES)
def test_a_frame_survives(key: bytes, value: Any) -> None:
    values, refused = framing.unframe(key, framing.frame(key, value))
    assert refused == 0
    assert values == [json.loads(framing.dumps(value))]


@given(st.binary(max_size=200), st.binary(min_size=1, max_size=40))
def test_noise_is_never_a_result(noise: bytes, key: bytes) -> None:
    values, _ = framing.unframe(key, noise + b"\n" + framing.frame(b"another key", {"status": "pass"}))
    assert values == []


def sample(nonce: str = "n1") -> list[str]:
    lines = [
        document.write_line("environment", {"schema": document.SCHEMA, "nonce": nonce}),
        document.write_line("check", {"id": "a", "status": "fail"}),
        document.write_line("check", {"id": "b", "status": "pass"}),
    ]
    lines.append(document.write_line("summary", {"seal": document.seal(nonce, lines), "verdict": "fail"}))
    return lines


def test_a_document_is_read_through_banners() -> None:
    read = read_document("\n".join(["== NVIDIA ==", "{not json", *sample(), "bye"]), "n1")
    assert [c["id"] for c in read.checks] == ["a", "b"]
    assert read.summary["verdict"] == "fail"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: lines[:-1], "cut off after 2 checks"),
        (lambda lines: [lines[0], lines[2], lines[3]], "seal"),
        (lambda lines: [lines[0], lines[1].replace("fail", "pass"), *lines[2:]], "seal"),
        (lambda lines: [*lines[:3], lines[2].replace('"b"', '"c"'), lines[3]], "seal"),
        (lambda lines: sample("other"), "no environment line with this nonce"),
        (lambda lines: [], "no environment line"),
    ],
    ids=["cut", "dropped", "changed", "added", "another run's", "empty"],
)
def test_a_touched_document_is_refused(change: Any, says: str) -> None:
    with pytest.raises(BadDocument, match=says):
        read_document("\n".join(change(sample())), "n1")


def test_a_forged_document_before_the_real_one_loses() -> None:
    forged = [line.replace("fail", "pass") for line in sample("guessed")]
    read = read_document("\n".join([*forged, *sample()]), "n1")
    assert read.checks[0]["status"] == "fail"


# --- challenges -----------------------------------------------------------------------------------------------------


def test_a_challenge_can_be_recomputed_and_not_guessed() -> None:
    a, b = challenge.operands(challenge.seed_of("nonce", "compute.challenge"))
    floats = [[float(v) for v in row] for row in challenge.product(a, b)]
    assert challenge.digest(floats) == challenge.expected("nonce", "compute.challenge")
    assert challenge.expected("nonce", "x") != challenge.expected("nonce2", "x")
    assert challenge.SIZE * challenge.LIMIT**2 < 1 << 24
    for wrong in (1.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not an exact product"):
            challenge.digest([[wrong]])


# --- registry and profiles ------------------------------------------------------------------------------------------


def test_every_check_says_what_it_proves() -> None:
    for item in CHECKS.values():
        assert all((item.title, item.proves, item.how, item.threshold, item.source)), item.id
        assert set(item.needs) <= set(NEEDS)
        assert 0 < item.timeout <= 600
        family, _, name = item.id.partition(".")
        assert family in ("host", "card", "driver", "triangle", "compute", "train", "infer", "engine", "dist", "mon")
        assert name.isidentifier()


def test_a_check_is_registered_once() -> None:
    with pytest.raises(ValueError, match="unknown needs"):
        check("t.x", title="", proves="", how="", threshold="", source="", needs=("tpu",))
    with pytest.raises(ValueError, match="twice"):
        check("host.shm", title="", proves="", how="", threshold="", source="")(lambda ctx: passed())


@pytest.mark.parametrize("name", sorted(bundled()))
def test_shipped_profiles_load(name: str) -> None:
    profile = load_profile(name, CHECKS)
    assert any(profile.wants(check_id) for check_id in CHECKS)
    if name == "full":
        assert all(profile.wants(check_id) is not None for check_id in CHECKS)
    if name == "smoke":
        assert profile.budget_s <= 30


def write(tmp_path: Path, value: Any) -> str:
    path = tmp_path / "mine.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


def test_a_users_profile(tmp_path: Path) -> None:
    file = write(
        tmp_path, {"extends": "smoke", "required": ["host.disk"], "floors": {"host.disk": {"min_free_gib": 1}}}
    )
    profile = load_profile("mine", CHECKS, file)
    assert profile.wants("host.disk") is True
    assert profile.wants("driver.init") is True
    assert profile.floors["host.disk"] == {"min_free_gib": 1}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ('{"required": [}', "mine.json:1: not JSON"),
        ([], "JSON object"),
        ({"requird": []}, "unknown key 'requird'.*did you mean 'required'"),
        ({"required": ["host.shmm"]}, "no check is called 'host.shmm'; did you mean 'host.shm'"),
        ({"floors": {"host.dsk": {}}}, "did you mean 'host.disk'"),
        ({"profiles": {"mine": {"extends": "mine"}}}, "extends itself"),
        ({"extends": "trainig"}, "did you mean 'training'"),
    ],
)
def test_bad_profiles_are_explained(tmp_path: Path, value: Any, says: str) -> None:
    with pytest.raises(BadProfile, match=says):
        load_profile("mine", CHECKS, write(tmp_path, value))


# --- verdicts -------------------------------------------------------------------------------------------------------


def row(status: str, required: bool = True, applicable: bool = True) -> dict[str, Any]:
    return {"id": "x.y", "status": status, "required": required, "applicable": applicable, "reason": "r"}


@pytest.mark.parametrize(
    ("rows", "device", "asked", "framework", "verdict"),
    [
        ([row("pass")], "cuda", "auto", "torch", "pass"),
        ([row("pass"), row("fail")], "cuda", "auto", "torch", "fail"),
        ([row("pass"), row("error")], "cuda", "auto", "torch", "fail"),
        ([row("pass"), row("fail", required=False)], "cuda", "auto", "torch", "pass"),
        ([row("pass"), row("skip")], "cuda", "auto", "torch", "cannot-tell"),
        ([row("pass"), row("skip", applicable=False)], "cuda", "auto", "torch", "pass"),
        ([row("pass"), row("skip", required=False)], "cuda", "auto", "torch", "pass"),
        ([row("pass")], "cpu", "auto", "torch", "cannot-tell"),
        ([row("pass")], "cpu", "cpu", "torch", "pass"),
        ([row("pass")], "cuda", "auto", None, "cannot-tell"),
        ([row("fail")], "cpu", "auto", None, "fail"),
        ([row("skip", required=False)], "cuda", "auto", "torch", "cannot-tell"),
        ([], "cuda", "auto", "torch", "cannot-tell"),
    ],
)
def test_verdicts(rows: list[dict[str, Any]], device: str, asked: str, framework: Any, verdict: str) -> None:
    assert verdict_of(rows, device, asked, framework)[0] == verdict


# --- the zipapp and the command line --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("zip") / "suite.pyz"
    assert build_zipapp(path) == source_digest()
    return str(path)


def run(python: str, *argv: str, stdin: str = "") -> tuple[int, str, str]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([python, *argv], capture_output=True, input=stdin.encode(), env=env, timeout=120, check=False)
    return done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8", "replace")


def test_the_zipapp_is_reproducible_and_whole(zipapp: str, tmp_path: Path) -> None:
    again = tmp_path / "again.pyz"
    build_zipapp(again)
    assert again.read_bytes() == Path(zipapp).read_bytes()
    names = zipfile.ZipFile(zipapp).namelist()
    assert names == sorted(names)
    for needed in (
        "__main__.py",
        "gpuimg_suite/runner.py",
        "gpuimg_suite/data/cards.json",
        "gpuimg_suite/data/digits.zlib",
    ):
        assert needed in names
    assert os.access(zipapp, os.X_OK)


def test_without_gpu_and_framework_it_cannot_tell_and_says_what_to_do(zipapp: str) -> None:
    code, out, _ = run(sys.executable, "-E", "-S", zipapp, "--profile", "smoke", "--nonce", "-", stdin="abc\n")
    read = read_document(out, "abc")
    assert code == 3
    assert read.summary["verdict"] == "cannot-tell"
    assert read.environment["suite_digest"] == source_digest()
    if not read.environment["gpus"]:
        assert "--gpus all" in " ".join(read.summary["reasons"])
    assert read.environment["framework"] is not None or "no framework" in " ".join(read.summary["reasons"])


def test_out_is_written_whole_and_people_get_words(zipapp: str, tmp_path: Path) -> None:
    target = tmp_path / "evidence.jsonl"
    code, out, _ = run(sys.executable, zipapp, "--only", "host.clock", "--out", str(target), "--nonce", "n")
    assert code == 0
    assert out.startswith("PASSED: ")
    assert read_document(target.read_text(), "n").checks[0]["id"] == "host.clock"
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--profile", "trainig"], "did you mean 'training'"),
        (["--framework", "pytorch"], "did you mean 'torch'"),
        (["--only", "host.shmm"], "no check is called"),
        (["--out", "/nowhere/x.jsonl"], "no such folder"),
        (["--timeout-scale", "0"], "above 0"),
        (["--device", "tpu"], "invalid choice"),
    ],
)
def test_bad_usage(zipapp: str, argv: list[str], says: str) -> None:
    code, out, err = run(sys.executable, zipapp, *argv)
    assert code == 2
    assert says in err
    assert "Traceback" not in err
    assert out == ""


def test_list(zipapp: str) -> None:
    code, out, _ = run(sys.executable, zipapp, "--list", "--profile", "training")
    assert code == 0
    assert "required  train.epoch" in out


def test_the_suite_costs_little(zipapp: str) -> None:
    """Overhead of the suite itself (processes, facts, framing) over checks that do next to nothing."""
    code, out, _ = run(
        sys.executable,
        zipapp,
        "--profile",
        "full",
        "--device",
        "cpu",
        "--only",
        "host.sandbox",
        "--only",
        "host.limits",
        "--only",
        "card.*",
    )
    assert code in (0, 1, 3)
    assert read_document(out).summary["overhead_seconds"] < 2.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "docker stop"])
def test_an_interrupted_run_leaves_nothing(zipapp: str, tmp_path: Path, number: signal.Signals) -> None:
    """Neither processes of a check, nor its folders, nor half a document."""
    marker = f"4321{int(number)}"
    command = f"setsid sleep {marker} & sleep {marker}"
    process = subprocess.Popen(
        [sys.executable, zipapp, "--only", "host.sandbox", "--run", command, "--out", str(tmp_path / "out.jsonl")],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )

    def sleepers() -> list[str]:
        found = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if Path(path).read_bytes().split(b"\0")[:2] == [b"sleep", marker.encode()]:
                    found.append(path)
        return found

    deadline = time.monotonic() + 20
    while len(sleepers()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(sleepers()) == 2
    process.send_signal(number)
    assert process.wait(timeout=20) == 130
    assert sleepers() == []
    assert list(tmp_path.iterdir()) == []


# --- old Pythons ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, _ in source_files() if name.endswith(".py")])
def test_python38_syntax(name: str) -> None:
    content = dict(source_files())[name]
    ast.parse(content, name, feature_version=(3, 8))


def interpreters() -> list[str]:
    found = sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python")))
    minors = {int(p.split("/versions/3.")[1].split(".")[0]): p for p in found}
    return [minors[minor] for minor in sorted(minors) if minor >= 8]


@pytest.mark.skipif(not interpreters(), reason="no other Python is installed under ~/.pyenv")
@pytest.mark.parametrize("python", interpreters(), ids=lambda p: p.split("/versions/")[1].split("/")[0])
def test_runs_on(zipapp: str, python: str) -> None:
    code, out, err = run(python, zipapp, "--profile", "smoke", "--nonce", "n")
    assert "Traceback" not in err, err
    assert read_document(out, "n").summary["exit"] == code
    assert {c["status"] for c in read_document(out, "n").checks} <= {"pass", "skip"}, out


@pytest.mark.skipif(not interpreters(), reason="no other Python is installed under ~/.pyenv")
def test_every_module_imports_on_the_oldest(zipapp: str) -> None:
    names = [n[:-3].replace("/", ".") for n, _ in source_files() if n.startswith("gpuimg_suite/") and n.endswith(".py")]
    names = [n.replace(".__init__", "") for n in names if not n.endswith("__main__")]
    code = f"import sys; sys.path.insert(0, {zipapp!r}); [__import__(n) for n in {names!r}]"
    status, _, err = run(interpreters()[0], "-c", code)
    assert status == 0, err
