#!/usr/bin/env python3
"""Build times and transferred bytes: gpuimg against what a user would write, on this machine, in one go.

    python benchmarks/builds/run.py                     everything (about 45 min on 2 cores, 70 GB of free disk)
    python benchmarks/builds/run.py --steps ours,pip    only these; what the table lacks is said in it

Steps, each a scenario or several:
    ours      first image, next of the family, one small dependency more; a second builder with a cache of its own
    pip       the same three as ``RUN pip install torch==…`` in a Dockerfile, docker's defaults
    family    the twelve images of matrices/family12.yaml, with one cache
    uv        the first image as ``RUN uv pip install torch==…``, one layer
    buildkit  the first image from gpuimg's Dockerfile, all by BuildKit (``--layers buildkit``)

Everything begins cold: an own cache folder, an own registry namespace, and the engine's build cache is emptied first.
The base image is there before any clock starts, for both sides. After every step docs/benchmarks/{results.json,
table.md,builds.svg} are written anew, so a run that is stopped keeps what it measured.
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
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpuimg import __version__
from gpuimg.engine.bases import provide_base
from gpuimg.engine.build import ca_bundle
from gpuimg.engine.registry import Registry
from gpuimg.layers.lockfile import Platform, read_lock
from gpuimg.layers.pull_cost import pull_cost

ROOT = Path(__file__).parents[2]
OUT = ROOT / "docs" / "benchmarks"
REGISTRY = "127.0.0.1:5000"
FIRST, NEXT, SMALL = "2.6.0", "2.5.1", "tqdm==4.67.1"
SCENARIOS = {"first": (FIRST, ""), "next": (NEXT, ""), "small_change": (FIRST, SMALL)}
STEPS = ("ours", "pip", "family", "uv", "buildkit")
FREE_BYTES = 70 * 10**9
FAMILY = ROOT / "matrices" / "family12.yaml"
MATRIX = """schema: gpuimg/v1
defaults: {{os: debian12}}
images:
  - {{framework: torch, version: "{version}", cuda: "12.4", packages: [{packages}]}}
"""
PYTHON = """FROM {base}
RUN python3 -c 'import ensurepip' || (apt-get update && apt-get install -y python3 python3-venv ca-certificates)
RUN python3 -m venv /opt/venv
"""
SECRET = "RUN --mount=type=secret,id=ca,required=false if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca \\\n" \
    "    SSL_CERT_FILE=/run/secrets/ca; fi; "  # fmt: skip
PIP = PYTHON + SECRET + "/opt/venv/bin/pip install torch=={version} {packages}\n"
UV = PYTHON + SECRET + "/opt/venv/bin/pip install uv && \\\n" \
    "    /opt/venv/bin/uv pip install --python /opt/venv/bin/python torch=={version} {packages}\n"  # fmt: skip


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


def run(command: list[str], **options: Any) -> tuple[float, int, str]:
    """Seconds, MiB of memory at the peak and stdout of a command that must succeed."""
    started = time.monotonic()
    with Memory() as memory:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return round(time.monotonic() - started, 1), memory.peak_mib, done.stdout


def empty_build_cache() -> None:
    subprocess.run(["docker", "buildx", "prune", "--all", "--force"], capture_output=True, check=True)


def build(matrix: Path, namespace: str, folder: Path, cache: Path, *options: str) -> dict[str, Any]:
    """One ``gpuimg build``, as a user runs it, seconds from start to exit: resolving, fetching, pushing included."""
    out = Path(tempfile.mkdtemp(dir=folder))
    seconds, peak, stdout = run(
        [sys.executable, "-m", "gpuimg", "build", str(matrix), "--json", "-o", str(out), "--registry", f"{REGISTRY}/{namespace}",
         *options],
        cwd=folder,
        env={**os.environ, "GPUIMG_CACHE": str(cache), "UV_CACHE_DIR": str(cache / "uv")},
    )  # fmt: skip
    images = json.loads(stdout)["images"]
    failed = [row for row in images if "error" in row]
    if failed:
        raise SystemExit(f"not built: {failed}")
    return {"seconds": seconds, "peak_mib": peak, "images": images, "locks": str(out)}


def ours(scenario: str, namespace: str, folder: Path, cache: Path, *options: str) -> dict[str, Any]:
    version, packages = SCENARIOS[scenario]
    matrix = Path(tempfile.mkdtemp(dir=folder)) / "matrix.yaml"
    matrix.write_text(MATRIX.format(version=version, packages=packages))
    made = build(matrix, namespace, folder, cache, *options)
    (image,) = made["images"]
    return {"seconds": made["seconds"], "peak_mib": made["peak_mib"], "reference": image["reference"],
            "bytes": pull_cost(image["reference"]).total, **image.get("work", {})}  # fmt: skip


def by_hand(template: str, scenario: str, base: str, namespace: str, folder: Path) -> dict[str, Any]:
    """The Dockerfile a user writes, built without cache and pushed with docker's defaults."""
    version, packages = SCENARIOS[scenario]
    context = Path(tempfile.mkdtemp(dir=folder))
    (context / "Dockerfile").write_text(template.format(base=base, version=version, packages=packages))
    reference = f"{REGISTRY}/{namespace}/by-hand:{context.name}"
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
    seconds, peak, _ = run([*command, str(context)])
    empty_build_cache()  # three such builds leave 25 GB behind
    return {"seconds": seconds, "peak_mib": peak, "reference": reference, "bytes": pull_cost(reference).total}


