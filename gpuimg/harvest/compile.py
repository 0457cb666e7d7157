"""Hand-collected tables (``data/hand/*.yaml``) → the JSON the package loads. Pure apart from reading and writing files.

YAML is for people: comments, families of releases, named lists. JSON is for the program: it loads ten times faster.
A test compiles again and compares, so the two cannot drift apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from gpuimg.knowledge.base import DATA

HAND = DATA / "hand"
Row = dict[str, Any]


def read_hand(folder: Path = HAND) -> dict[str, Row]:
    """File stem → parsed YAML of every hand table."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {p.stem: yaml.load(p.read_text(encoding="utf-8"), Loader=loader) for p in sorted(folder.glob("*.yaml"))}


def _clean(row: Row) -> Row:
    """Without the values a Build has anyway."""
    keep = {"bundles_cuda", "device"}
    return {k: v for k, v in row.items() if k in keep or v not in (None, "", [], {}, False)}


def _words(value: object) -> list[str] | None:
    if value is None:
        return None
    return [str(v) for v in value] if isinstance(value, list) else str(value).split()


# --- torch and what follows its releases ------------------------------------------------------------------------


def _torch_url(hand: Row, family: Row, label: str) -> str:
    base: str = hand["index_urls"]["pytorch"]
    if family.get("lts"):
        return f"{base}/lts/1.8/{label}"
    return f"{base}/{label}"


def torch_rows(hand: Row) -> Iterator[Row]:
    """Build rows of torch: one per release, label and machine; the PyPI one besides its labelled twin."""
    for family in hand["torch"]:
        for machine, group in (("x86_64", family["builds"]), ("aarch64", family.get("aarch64", {}))):
            for version in family["versions"]:
                for label, facts in group.items():
                    cpu = label == "cpu"
                    rocm = label.startswith("rocm")
                    row: Row = {
                        "version": version,
                        "machine": machine,
                        "device": "cpu" if cpu or rocm else "cuda",
                        "wheel_cuda": facts.get("cuda"),
                        "index": "pytorch",
                        "index_url": _torch_url(hand, family, label),
                        "local": label,
                        "pythons": _words(facts.get("pythons", family["pythons"])),
                        "glibc": facts.get("glibc", family["glibc"]),
                        "cudnn": facts.get("cudnn"),
                        "nccl": facts.get("nccl"),
                        "sm": hand["sm"][facts["sm"]] if "sm" in facts else None,
                        "requires": list(facts.get("requires", family.get("requires", ()))),
                        "notes": list(family.get("notes", ())) + list(facts.get("notes", ())),
                        "how": {"wheel_cuda": "docs", **({"sm": facts.get("how_sm", "docs")} if "sm" in facts else {})},
                        "source": facts.get("source", family["source"]),
                    }
                    if rocm:
                        row["notes"].append("ROCm build: AMD GPUs only, no NVIDIA card")
                    if family.get("labels") is False:
                        row["notes"].append("this release's file names carry no local label; the index folder selects")
                    yield _clean(row)
                    if facts.get("pypi"):
                        yield _clean({**row, "index": "pypi", "index_url": None, "local": None, "default": True})


def pair_rows(hand: Row) -> dict[str, list[Row]]:
    """torchvision, torchaudio and torchtext rows of PyPI and of PyTorch's index, each pinning its torch."""
    families = {v: f for f in hand["torch"] for v in f["versions"]}
    found: dict[str, list[Row]] = {"torchvision": [], "torchaudio": [], "torchtext": []}
    for torch, versions in hand["pairs"].items():
        family = families[torch]
        for name, version in zip(found, versions, strict=True):
            if version is None:
                continue
            if any(r["version"] == version and r["index"] == "pypi" for r in found[name]):
                continue
            common: Row = {
                "version": version,
                "machine": "x86_64",
                "pythons": _words(family["pythons"]),
                "glibc": family["glibc"],
                "requires": [f"torch=={torch}"],
                "source": hand["pairs_source"],
                "how": {"requires": "docs"},
            }
            default = next((k for k, v in family["builds"].items() if v.get("pypi")), None)
            cuda = family["builds"][default].get("cuda") if default else None
            if not family.get("lts"):
                device = "cuda" if name != "torchtext" else "cpu"
                found[name].append(
                    _clean(
                        {
                            **common,
                            "index": "pypi",
                            "default": True,
                            "device": device,
                            "wheel_cuda": cuda if device == "cuda" else None,
                        }
                    )
                )
            if name == "torchtext":
                continue
            for label, facts in family["builds"].items():
                device = "cuda" if facts.get("cuda") else "cpu"
                found[name].append(
                    _clean(
                        {
                            **common,
                            "index": "pytorch",
                            "index_url": _torch_url(hand, family, label),
                            "local": label,
                            "device": device,
                            "wheel_cuda": facts.get("cuda"),
                        }
                    )
                )
    return found


# --- families of other packages ---------------------------------------------------------------------------------


