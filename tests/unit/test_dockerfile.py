"""Rendered Dockerfiles: committed ones are what the matrices give; each follows the practice we promise."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from gpuimg.dockerfile import bake_file, render_cell
from gpuimg.layers.lockfile import read_lock
from gpuimg.layers.produce import layers_of
from gpuimg.matrix.schema import json_schema
from gpuimg.nouns import Plan
from gpuimg.pipeline import Settings, lock_is_current, platform_of, read_job

ROOT = Path(__file__).parents[2]
MATRICES = sorted((ROOT / "matrices").glob("*.yaml"))
DOCKERFILES = ROOT / "dockerfiles"


def plans(matrix: Path) -> list[Plan]:
    return list(read_job(Settings(matrix)).plans)


@pytest.mark.parametrize("matrix", MATRICES, ids=lambda p: p.stem)
def test_committed_files_are_current(matrix: Path) -> None:
    settings = Settings(matrix, out=DOCKERFILES)
    pairs = []
    for plan in plans(matrix):
        assert lock_is_current(plan, settings), f"stale: run  gpuimg lock {matrix.name}; make render"
        lock = (DOCKERFILES / plan.cell.id / "pylock.toml").read_text(encoding="utf-8")
        rendered = render_cell(plan, layers_of(read_lock(lock, platform_of(plan))))
        for name, text in rendered.files.items():
            place = DOCKERFILES / plan.cell.id / name
            assert place.is_file(), f"{place} is missing: run  make render"
            assert place.read_text(encoding="utf-8") == text, f"{place} is stale: run  make render"
        pairs.append((plan, rendered))
    assert (DOCKERFILES / f"{matrix.stem}.docker-bake.json").read_text() == bake_file(pairs)


def test_nothing_is_committed_that_no_matrix_asks_for() -> None:
    wanted = {plan.cell.id for matrix in MATRICES for plan in plans(matrix)}
    tracked = subprocess.run(["git", "ls-files", "*/Dockerfile"], cwd=DOCKERFILES, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("no git checkout: what is committed cannot be told from what was made here")
    assert {Path(name).parent.name for name in tracked.stdout.split()} == wanted


def test_the_schema_is_current() -> None:
    committed = json.loads((ROOT / "matrices" / "schema.json").read_text())
    assert committed == json_schema(), "run  gpuimg plan --schema > matrices/schema.json"


@pytest.mark.parametrize("place", sorted(DOCKERFILES.glob("*/Dockerfile")), ids=lambda p: p.parent.name)
def test_good_practice(place: Path) -> None:
    text = place.read_text(encoding="utf-8")
    assert re.search(r"^USER \d+:\d+$", text, re.MULTILINE), "a fixed user that is not root"
    assert re.search(r'^ENTRYPOINT \["', text, re.MULTILINE), "exec form"
    assert "LD_LIBRARY_PATH" not in text, "wheels find their own libraries"
    assert ":latest" not in text
    assert text.count("--require-hashes") == text.count("uv pip install")
    assert "/run/secrets/ca" in text
    assert "COPY --from" not in text.replace("COPY --link --from", ""), "links keep layers independent of their base"
    assert "ENV" in text
    if "wheel_cuda" in text.splitlines()[0]:
        assert "NVIDIA_VISIBLE_DEVICES" in text
        assert "cudnn" not in text.split("FROM", 1)[0] or "nvidia/cuda" in text
    for pins in place.parent.glob("layers/*.txt"):
        assert all(re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in pins.read_text().splitlines())
