"""A paste made readable, and what it says about the place where the error happened.

The same message has other causes on bare metal than in a container, on a server without a GPU, or with a driver whose
number is given; so the text around the message is read as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LIMIT = 1_000_000
"""Characters looked at: of longer logs the head and the tail, where first and last errors stand."""
_LONG = 100_000
_REPEATS = 3
"""In a log longer than ``_LONG``, lines that differ only in their numbers (progress) are kept so often."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_PUNCTUATION = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "：": ":", "（": "(", "）": ")", "，": ",", "\xa0": " "}
)

_FLAGS: dict[str, str] = {
    "bare": r"bare[ -]?metal|no container|not (?:in|inside|using) (?:a )?(?:docker|container)|outside (?:of )?(?:docker|a container)|裸机|物理机|without docker",
    "container": r"\bdocker\b|\bpodman\b|container|kubernetes|\bk8s\b|kubectl|\bpod\b|容器|/workspace\b",
    "podman": r"\bpodman\b",
    "kubernetes": r"kubernetes|\bk8s\b|kubectl|kubelet|\bpods?\b",
    "gpuless": r"without any (?:nvidia )?gpu|no (?:nvidia )?gpu (?:in|on|at all|installed|present|available)|(?:server|machine|host|laptop|vm|box)[^\n]{0,20} (?:without|has no|with no) (?:an? |any )?(?:nvidia )?(?:gpu|card)|"
    r"lspci shows no nvidia|cpu[- ]only (?:server|machine|host|box|instance|runner|node)|no nvidia (?:gpu|device|card)s?|没有(?:显卡|GPU)|无(?:显卡|GPU)",
    "rootless": r"rootless",
    "wsl": r"\bwsl2?\b|microsoft-standard|/usr/lib/wsl|\\\\wsl",
    "windows": r"[A-Z]:\\|\bwindows (?:10|11|server)\b|\.dll\b|docker desktop",
    "jetson": r"\bjetson\b|\btegra\b|\borin\b|\bxavier\b|l4t|jetpack|nvgpu",
    "aarch64": r"\baarch64\b|\barm64\b|grace hopper|gh200|gb200|dgx spark",
    "no_workers": r"num_workers\s*[=:]\s*0\b|no (?:dataloader )?workers",
    "conda": r"conda|\bmamba\b",
    "build": r"docker build|^Step \d+/\d+|\bRUN \w|failed to solve|buildkit|#\d+ \[",
    "secure_boot": r"secure ?boot",
    "lxc": r"\blxc\b|\blxd\b|proxmox|\bincus\b",
    "gvisor": r"gvisor|\brunsc\b",
    "snap": r"snap(?:\.docker| list|/docker| services)|/snap/",
    "uv": r"\buv (?:pip|sync|add)\b",
}
_VALUES: dict[str, str] = {
    "driver": r"driver version\s*(?:is|:|=)?\s*v?(\d{3}\.\d+(?:\.\d+)?)|NVRM version:.*?(\d{3}\.\d+(?:\.\d+)?)|\bdrivers?\s*(?:is|version|:|=|v)?\s*v?(\d{3}\.\d{2,3}(?:\.\d+)?)|NVIDIA-SMI\s+(\d{3}\.\d+(?:\.\d+)?)|驱动(?:版本)?\s*[::]?\s*(\d{3}\.\d+(?:\.\d+)?)",
    "driver_cuda": r"CUDA Version\s*:\s*(\d+\.\d+)",
    "torch": r"\b(?:py)?torch(?:==|\s*[:=]?\s*(?:version\s*)?v?)(\d+\.\d+(?:\.\d+)?(?:\+\w+)?)|(?<=__version__ )(\d+\.\d+\.\d+\+cu\d+)",
    "vllm": r"\bvllm(?:==|\s+v?|\s+version\s+)(\d+\.\d+(?:\.\d+)?)",
    "ngc": r"(?:tritonserver|triton|nvcr\.io/nvidia/\w+:|pytorch|tensorflow|container|image)\s*:?v?\s*(2\d\.\d\d)(?:-\w+)?\b",
    "toolkit": r"release (\d+\.\d+), V\d|cuda[-_ ]?toolkit\s*[:=]?\s*(\d+\.\d+)|image CUDA (\d+\.\d+)|nvidia/cuda:(\d+\.\d+)",
    "glibc": r"glibc[ -]?(\d\.\d+)|ldd \([^)]*\) (\d\.\d+)",
    "shm": r"(?:tmpfs|shm)\s+(\d+(?:\.\d+)?[KMGT]?)B?\s+\S+\s+\S+\s+\S+\s+/dev/shm",
    "ld_library_path": r"LD_LIBRARY_PATH\s*[=:]\s*(\S+)",
    "capability": r"(?:compute capability|sm_|CUDA capability sm_)\s*[:=]?\s*(\d{1,2}\.\d|\d{2,3})\b",
    "cpu": r"model name\s*:\s*(.+)",
}
_LISTED = re.compile(
    r"^(?!.*(?:trying|[Ee]rror|[Cc]annot|[Uu]ndefined|not found|No such|[Ww]arn|WARN|\b[Ll]oad))(?:.*\s)?(/\S+/lib[\w.+-]+\.so[\w.]*)(?: -> \S+)?\s*$",
    re.M,
)
"""A line of find, ls -l, locate or dpkg -L; not one of an error message or of LD_DEBUG's search."""
_UNITS = {"": 1 / 1024, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
_BIG_SHM_MIB = 1024
"""A shared memory of this size is not the 64 MB that Docker gives by default."""


@dataclass(frozen=True)
class Situation:
    """Where it happened, as far as the paste says so."""

    text: str
    flags: frozenset[str] = frozenset()
    values: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    """Paths of libraries that the paste lists as present (find, ls, locate)."""


def _shortened(text: str) -> str:
    seen: dict[str, int] = {}
    kept = []
    for line in text.splitlines():
        key = re.sub(r"[\d.%|#=>\s]+", "0", line[:200])
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= _REPEATS:
            kept.append(line)
    short = "\n".join(kept)
    return short if len(short) <= LIMIT else short[: LIMIT // 4] + "\n" + short[-3 * (LIMIT // 4) :]


def clean(text: str) -> str:
    """Without terminal escapes, NULs, carriage returns and typographic quotes; what repeats in a long log left out."""
    if len(text) > _LONG:
        text = _shortened(text)
    plain = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return plain.replace("\x00", "").replace("\ufeff", "").translate(_PUNCTUATION)


def read_situation(text: str) -> Situation:
    """Flags and values that conditions of the catalogue ask for. ``text`` is cleaned already."""
    flags = {name for name, pattern in _FLAGS.items() if re.search(pattern, text, re.I | re.M)}
    values: dict[str, str] = {}
    for name, pattern in _VALUES.items():
        found = re.search(pattern, text, re.I)
        if found:
            values[name] = next((g for g in found.groups() if g), "").strip().rstrip(".,)")
    if "bare" in flags:
        flags.discard("container")
    if "shm" in values:
        size = re.fullmatch(r"([\d.]+)([KMGT]?)", values["shm"])
        if size and float(size.group(1)) * _UNITS[size.group(2)] >= _BIG_SHM_MIB:
            flags.add("big_shm")
    cpu_flags = re.search(r"^flags\s*:\s*(.+)$", text, re.M)
    if cpu_flags:
        words = set(cpu_flags.group(1).lower().split())
        flags.update(f"no_{name}" for name in ("avx", "avx2", "avx512f") if name not in words)
    if values.get("driver"):
        flags.add("driver_known")
    if "ld_library_path" in values:
        flags.add("ld_library_path")
    files = tuple(dict.fromkeys(_LISTED.findall(text)))
    if files:
        flags.add("files_listed")
    return Situation(text, frozenset(flags), values, files)