def family_rows(families: Iterable[Row], defaults: Row) -> Iterator[Row]:
    """``{versions: […], pythons: "3.8 3.9", variants: [{local: …}, …], …}`` → one row per version and variant."""
    for family in families:
        shared = {k: v for k, v in family.items() if k not in ("versions", "variants")}
        for version in family["versions"]:
            for variant in family.get("variants", [{}]):
                row = {"machine": "x86_64", "index": "pypi", "device": "cuda", **defaults, **shared, **variant}
                row["version"] = str(version)
                for key in ("pythons", "sm"):
                    row[key] = _words(row.get(key))
                for key in ("wheel_cuda", "cudnn", "glibc", "nccl"):
                    if row.get(key) is not None:
                        row[key] = str(row[key])
                if row.get("wheel_cuda") and "how" not in row:
                    row["how"] = {"wheel_cuda": "docs"}
                if isinstance(row.get("index_url"), str):
                    row["index_url"] = row["index_url"].replace("{version}", row["version"])
                yield _clean(row)


# --- base images ------------------------------------------------------------------------------------------------


def require_text(cuda: str, spec: Row, brands: dict[str, list[str]]) -> str:
    """NVIDIA_REQUIRE_CUDA of an image: the CUDA term, then what older driver branches are let in."""
    terms = [f"cuda>={cuda}", *spec.get("terms", ())]
    for group, branch in spec.get("groups", ()):
        terms += [f"brand={brand},driver>={branch},driver<{int(branch) + 1}" for brand in brands[group]]
    return " ".join(terms)


def base_tag_rows(images: Row) -> Iterator[Row]:
    """One row per tag of nvidia/cuda."""
    seen: set[str] = set()
    for family in images["base_families"]:
        cuda = str(family["cuda"])
        minor = ".".join(cuda.split(".")[:2])
        flavours: list[tuple[str, str, str | None]] = [("base", "base", None), ("runtime", "runtime", None)]
        flavours.append(("devel", "devel", None))
        if family.get("cudnn"):
            name = family["cudnn_name"]
            flavours.append((f"{name}-runtime", "cudnn-runtime", str(family["cudnn"])))
            flavours.append((f"{name}-devel", "cudnn-devel", str(family["cudnn"])))
        endings = [(f"-{os}", os) for os in family["oses"]]
        if "default_os" in family:
            endings.append(("", family["default_os"]))
        for ending, os in endings:
            for part, flavour, cudnn in flavours:
                tag = f"{cuda}-{part}{ending}"
                if tag in seen or (minor == "8.0" and part == "base"):
                    continue
                seen.add(tag)
                yield {
                    "repository": "nvidia/cuda",
                    "tag": tag,
                    "base_cuda": minor,
                    "flavour": flavour,
                    "os": os,
                    "cudnn": cudnn,
                    "require": minor if minor in images["requires"] else f"cuda>={minor}",
                    "compat_package": minor not in ("8.0", "9.0", "9.1", "9.2"),
                    "deleted": family["state"] == "deleted",
                    "end_of_life": None if family["state"] == "supported" else "unsupported",
                    "source": family["source"],
                }


def compile_images(images: Row) -> Row:
    """images.json: tags expanded, the rest as it is."""
    requires = {k: require_text(k, v, images["brands"]) for k, v in images["requires"].items()}
    tags = list(base_tag_rows(images))
    return {"requires": requires, "base_tags": tags, "images": images["images"], "oses": images["oses"]}


def compile_all(hand: dict[str, Row]) -> dict[str, Row]:
    """File name → content of every compiled file."""
    torch = hand["torch"]
    builds: dict[str, list[Row]] = {"torch": list(torch_rows(torch)), **pair_rows(torch)}
    packages = hand["packages"]
    for name, spec in packages["packages"].items():
        builds.setdefault(name, []).extend(family_rows(spec["families"], spec.get("defaults", {})))
    sources: dict[str, str] = {}
    for content in hand.values():
        sources.update(content.get("sources", {}))
    hardware, images, notes = hand["hardware"], hand["images"], hand["notes"]
    return {
        "builds.json": {
            "builds": {k: builds[k] for k in sorted(builds)},
            "patches": packages.get("patches", {}),
            "aliases": packages["aliases"],
            "companions": packages["companions"],
            "index_urls": torch["index_urls"],
        },
        "hardware.json": {k: v for k, v in hardware.items() if k != "sources"},
        "images.json": compile_images(images),
        "notes.json": {"removed": notes["removed"], "conflicts": hand["conflicts"]["conflicts"], "sources": sources},
    }


def dump(content: Row) -> str:
    """The stored form: sorted keys, one build per line, so that a diff can be reviewed."""
    if "builds" not in content:
        return json.dumps(content, ensure_ascii=False, sort_keys=True, indent=0) + "\n"
    builds = content["builds"]
    head = json.dumps({k: v for k, v in content.items() if k != "builds"}, ensure_ascii=False, sort_keys=True, indent=0)
    parts = []
    for name in sorted(builds):
        rows = ",\n".join(json.dumps(r, ensure_ascii=False, sort_keys=True) for r in builds[name])
        parts.append(f"{json.dumps(name)}: [\n{rows}\n]")
    return head[:-2].rstrip() + ',\n"builds": {\n' + ",\n".join(parts) + "\n}}\n"


def write_all(folder: Path = DATA) -> list[Path]:
    """Compile the hand tables into ``folder``; each file appears whole or not at all."""
    written = []
    for name, content in compile_all(read_hand()).items():
        path = folder / name
        temporary = path.with_suffix(".tmp")
        temporary.write_text(dump(content), encoding="utf-8")
        temporary.replace(path)
        written.append(path)
    return written


if __name__ == "__main__":
    for written_path in write_all():
        print(written_path)
