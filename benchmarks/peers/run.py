"""Side by side with what people use now: the same inputs to gpuimg and its peers, and tables compared.

    python benchmarks/peers/run.py tests/cases [--work DIR] [--gpuimg CMD] [--json FILE]

Each peer gets its own virtual environment and only the inputs it can take: env-doctor reads Dockerfiles and compose
files (its exit status is the answer), light-the-torch chooses a CUDA build of torch for a driver (no card, no Python).
An answer is right, a wrong pass (the truth is that it breaks) or a wrong alarm (the truth is that it works).
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
import yaml
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from gpuimg.knowledge import load

HERE = Path(__file__).parent
PEERS = {"env-doctor": "env-doctor==0.3.5", "light-the-torch": "light-the-torch==0.8.1"}
FIT = {"fits", "fits-with-compat", "fits-via-ptx"}


@dataclass(frozen=True)
class Case:
    """One run of one case, with the truth: breaks, works, or either may be said."""

    id: str
    argv: tuple[str, ...]
    truth: str
    """'breaks', 'works' or 'open'."""


def cases(folder: Path) -> Iterator[Case]:
    """Runs of ``folder/specs`` that ask fit, resolve or lint."""
    for path in sorted((folder / "specs").glob("*.json")):
        spec = json.loads(path.read_text(encoding="utf-8"))
        for run in spec["runs"]:
            if run["argv"][0] not in ("fit", "lint"):
                continue
            expect = run["expect"]
            verdicts = set(expect.get("verdict", ()))
            exits = set(expect.get("exit", ()))
            truth = "open"
            if verdicts == {"does-not-fit"} or (not verdicts and exits == {1}):
                truth = "breaks"
            elif (verdicts and verdicts <= FIT) or (not verdicts and exits == {0}):
                truth = "works"
            yield Case(spec["id"], tuple(run["argv"]), truth)


def judge(truth: str, says_broken: bool | None) -> str:
    """'right', 'wrong pass', 'wrong alarm', 'no answer' or 'open'."""
    if truth == "open":
        return "open"
    if says_broken is None:
        return "no answer"
    if says_broken == (truth == "breaks"):
        return "right"
    return "wrong alarm" if says_broken else "wrong pass"


# --- the tools ----------------------------------------------------------------------------------------------------


def environment(work: Path, name: str) -> Path:
    """bin folder of the peer's own virtual environment, made and filled when missing."""
    home = work / name
    if not (home / "bin" / "pip").exists():
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin" / "pip", "install", "--quiet", PEERS[name]], check=True)
    return home / "bin"