def family(namespace: str, folder: Path, cache: Path) -> dict[str, Any]:
    """The twelve images; ``registry_bytes`` counts each blob once, ``wheel_bytes`` and ``base_bytes`` each wheel and base once."""
    made = build(FAMILY, namespace, folder, cache)
    blobs: dict[str, int] = {}
    foundations: dict[str, int] = {}
    for image in made["images"]:
        cost = pull_cost(image["reference"])
        blobs[f"config of {cost.digest}"] = cost.total - sum(layer.size for layer in cost.layers)
        blobs.update({layer.digest: layer.size for layer in cost.layers})
        foundations.update({layer.digest: layer.size for layer in cost.layers if "gpuimg layer" not in layer.title})
    debian12 = Platform("3.11", "2.36")
    wheels = {wheel.sha256: wheel for path in Path(made["locks"]).glob("*/pylock.toml")
              for wheel in read_lock(path.read_text(), debian12, file=str(path))}  # fmt: skip
    unknown = [wheel.filename for wheel in wheels.values() if not wheel.size]
    if unknown:
        raise SystemExit(
            f"the lock gives no size for {unknown[:3]}: the registry's bytes cannot be set against its wheels"
        )
    return {"seconds": made["seconds"], "peak_mib": made["peak_mib"], "images": len(made["images"]),
            "registry_bytes": sum(blobs.values()), "wheel_bytes": sum(wheel.size or 0 for wheel in wheels.values()),
            "base_bytes": sum(foundations.values()), "wheels": len(wheels), "layers": len(blobs) - len(made["images"]),
            "whole_bytes": sum(pull_cost(image["reference"]).total for image in made["images"])}  # fmt: skip


def layer_digests(reference: str) -> list[str]:
    return [layer.digest for layer in pull_cost(reference).layers if "gpuimg layer" in layer.title]


