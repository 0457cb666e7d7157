"""What an explanation works out from the numbers in a message: the driver a toolkit needs, the CUDA a file name means.

Each function takes the named groups and facts of the paste and returns further values for the texts; ``Drop`` says
that the entry does not apply after all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from gpuimg.explain.catalogue import read_data
from gpuimg.explain.paste import Situation
from gpuimg.knowledge import load
from gpuimg.knowledge.xids import xids

Values = dict[str, str]


class Drop(Exception):
    """The entry does not apply."""


_PTX_ISA = {
    "6.0": "9.0", "6.1": "9.1", "6.2": "9.2", "6.3": "10.0", "6.4": "10.1", "6.5": "10.2", "7.0": "11.0", "7.1": "11.1",
    "7.2": "11.2", "7.3": "11.3", "7.4": "11.4", "7.5": "11.5", "7.6": "11.6", "7.7": "11.7", "7.8": "11.8", "8.0": "12.0",
    "8.1": "12.1", "8.2": "12.2", "8.3": "12.3", "8.4": "12.4", "8.5": "12.5", "8.6": "12.7", "8.7": "12.8", "8.8": "12.9",
    "9.0": "13.0", "9.1": "13.1", "9.2": "13.2",
}  # fmt: skip
"""PTX ISA version → CUDA that brought it: https://docs.nvidia.com/cuda/parallel-thread-execution/ (release history)."""


def dotted(number: str) -> str:
    """'12080' → '12.8', as cudaDriverGetVersion encodes it (1000 × major + 10 × minor); '120304' → '12.3'."""
    value = int(number)
    if value >= 100000:
        return f"{value // 10000}.{value // 100 % 100}"
    return f"{value // 1000}.{value % 1000 // 10}"


def cudnn_dotted(number: str) -> str:
    """'8907' → '8.9.7', '90100' → '9.1.0': cuDNN 8 counts 1000 × major, cuDNN 9 counts 10000 × major."""
    value = int(number)
    if value >= 90000:
        return f"{value // 10000}.{value // 100 % 100}.{value % 100}"
    return f"{value // 1000}.{value // 100 % 10}.{value % 100}"


def needed_driver(cuda: str) -> str | None:
    """Oldest Linux driver that supports that CUDA fully, PTX included."""
    return load().first_driver(cuda if "." in cuda else f"{cuda}.0")


def floor_driver(cuda: str) -> str | None:
    """Oldest Linux driver that runs that CUDA's major by minor-version compatibility."""
    return load().minor_compat.get(int(cuda.split(".")[0]))


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _driver_facts(values: Values) -> Values:
    """What the driver named in the paste supports."""
    driver = values.get("driver")
    cuda = values.get("driver_cuda") or (load().driver_cuda(driver) if driver else None)
    return {"driver_supports": cuda} if cuda else {}


def _ngc_cuda(release: str) -> str | None:
    return next((i.base_cuda for i in load().images if i.tag.startswith(f"{release}-") and i.base_cuda), None)


def _torch_cuda(version: str) -> str | None:
    plain, _, local = version.partition("+")
    found = re.fullmatch(r"cu(\d+)(\d)", local)
    if found:
        return f"{found.group(1)}.{found.group(2)}"
    rows = [] if local else load().builds("torch", plain)
    return next((row.wheel_cuda for row in rows if row.default and row.device == "cuda"), None)


def ptx(values: Values, situation: Situation) -> Values:
    """The toolkit that wrote the PTX, and the driver it needs."""
    out = _driver_facts(values)
    cuda = _PTX_ISA.get(values.get("ptx", ""))
    if cuda is None and "ngc" in values:
        cuda = _ngc_cuda(values["ngc"])
        out["what"] = f"the {values['ngc']} container"
    if cuda is None and "toolkit" in values:
        cuda = values["toolkit"]
    if cuda is None and "torch" in values:
        cuda = _torch_cuda(values["torch"])
    if cuda:
        out["ptx_cuda"] = cuda
        out["need"] = needed_driver(cuda) or f"of CUDA {cuda}"
    return out