def ask_env_doctor(bin_folder: Path, inputs: Path, case: Case) -> bool | None:
    """Its verdict on the Dockerfile or compose file of the run; None when the run has none."""
    for word in case.argv[1:]:
        path = inputs / word
        if not path.is_file():
            continue
        command = "dockerfile" if "Dockerfile" in word else "docker-compose" if "compose" in word else None
        if command is None:
            continue
        done = subprocess.run(
            [bin_folder / "env-doctor", command, str(path)], capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode != 0 if done.returncode in (0, 1) else None
    return None


def option(case: Case, name: str) -> str | None:
    """The value of ``--name`` in the run."""
    found = [case.argv[i + 1] for i, w in enumerate(case.argv[:-1]) if w == name]
    return found[0] if found else None


def ask_light_the_torch(bin_folder: Path, inputs: Path, case: Case) -> bool | None:
    """Whether its choice of CUDA builds for the driver holds the build that is asked for.

    None without a torch requirement and a driver.
    """
    driver = option(case, "--driver")
    if driver is None:
        return None
    wanted = None
    for word in case.argv[1:]:
        try:
            requirement = Requirement(word)
        except InvalidRequirement:
            continue
        if requirement.name == "torch":
            wanted = requirement
    if wanted is None:
        return None
    script = (
        "import sys\nfrom light_the_torch import _cb\n"
        "_cb._detect_nvidia_driver_version = lambda: _cb.Version(sys.argv[1])\n"
        "print(' '.join(str(b) for b in _cb._detect_compatible_cuda_backends()))\n"
    )
    done = subprocess.run([bin_folder / "python", "-c", script, driver], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    allowed = set(done.stdout.split())
    versions = [v for v in load().versions("torch") if wanted.specifier.contains(v)] or [
        v for v in load().versions("torch") if any(Version(s.version).public == v for s in wanted.specifier)
    ]
    local = next((Version(s.version).local for s in wanted.specifier if "+" in s.version), None)
    labels = {local} if local else {b.local for v in versions for b in load().builds("torch", v) if b.device == "cuda"}
    return not (labels & allowed)


def ask_gpuimg(command: list[str], inputs: Path, case: Case) -> bool | None:
    """gpuimg's exit status: 0 works, 1 breaks, anything else no answer."""
    done = subprocess.run(
        [*command, *case.argv, "--json"], cwd=inputs, capture_output=True, text=True, timeout=60, check=False
    )
    return {0: False, 1: True}.get(done.returncode)


# --- tables -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Disagreement:
    """Where another tool's table and ours differ."""

    tool: str
    about: str
    theirs: str
    ours: str
    right: str
    why: str


def _row(name: str, version: str) -> Any:
    rows = [b for b in load().builds(name, version, machine="x86_64") if b.index == "pypi" and b.extra is None]
    return rows[0] if rows else None


def compare_cog(table: dict[str, Any]) -> Iterator[Disagreement]:
    """cog's TensorFlow and torch tables against ours."""
    base = load()
    minors = {t.base_cuda for t in base.base_tags if t.flavour.startswith("cudnn") and not t.deleted}
    cudnn_of = {t.base_cuda: t.cudnn for t in base.base_tags if t.flavour == "cudnn-devel" and not t.deleted}
    for version, said in table["tensorflow"].items():
        row = _row("tensorflow", version)
        about = f"tensorflow {version}"
        if row.wheel_cuda != said["cuda"]:
            yield Disagreement(
                "cog", f"{about} wheel_cuda", said["cuda"], str(row.wheel_cuda), "gpuimg", "build_info.py"
            )
        pythons = said["pythons"].split()
        if set(pythons) != set(row.pythons or ()):
            ours = " ".join(row.pythons or ())
            yield Disagreement("cog", f"{about} Python", said["pythons"], ours, "gpuimg", "file names on the index")
        if said["cuda"] not in minors:
            yield Disagreement(
                "cog", f"{about} base image", f"CUDA {said['cuda']} with cuDNN {said['cudnn']}", "no such image kept",
                "gpuimg", "NVIDIA has no cuDNN image of that CUDA any more; the wheel with [and-cuda] needs none",
            )  # fmt: skip
        elif not str(cudnn_of.get(said["cuda"], "")).startswith(said["cudnn"].split(".")[0]):
            have = cudnn_of.get(said["cuda"])
            yield Disagreement(
                "cog", f"{about} base image", f"CUDA {said['cuda']} with cuDNN {said['cudnn']}",
                f"the kept image has cuDNN {have}", "gpuimg", "the list of tags NVIDIA publishes",
            )  # fmt: skip
    for version, said in table["torch"].items():
        builds = base.builds("torch", version, machine="x86_64")
        about = f"torch {version}"
        for cuda in said["cuda"].split():
            if not any(b.wheel_cuda == cuda for b in builds):
                yield Disagreement("cog", f"{about} +cu", cuda, "no such build", "open", "neither side measured")
        missing = sorted({b.wheel_cuda for b in builds if b.wheel_cuda} - set(said["cuda"].split()), key=Version)
        if missing:
            yield Disagreement(
                "cog",
                f"{about} builds",
                said["cuda"],
                f"also {' '.join(missing)}",
                "gpuimg",
                "published on PyTorch's index",
            )
        row = _row("torch", version)
        if set(said["pythons"].split()) != set(row.pythons or ()):
            ours = " ".join(row.pythons or ())
            yield Disagreement("cog", f"{about} Python", said["pythons"], ours, "gpuimg", "file names on the index")
        pairs = [b.version for b in base.builds("torchvision") if f"torch=={version}" in b.requires]
        if said["torchvision"] not in pairs:
            theirs, ours = said["torchvision"], " ".join(dict.fromkeys(pairs))
            yield Disagreement("cog", f"{about} torchvision", theirs, ours, "gpuimg", "Requires-Dist of torchvision")


def compare_env_doctor(bin_folder: Path) -> Iterator[Disagreement]:
    """env-doctor's driver table and recommended commands against ours."""
    base = load()
    found = sorted((bin_folder.parent / "lib").glob("python3*/site-packages/env_doctor/data/compatibility.json"))
    table = json.loads(found[0].read_text(encoding="utf-8"))
    for branch, cuda in table["driver_to_cuda"].items():
        ours = base.driver_cuda(f"{branch}.999.99")
        if ours != cuda:
            yield Disagreement(
                "env-doctor",
                f"driver {branch}",
                cuda,
                str(ours),
                "gpuimg",
                "table of drivers in NVIDIA's release notes",
            )
    for cuda, said in table["recommendations"].items():
        command = str(said.get("torch", ""))
        label = re.search(r"/whl/(cu\d+)", command)
        pin = re.search(r"\btorch==([\d.]+)", command)
        if label and pin and not any(b.local == label[1] for b in base.builds("torch", pin[1])):
            labels = sorted({b.local for b in base.builds("torch", pin[1], machine="x86_64") if b.local})
            yield Disagreement(
                "env-doctor", f"recommended for CUDA {cuda}", f"torch=={pin[1]} from {label[1]}", " ".join(labels),
                "gpuimg", "PyTorch never published that pair",
            )  # fmt: skip
        if label and pin:
            vision = re.search(r"torchvision==([\d.]+)", command)
            wanted = f"torch=={pin[1]}"
            if vision and not any(wanted in b.requires for b in base.builds("torchvision", vision[1])):
                yield Disagreement(
                    "env-doctor", f"recommended for CUDA {cuda}", f"torchvision=={vision[1]} with {wanted}",
                    "another torch", "gpuimg", "Requires-Dist of torchvision",
                )  # fmt: skip


def compare_light_the_torch(bin_folder: Path) -> Iterator[Disagreement]:
    """light-the-torch's minimum drivers against ours."""
    script = (
        "import json\nfrom light_the_torch import _cb\n"
        "print(json.dumps({str(k): str(v) for k, v in _cb._MINIMUM_DRIVER_VERSIONS['Linux'].items()}))"
    )
    done = subprocess.run([bin_folder / "python", "-c", script], capture_output=True, text=True, check=True)
    base = load()
    for cuda, driver in json.loads(done.stdout).items():
        floor = base.minor_compat.get(int(cuda.split(".")[0])) or base.first_driver(cuda)
        if Version(driver) in {Version(d) for d in (floor, base.first_driver(cuda)) if d}:
            continue
        if Version(cuda) >= Version("11"):
            why = "theirs is the first driver of that very toolkit, ours the floor of the whole 11.x family"
        else:
            why = "theirs is the driver of the last patch, ours of the first: the older one runs both"
        yield Disagreement("light-the-torch", f"CUDA {cuda}", driver, str(floor), "both", why)


# --- the page -----------------------------------------------------------------------------------------------------


def main() -> int:
    """Print the comparison; 0 whatever it says, so that a script can set its own bar on the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    own = Path(platformdirs.user_cache_dir("gpuimg")) / "peers"
    parser.add_argument("--work", type=Path, default=own, help="where the peers' environments live")
    parser.add_argument("--gpuimg", default=f"{sys.executable} -m gpuimg", help="command to run gpuimg")
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    options = parser.parse_args()
    inputs = options.cases / "inputs"
    bins = {name: environment(options.work, name) for name in PEERS}
    gpuimg = shlex.split(options.gpuimg)
    if shutil.which(gpuimg[0]) is None:
        parser.error(f"--gpuimg: {gpuimg[0]} is not a command")

    results: list[dict[str, str]] = []
    for case in cases(options.cases):
        answers = {
            "env-doctor": ask_env_doctor(bins["env-doctor"], inputs, case),
            "light-the-torch": ask_light_the_torch(bins["light-the-torch"], inputs, case),
        }
        if all(a is None for a in answers.values()):
            continue
        row = {"case": case.id, "argv": " ".join(case.argv), "truth": case.truth}
        for name, answer in answers.items():
            if answer is not None:
                row[name] = judge(case.truth, answer)
        row["gpuimg"] = judge(case.truth, ask_gpuimg(gpuimg, inputs, case))
        results.append(row)

    print("same inputs, where the other tool can take them:")
    summary: dict[str, dict[str, int]] = {}
    for peer in PEERS:
        shared = [r for r in results if peer in r and r["truth"] != "open"]
        for tool in (peer, "gpuimg"):
            counted = Counter(r[tool] for r in shared)
            summary[f"{tool} on {peer}'s inputs"] = dict(counted)
            print(
                f"  {tool:16} on {len(shared):3} inputs of {peer}: {counted['right']} right, "
                f"{counted['wrong pass']} wrong pass, {counted['wrong alarm']} wrong alarm, "
                f"{counted['no answer']} no answer"
            )
    for row in results:
        wrong = [f"{t}: {row[t]}" for t in (*PEERS, "gpuimg") if row.get(t, "right") not in ("right", "open")]
        if wrong:
            print(f"    {row['case']} ({row['truth']}): {'; '.join(wrong)}")

    table = yaml.safe_load((HERE / "cog.yaml").read_text(encoding="utf-8"))
    disagreements = [
        *compare_cog(table),
        *compare_env_doctor(bins["env-doctor"]),
        *compare_light_the_torch(bins["light-the-torch"]),
    ]
    print(f"tables: {len(disagreements)} disagreements (theirs | ours | who is right, why)")
    for item in disagreements:
        print(f"  {item.tool} {item.about}: {item.theirs} | {item.ours} | {item.right}: {item.why}")
    if options.json:
        document = {
            "results": results,
            "summary": summary,
            "disagreements": [vars(d) for d in disagreements],
            "data": load().date,
        }
        options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