def machine() -> dict[str, Any]:
    model = next(
        (x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x), ""
    )

    def ask(*command: str) -> list[str]:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().splitlines()[:1]

    memory = int(Path("/proc/meminfo").read_text().split()[1]) // 2**20
    return {
        "cores": os.cpu_count(), "memory_gib": memory, "cpu": model, "python": platform.python_version(),
        "engine": ask("docker", "version", "--format", "{{.Server.Version}}"), "buildx": ask("docker", "buildx", "version"),
        "gpuimg": __version__, "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }  # fmt: skip


def measure(steps: Sequence[str], results: dict[str, Any]) -> Iterator[str]:
    """Fill ``results`` step by step; yields the name of what was just measured."""
    namespace = f"bench-{int(time.time())}"
    with tempfile.TemporaryDirectory(prefix="gpuimg-bench-") as place:
        folder = Path(place)
        cache = folder / "cache"
        base = provide_base(
            "debian:12-slim", "debian12", Registry(REGISTRY).repository(f"{namespace}/base"), cache=cache
        )
        if "ours" in steps:
            for name in SCENARIOS:
                results["ours"][name] = ours(name, namespace, folder, cache)
                yield f"ours, {name}"
            one, two = (results["ours"][n]["reference"] for n in ("first", "next"))
            results["ours"]["next_pull_bytes"] = pull_cost(two, [one]).fetch
            again = ours("first", f"{namespace}-other", folder, folder / "cache2")
            if layer_digests(again["reference"]) != layer_digests(one):
                raise SystemExit("two builders made different layers of the same wheels")
            results["two_builders_agree"] = True
            shutil.rmtree(folder / "cache2")
            yield "ours, a second builder"
        if "pip" in steps:
            for name in SCENARIOS:
                results["pip"][name] = by_hand(PIP, name, base.reference, namespace, folder)
                if name == "next":
                    one, two = (results["pip"][n]["reference"] for n in ("first", "next"))
                    results["pip"]["next_pull_bytes"] = pull_cost(two, [one]).fetch
                yield f"pip, {name}"
        if "family" in steps:
            shutil.rmtree(cache)
            results["family"] = family(f"{namespace}-family", folder, cache)
            yield "family of twelve"
        if "uv" in steps:
            results["uv"]["first"] = by_hand(UV, "first", base.reference, namespace, folder)
            yield "uv, first"
        if "buildkit" in steps:
            results["buildkit"]["first"] = ours("first", f"{namespace}-buildkit", folder, cache, "--layers", "buildkit")
            yield "buildkit, first"


def summarise(results: dict[str, Any]) -> None:
    """The ratios of what was measured: each ours against the same scenario by hand."""
    for name in SCENARIOS:
        mine, theirs = results["ours"].get(name), results["pip"].get(name)
        results[f"{name}_speedup"] = round(theirs["seconds"] / mine["seconds"], 1) if mine and theirs else None
        buildkit = results["buildkit"].get(name)
        if buildkit and theirs:
            results[f"{name}_speedup_buildkit"] = round(theirs["seconds"] / buildkit["seconds"], 1)
    mine, theirs = results["ours"].get("next_pull_bytes"), results["pip"].get("next_pull_bytes")
    results["pull_ratio"] = round(mine / theirs, 3) if mine and theirs else None
    twelve = results.get("family")
    results["registry_ratio"] = (
        round(twelve["registry_bytes"] / (twelve["wheel_bytes"] + twelve["base_bytes"]), 3) if twelve else None
    )


def write(results: dict[str, Any], out: Path) -> None:
    """results.json, table.md and builds.svg, each whole or not at all."""
    columns = {"pip": "`pip install` by hand", "uv": "`uv pip install` by hand", "buildkit": "gpuimg, BuildKit alone",
               "ours": "gpuimg"}  # fmt: skip
    titles = {
        "first": "first image, until pushed",
        "next": "next of the family",
        "small_change": "one small dependency more",
    }
    lines = ["| | " + " | ".join(columns.values()) + " | pip / gpuimg |", "| --- |" + " ---: |" * (len(columns) + 1)]
    bars = []
    for name, title in titles.items():
        found = {column: results[column].get(name) for column in columns}
        cells = [f"{row['seconds']} s" if row else "" for row in found.values()]
        ratio = results[f"{name}_speedup"]
        lines.append(f"| {title} | {' | '.join(cells)} | {f'{ratio}×' if ratio else ''} |")
        bars.append((title, [(columns[c].replace("`", ""), row["seconds"]) for c, row in found.items() if row]))
    for label, field, unit in (
        ("peak memory, first", "peak_mib", "MiB"),
        ("size in the registry, first", "bytes", "MB"),
    ):
        rows = [results[column].get("first") for column in columns]
        cells = [f"{row[field] / (10**6 if unit == 'MB' else 1):.0f} {unit}" if row else "" for row in rows]
        lines.append(f"| {label} | {' | '.join(cells)} | |")
    pulls = [results[c].get("next_pull_bytes") for c in columns]
    lines.append(f"| to pull for the next image | {' | '.join(f'{p / 1e6:.0f} MB' if p else '' for p in pulls)} "
                 f"| {results['pull_ratio'] or ''} |")  # fmt: skip
    twelve = results.get("family")
    if twelve:
        lines += ["", f"The {twelve['images']} images of matrices/family12.yaml: {twelve['seconds']} s with one cold cache, peak memory "
                  f"{twelve['peak_mib']} MiB, {twelve['layers']} distinct layers of {twelve['wheels']} wheels; "
                  f"{twelve['registry_bytes'] / 1e9:.2f} GB in the registry, {results['registry_ratio']} of their wheels and bases "
                  f"({(twelve['wheel_bytes'] + twelve['base_bytes']) / 1e9:.2f} GB); counted one by one the images hold "
                  f"{twelve['whole_bytes'] / 1e9:.2f} GB."]  # fmt: skip
    facts = results["machine"]
    lines += ["", f"torch {FIRST} and {NEXT}, CUDA 12.4 builds from PyPI, base debian12, everything cold; {facts['cores']} cores "
              f"({facts['cpu']}), {facts['memory_gib']} GiB; engine {' '.join(facts['engine'])}; {facts['date'][:10]}. "
              "An empty field was not measured. Made by `make bench`."]  # fmt: skip
    for name, text in (
        ("results.json", json.dumps(results, indent=1) + "\n"), ("table.md", "\n".join(lines) + "\n"), ("builds.svg", chart(bars)),
    ):  # fmt: skip
        draft = out / f".{name}"
        draft.write_text(text)
        draft.replace(out / name)


def chart(bars: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> str:
    """Horizontal bars, seconds."""
    longest = max((seconds for _, rows in bars for _, seconds in rows), default=1)
    drawn = []
    y = 24
    for title, rows in bars:
        drawn.append(f'<text x="8" y="{y}" font-weight="bold">{title}</text>')
        for label, seconds in rows:
            y += 20
            width = max(2, 420 * seconds / longest)
            colour = "#3a7" if label == "gpuimg" else "#bbb"
            drawn.append(f'<rect x="170" y="{y - 12}" width="{width:.0f}" height="14" fill="{colour}"/>')
            drawn.append(f'<text x="8" y="{y}">{label}</text><text x="{176 + width:.0f}" y="{y}">{seconds} s</text>')
        y += 28
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="680" height="{y}" font-family="sans-serif" font-size="12">'
            f'<rect width="100%" height="100%" fill="white"/>{"".join(drawn)}</svg>\n')  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", default=",".join(STEPS), help=f"some of {','.join(STEPS)}")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    steps = options.steps.split(",")
    unknown = sorted(set(steps) - set(STEPS))
    if unknown:
        parser.error(f"unknown step {unknown[0]!r}; allowed: {', '.join(STEPS)}")
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if steps == list(STEPS) and free < FREE_BYTES:
        parser.error(
            f"{free / 1e9:.0f} GB free in {tempfile.gettempdir()}; all steps together need {FREE_BYTES / 1e9:.0f}"
        )
    empty_build_cache()
    results: dict[str, Any] = {"machine": machine(), "ours": {}, "pip": {}, "uv": {}, "buildkit": {}}
    started = time.monotonic()
    for done in measure(steps, results):
        summarise(results)
        options.out.mkdir(parents=True, exist_ok=True)
        write(results, options.out)
        print(f"{time.monotonic() - started:6.0f} s: {done} done", file=sys.stderr, flush=True)
    keys = ("first_speedup", "next_speedup", "small_change_speedup", "pull_ratio", "registry_ratio")
    print(json.dumps({key: results[key] for key in keys}))


if __name__ == "__main__":
    main()