def too_old(values: Values, situation: Situation) -> Values:
    """A wheel whose CUDA is newer than the driver."""
    out = _driver_facts(values)
    if "found" in values:
        out["driver_supports"] = dotted(values["found"]) if values["found"].isdigit() else values["found"]
        if out["driver_supports"] == "0.0":
            raise Drop
    wheel = _torch_cuda(values["torch"]) if "torch" in values else None
    if wheel:
        out["wheel_cuda"] = wheel
        out["need"] = floor_driver(wheel) or needed_driver(wheel) or f"of CUDA {wheel}"
    if "driver_supports" in out:
        major, minor = _number(out["driver_supports"])[:2]
        have = (major, minor)
        tags = {"11.8": "cu118", "12.1": "cu121", "12.4": "cu124", "12.6": "cu126", "12.8": "cu128", "13.0": "cu130"}
        usable = [tag for cuda, tag in tags.items() if _number(cuda) <= have or _number(cuda)[0] == major >= 11]
        exact = [tag for cuda, tag in tags.items() if _number(cuda) <= have]
        if exact or usable:
            out["tags"] = ", ".join(dict.fromkeys([*reversed(exact[-3:]), *usable[-1:]]))
        nexts = {12: "525.60.13", 13: "580.65.06"}
        if not wheel and major + 1 in nexts:
            out["next_major"] = str(major + 1)
            out["next_need"] = load().minor_compat.get(major + 1, nexts[major + 1])
    return out


def require(values: Values, situation: Situation) -> Values:
    """``cuda>=12.6`` of an image's NVIDIA_REQUIRE_CUDA."""
    cuda = values["cuda"]
    out = {**_driver_facts(values), "need": needed_driver(cuda) or f"of CUDA {cuda}"}
    floor = floor_driver(cuda)
    if floor and _number(floor) < _number(out["need"]):
        out["floor"] = floor
    return out


@lru_cache(maxsize=1)
def _libraries() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    return [(re.compile(row["name"]), row) for row in read_data("libraries.yaml")]


def library(values: Values, situation: Situation) -> Values:
    """What a missing file is, which CUDA or package it belongs to, and how to get it there."""
    name = values["lib"].rsplit("/", 1)[-1]
    for pattern, row in _libraries():
        found = pattern.match(name)
        if not found:
            continue
        if row.get("skip"):
            raise Drop
        number = (found.groupdict().get("v") or "").strip(".")
        out = {**values, "v": number, "lib": name}
        table = row.get("cuda")
        cuda = table.get(number.split(".")[0]) if isinstance(table, dict) and number else None
        if table == "same" and number:
            cuda = number
        if cuda:
            out["cuda"] = str(cuda)
            out["cuda_major"] = str(cuda).split(" ")[0].split(".")[0]
            if not out["cuda_major"].isdigit():
                out.pop("cuda_major")
        from gpuimg.explain.matching import fill

        out["what"] = fill(row["what"], out)
        fix = row["fix"]
        present = [path for path in situation.files if path.rsplit("/", 1)[-1].startswith(name)]
        if present:
            folder = present[0].rsplit("/", 1)[0]
            out["there"] = present[0]
            fix = (
                f"the file is there ({present[0]}), but its folder is not on the loader's path: "
                f"export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH before starting the program "
                "(a program other than torch does not search a wheel's own folders)"
            )
        out["advice"] = fill(fix, out)
        out["rule"] = row["rule"]
        if "source" in row:
            out["source"] = row["source"]
        if "confidence" in row:
            out["confidence"] = row["confidence"]
        return out
    return {
        "what": "a shared library that is not installed, or not on the loader's path",
        "advice": _generic_library(name),
    }


def _generic_library(name: str) -> str:
    return (
        f"find which package holds it (apt-file search {name}), install it, or put its folder on LD_LIBRARY_PATH and run "
        "ldconfig"
    )


def cudnn(values: Values, situation: Situation) -> Values:
    """Loaded against built cuDNN."""
    out = {}
    for name in ("loaded", "built"):
        text = values.get(name, "")
        numbers = _number(text)
        if len(numbers) == 1 and numbers[0] >= 1000:
            out[name] = cudnn_dotted(text)
        elif numbers:
            out[name] = ".".join(str(n) for n in numbers)
    loaded, built = _number(out.get("loaded", "")), _number(out.get("built", ""))
    if loaded and built:
        out["verdict"] = (
            "another major" if loaded[0] != built[0] else "older" if loaded[:2] < built[:2] else "different"
        )
        out["major"] = str(built[0])
    path = values.get("ld_library_path", "")
    folders = [part for part in path.split(":") if re.search(r"cudnn|cuda", part, re.I)]
    if folders:
        out["culprit"] = ":".join(folders)
    return out


def glibc(values: Values, situation: Situation) -> Values:
    """Distributions that have the glibc asked for."""
    wanted = _number(values["need"])
    good = [
        name
        for name, row in load().oses.items()
        if row.glibc and _number(row.glibc) >= wanted and name.startswith(("ubuntu", "debian", "rocky", "alma", "ubi"))
    ]
    first: dict[str, str] = {}
    for name in good:
        family = re.sub(r"[\d.]+$", "", name)
        if family not in first or _number(name) < _number(first[family]):
            first[family] = name
    out = {"distros": ", ".join(first.values())} if first else {}
    if "glibc" in values and _number(values["glibc"]) < wanted:
        out["have"] = values["glibc"]
    return out


