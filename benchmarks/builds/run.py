#!/usr/bin/env python3
"""Build times and transferred bytes: gpuimg against what a user would write, on this machine, in one go.

    python benchmarks/builds/run.py                       first, next and small change; ours and naive (~25 min on 2 cores)
    python benchmarks/builds/run.py --naive first         the naive build once (~10 min); the others are then set
                                                          against it, and results.json says so
    python benchmarks/builds/run.py --naive none          ours only (2 min)

Naive is a Dockerfile of the same base with ``RUN pip install torch==…``, built and pushed with docker's defaults.
Ours begins with an empty cache and an empty registry namespace. Writes docs/benchmarks/{results.json,table.md,builds.svg}.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpuimg import __version__
from gpuimg.engine.bases import provide_base
from gpuimg.engine.build import ca_bundle
from gpuimg.engine.registry import Registry
from gpuimg.layers.pull_cost import pull_cost

ROOT = Path(__file__).parents[2]
OUT = ROOT / "docs" / "benchmarks"
REGISTRY = "127.0.0.1:5000"
FIRST, NEXT, SMALL = "2.6.0", "2.5.1", "tqdm==4.67.1"
MATRIX = """schema: gpuimg/v1
defaults: {{os: debian12}}
images:
  - {{framework: torch, version: "{version}", cuda: "12.4", packages: [{packages}]}}
"""
NAIVE = """FROM {base}
RUN python3 -m venv /opt/venv
RUN --mount=type=secret,id=ca,required=false PIP_CERT=$(test -f /run/secrets/ca && echo /run/secrets/ca) \\
    /opt/venv/bin/pip install torch=={version} {packages}
"""


class Memory:
    """Largest drop of available memory while it runs, in MiB."""

    def __enter__(self) -> Memory:
        self.start = self.low = self._now()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def peak_mib(self) -> int:
        return max(0, self.start - self.low)

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            self.low = min(self.low, self._now())

    @staticmethod
    def _now() -> int:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) // 1024
        return 0


def ours(version: str, packages: str, namespace: str, cache: Path, folder: Path) -> dict[str, Any]:
    """One ``gpuimg build``, as a user runs it, seconds from start to exit."""
    matrix = folder / "m.yaml"
    matrix.write_text(MATRIX.format(version=version, packages=packages))
    command = [sys.executable, "-m", "gpuimg", "build", str(matrix), "--json", "-o", str(folder / f"out-{version}-{bool(packages)}"),
               "--registry", f"{REGISTRY}/{namespace}"]  # fmt: skip
    started = time.monotonic()
    with Memory() as memory:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "GPUIMG_CACHE": str(cache)},
            capture_output=True,
            text=True,
            check=False,
        )
    seconds = time.monotonic() - started
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    (image,) = json.loads(done.stdout)["images"]
    return {"seconds": round(seconds, 1), "peak_mib": memory.peak_mib, "reference": image["reference"], **image["work"]}


def naive(version: str, packages: str, base: str, namespace: str, folder: Path) -> dict[str, Any]:
    """The Dockerfile a user writes, built without cache and pushed with docker's defaults."""
    context = folder / f"naive-{version}-{bool(packages)}"
    context.mkdir(parents=True)
    (context / "Dockerfile").write_text(NAIVE.format(base=base, version=version, packages=packages))
    reference = f"{REGISTRY}/{namespace}/naive:{version}{'-small' if packages else ''}"
    bundle = ca_bundle()
    command = [
        "docker",
        "buildx",
        "build",
        "--no-cache",
        "--network",
        "host",
        "--provenance=false",
        "--push",
        "-t",
        reference,
    ]
    command += ["--secret", f"id=ca,src={bundle}"] if bundle else []
    started = time.monotonic()
    with Memory() as memory:
        done = subprocess.run([*command, str(context)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return {"seconds": round(time.monotonic() - started, 1), "peak_mib": memory.peak_mib, "reference": reference}


def layer_digests(reference: str) -> list[str]:
    return [layer.digest for layer in pull_cost(reference).layers if "gpuimg layer" in layer.title]


def machine() -> dict[str, Any]:
    model = next(
        (x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x), ""
    )
    ask = lambda *c: subprocess.run(c, capture_output=True, text=True, check=False).stdout.strip().splitlines()[:1]  # noqa: E731
    memory = int(Path("/proc/meminfo").read_text().split()[1]) // 2**20
    return {
        "cores": os.cpu_count(), "memory_gib": memory, "cpu": model, "python": platform.python_version(),
        "engine": ask("docker", "version", "--format", "{{.Server.Version}}"), "buildx": ask("docker", "buildx", "version"),
        "gpuimg": __version__, "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }  # fmt: skip


def measure(which_naive: str) -> dict[str, Any]:
    namespace = f"bench-{int(time.time())}"
    results: dict[str, Any] = {"machine": machine(), "notes": [], "naive": {}, "ours": {}}
    with tempfile.TemporaryDirectory(prefix="gpuimg-bench-") as place:
        folder = Path(place)
        base = provide_base(
            "debian:12-slim", "debian12", Registry(REGISTRY).repository(f"{namespace}/base"), cache=folder / "cache"
        )
        scenarios = {"first": (FIRST, ""), "next": (NEXT, ""), "small_change": (FIRST, SMALL)}
        for name, (version, packages) in scenarios.items():
            results["ours"][name] = ours(version, packages, namespace, folder / "cache", folder)
            print(f"ours {name}: {results['ours'][name]['seconds']} s", file=sys.stderr)
        other = folder / "other"
        other.mkdir()
        again = ours(FIRST, "", f"{namespace}-other", folder / "cache2", other) if which_naive != "none" else None
        if again is not None:
            same = layer_digests(again["reference"]) == layer_digests(results["ours"]["first"]["reference"])
            assert same, "two builders made different layers of the same wheels"
            results["two_builders_agree"] = True
        shutil.rmtree(folder / "cache2", ignore_errors=True)
        for name, (version, packages) in scenarios.items():
            if which_naive == "all" or which_naive == name:
                results["naive"][name] = naive(version, packages, base.reference, namespace, folder)
                print(f"naive {name}: {results['naive'][name]['seconds']} s", file=sys.stderr)
    summarise(results)
    return results


def summarise(results: dict[str, Any]) -> None:
    """The ratios, each against the same scenario where it was measured, else against the naive first build."""
    first = results["naive"].get("first")
    for name, key in (("first", "first_speedup"), ("next", "next_speedup"), ("small_change", "small_change_speedup")):
        against = results["naive"].get(name) or first
        if against is None:
            results[key] = None
            continue
        results[key] = round(against["seconds"] / results["ours"][name]["seconds"], 1)
        if name not in results["naive"]:
            results["notes"].append(f"{key}: the naive build of this scenario was not run; set against the naive first build, "
                                    "which runs the same steps")  # fmt: skip
    one, two = (results["ours"][n]["reference"] for n in ("first", "next"))
    cost = pull_cost(two, [one])
    results["ours"]["next_pull_bytes"] = cost.fetch
    if first is not None:
        whole = pull_cost(first["reference"])
        shared = results["naive"].get("next")
        naive_fetch = pull_cost(shared["reference"], [first["reference"]]).fetch if shared else whole.fetch
        results["naive"]["next_pull_bytes"] = naive_fetch
        results["pull_ratio"] = round(cost.fetch / naive_fetch, 3)
        if not shared:
            results["notes"].append("pull_ratio: against all bytes of the naive first image")
    blobs = {layer.digest: layer.size for ref in (one, two) for layer in pull_cost(ref).layers}
    wheels = results["ours"]["first"]["fetched"] + results["ours"]["next"]["fetched"]
    results["registry_ratio"] = round(sum(blobs.values()) / wheels, 3)
    results["notes"].append(
        "registry_ratio: unique layer bytes of first and next over the compressed size of their wheels; the 12-image matrix was not run"
    )


def write(results: dict[str, Any]) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    names = {
        "first": "first image, until pushed",
        "next": "next of the family",
        "small_change": "one small dependency more",
    }
    lines = ["| | what a user writes | gpuimg | |", "| --- | --- | --- | --- |"]
    bars = []
    for name, title in names.items():
        slow, fast = results["naive"].get(name), results["ours"][name]
        key = {"first": "first_speedup", "next": "next_speedup", "small_change": "small_change_speedup"}[name]
        ratio = f"{results[key]}×" if results[key] else ""
        lines.append(
            f"| {title} | {str(slow['seconds']) + ' s' if slow else 'not run'} | {fast['seconds']} s | {ratio} |"
        )
        bars.append((title, slow["seconds"] if slow else None, fast["seconds"]))
    if "pull_ratio" in results:
        lines.append(f"| bytes to pull for the next image | {results['naive']['next_pull_bytes'] / 1e6:.0f} MB "
                     f"| {results['ours']['next_pull_bytes'] / 1e6:.0f} MB | {results['pull_ratio']} |")  # fmt: skip
    facts = results["machine"]
    lines += [
        "",
        f"torch {FIRST} and {NEXT}, CUDA 12.4 builds from PyPI; {facts['cores']} cores, {facts['cpu']}; {facts['date']}.",
        "",
    ]
    lines += [f"- {note}" for note in results["notes"]]
    (OUT / "table.md").write_text("\n".join(lines) + "\n")
    (OUT / "builds.svg").write_text(chart(bars))


def chart(bars: list[tuple[str, float | None, float]]) -> str:
    """Horizontal bars, seconds."""
    longest = max(max(slow or 0, fast) for _, slow, fast in bars)
    rows = []
    y = 24
    for title, slow, fast in bars:
        rows.append(f'<text x="8" y="{y}" font-weight="bold">{title}</text>')
        for label, value, colour in (("by hand", slow, "#bbb"), ("gpuimg", fast, "#3a7")):
            y += 20
            if value is None:
                rows.append(f'<text x="8" y="{y}" fill="#888">{label}: not run</text>')
                continue
            width = max(2, 480 * value / longest)
            rows.append(f'<rect x="80" y="{y - 12}" width="{width:.0f}" height="14" fill="{colour}"/>')
            rows.append(f'<text x="8" y="{y}">{label}</text><text x="{86 + width:.0f}" y="{y}">{value} s</text>')
        y += 28
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="660" height="{y}" font-family="sans-serif" font-size="12">'
            f'<rect width="100%" height="100%" fill="white"/>{"".join(rows)}</svg>\n')  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--naive", choices=["all", "first", "none"], default="all", help="which scenarios to build by hand too"
    )
    results = measure(parser.parse_args().naive)
    if results["naive"]:
        write(results)
    print(
        json.dumps(
            {
                k: results.get(k)
                for k in ("first_speedup", "next_speedup", "small_change_speedup", "pull_ratio", "registry_ratio")
            }
        )
    )


if __name__ == "__main__":
    main()