def glibcxx(values: Values, situation: Situation) -> Values:
    """GLIBCXX_3.4.N → the GCC that brought it (libstdc++ ABI history)."""
    table = {
        20: "5",
        21: "5",
        22: "6",
        23: "7",
        24: "7",
        25: "8",
        26: "9",
        27: "9",
        28: "9",
        29: "11",
        30: "12",
        31: "13",
        32: "13",
        33: "14",
    }
    found = re.fullmatch(r"3\.4\.(\d+)", values["need"])
    gcc = table.get(int(found.group(1))) if found else None
    return {"gcc": gcc} if gcc else {}


def capability(values: Values, situation: Situation) -> Values:
    """A card that the build has no code for: since which toolkit, and which torch, there is."""
    text = values.get("cc") or values.get("capability") or ""
    digits = re.fullmatch(r"(\d{1,2})\.?(\d)", text)
    if not digits:
        return {}
    cc = f"{digits.group(1)}.{digits.group(2)}"
    out = {"cc": cc, "sm": f"sm_{digits.group(1)}{digits.group(2)}"}
    row = next((a for a in load().architectures if a.compute_capability == cc), None)
    if row is None:
        return out
    out["arch"] = row.name
    if row.first_toolkit:
        out["first"] = row.first_toolkit
    if row.last_toolkit:
        out["last"] = row.last_toolkit
    if row.first_toolkit:
        tags = {
            "11.8": "cu118",
            "12.1": "cu121",
            "12.4": "cu124",
            "12.6": "cu126",
            "12.8": "cu128",
            "12.9": "cu129",
            "13.0": "cu130",
        }
        tag = next((t for cuda, t in tags.items() if _number(cuda) >= _number(row.first_toolkit)), None)
        if tag and not row.last_toolkit:
            out["tag"] = tag
        if row.last_toolkit:
            out["tag"] = next(
                (t for cuda, t in reversed(tags.items()) if _number(cuda) <= _number(row.last_toolkit or "")), "cu118"
            )
            if _number(cc) < (7, 5) and out["tag"] in ("cu128", "cu129"):
                out["tag"] = "cu126"  # PyTorch's cu128 builds left Maxwell, Pascal and Volta out from 2.8 on
    fitting = [
        b.version
        for b in load().builds("torch")
        if b.device == "cuda" and b.default and b.sm and any(_covers(s, cc) for s in b.sm)
    ]
    if fitting:
        if row.last_toolkit:
            out["torch_last"] = fitting[-1]
        else:
            out["torch_first"] = fitting[0]
    return out


def _covers(sm: str, cc: str) -> bool:
    found = re.fullmatch(r"sm_(\d+)(\d)", sm)
    major, minor = _number(cc)
    return bool(found) and int(found.group(1)) == major and int(found.group(2)) <= minor if found else False


def toolkit_mismatch(values: Values, situation: Situation) -> Values:
    """nvcc of one CUDA, torch of another."""
    return {"tag": values["built"].replace(".", "")} if "built" in values else {}


def jax_library(values: Values, situation: Situation) -> Values:
    """``Found cuBLAS version 120205, but JAX was built against version 120304``."""
    out = {}
    for name in ("loaded", "built"):
        text = values.get(name, "")
        if text.isdigit():
            library_name = values.get("library", "").lower()
            out[name] = cudnn_dotted(text) if "dnn" in library_name else dotted(text)
    return out


def xid(values: Values, situation: Situation) -> Values:
    """One Xid number."""
    row = xids().get(int(values["number"]))
    if row is None:
        return {
            "meaning": "a GPU error that is not in our list",
            "advice": "look it up in NVIDIA's Xid list; reset the GPU if programs fail",
            "confidence": "low",
        }
    tail = "; a program's fault rather than the card's, as long as other programs run" if row.severity == "app" else ""
    return {"meaning": row.meaning + tail, "advice": row.fix, "source": row.source}


def numbered(values: Values, situation: Situation) -> Values:
    """A bare CUDA error number: dropped when the number is not one of the catalogue's."""
    row = {str(r["number"]): r for r in read_data("cuda-errors.yaml")}.get(values["number"])
    if row is None:
        raise Drop
    return {"name": row["name"], "meaning": row["meaning"], "advice": row["fix"], "rule": f"cuda-{values['number']}"}


FUNCTIONS: dict[str, Callable[[Values, Situation], Values]] = {
    "ptx": ptx,
    "too_old": too_old,
    "require": require,
    "library": library,
    "cudnn": cudnn,
    "glibc": glibc,
    "glibcxx": glibcxx,
    "capability": capability,
    "toolkit_mismatch": toolkit_mismatch,
    "jax_library": jax_library,
    "xid": xid,
    "numbered": numbered,
}
