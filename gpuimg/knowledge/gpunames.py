"""GPUs as people, providers and nvidia-smi write them → ``Card``. Never a guess: unknown or ambiguous stays unknown.

The table of cards is the knowledge base's; here is only the reading of names: ``4090``, ``A100-SXM4-80GB:8``,
``3090 24G``, ``V100-32G``, ``sm_86``, ``8.6``, ``GRID T4-8Q``, ``NVIDIA GeForce RTX ...`` (cut off by old nvidia-smi),
``A100 MIG 3g.40gb``, ``4090*2``, ``8卡A100``.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from dataclasses import dataclass, field, replace
from functools import lru_cache

from gpuimg.knowledge.base import Knowledge
from gpuimg.knowledge.tables import GpuModel
from gpuimg.nouns import Gpu

_NOISE = frozenset(
    [
        "nvidia",
        "corporation",
        "geforce",
        "tesla",
        "graphics",
        "card",
        "cards",
        "gpu",
        "gpus",
        "generation",
        "edition",
        "tm",
        "r",
        "c",
        "the",
        "desktop",
        "board",
        "active",
        "asus",
        "msi",
        "gigabyte",
        "zotac",
        "galax",
        "colorful",
        "evga",
        "palit",
        "inno3d",
        "pny",
        "founders",
        "显卡",
        "计算卡",
        "张",
        "块",
        "卡",
        "单卡",
        "显存",
        "gddr6",
        "gddr6x",
        "gddr7",
        "hbm",
        "hbm2",
        "hbm2e",
        "hbm3",
        "hbm3e",
        "vram",
        "memory",
        "grid",
        "oem",
        "lhr",
        "with",
        "server",
        "nvlink",
        "workstation",
        "aic",
    ]
)
_VARIANTS = frozenset(
    ["ti", "super", "d", "laptop", "ada", "pro", "blackwell", "max-q", "le", "dd", "v2", "sff", "nvl", "boost", "lx"]
)
"""Words that make it another card when the question lacks them."""
_MEMORY = re.compile(r"(?<![\w.])(\d{1,3})\s*(?:g|gb|gib)(?![\w.])")
_MIG = re.compile(r"(?:mig[ -]?)?\b(\d+g\.\d+gb(?:\+me)?)")
_VGPU = re.compile(r"^(?:nvidia |grid )*([a-z0-9 ]*?[a-z]\d+\w*|rtx ?\d+)-(\d+)([qcabv])$")


@dataclass(frozen=True)
class Card:
    """What a written name says. ``compute_capability`` None: not known, ``problem`` says why, ``nearest`` what is
    close."""

    text: str
    name: str
    count: int = 1
    compute_capability: str | None = None
    model: GpuModel | None = None
    """The row when exactly one is meant."""
    models: tuple[str, ...] = ()
    data_centre: bool | None = None
    brand: str | None = None
    memory_mib: int | None = None
    mig: str | None = None
    vgpu: str | None = None
    foreign: str | None = None
    """What it is instead, for an accelerator that is not NVIDIA's."""
    problem: str | None = None
    nearest: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    source: str = ""


def _plain(text: str) -> str:
    cleaned = unicodedata.normalize("NFKC", text).lower().strip()
    return cleaned.replace("(r)", " ").replace("(tm)", " ").replace("®", " ").replace("™", " ").replace("×", "x")


def _tokens(text: str) -> list[str]:
    """``rtx4080s`` → rtx 4080 super; ``3080ti`` → 3080 ti; ``4090d`` → 4090 d; ``a100-sxm4-80gb`` → a100 sxm4 80gb."""
    spaced = re.sub(r"max[- ]?q", " max-q ", text)
    spaced = re.sub(r"\b(mobile|notebook|laptop gpu)\b", " laptop ", spaced)
    spaced = re.sub(r"[()\[\],/_+]", " ", spaced)
    spaced = re.sub(r"(?<!max)-(?!q\b)", " ", spaced)
    spaced = re.sub(r"\b(geforce|rtx|gtx|quadro|tesla|titan|gt)(?=[a-z]?\d)", r"\1 ", spaced)
    spaced = re.sub(r"\bpro(?=\d{4}\b)", "pro ", spaced)
    spaced = re.sub(r"(?<![a-z\d])(\d{3,4})tis\b", r"\1 ti super", spaced)
    spaced = re.sub(r"(?<![a-z\d])(\d{3,4})\s*(ti|super)\b", r"\1 \2 ", spaced)
    spaced = re.sub(r"\bti(?=super\b)", "ti ", spaced)
    spaced = re.sub(r"(?<![a-z\d])([2-5]0[5-9]0|16[56]0)s\b", r"\1 super", spaced)
    spaced = re.sub(r"(?<![a-z\d])([45]090)d\b", r"\1 d", spaced)
    spaced = re.sub(r"\b(6000|5000|4500|4000|2000)d\b", r"\1 d", spaced)
    spaced = re.sub(r"\b([ahvlbp]\d{2,3}[sgx]?)(sxm\d?|pcie|nvl)\b", r"\1 \2", spaced)
    spaced = re.sub(r"\bsxm\b", "sxm", spaced)
    return spaced.split()


@lru_cache(maxsize=2)
def _index(knowledge: Knowledge) -> tuple[tuple[GpuModel, tuple[frozenset[str], ...]], ...]:
    rows = []
    for model in knowledge.gpus:
        forms = {
            frozenset(t for t in _tokens(_plain(name)) if t not in _NOISE) for name in (model.name, *model.aliases)
        }
        rows.append((model, tuple(forms)))
    return tuple(rows)


def _compute_capability(plain: str) -> str | None:
    found = re.fullmatch(r"(?:sm|compute|cc|compute capability|算力)?[ _-]*(\d{1,2})\.(\d)[af]?", plain)
    if not found:
        found = re.fullmatch(r"(?:sm|compute)[ _-]?(\d{1,2})(\d)[af]?", plain)
    return f"{int(found[1])}.{found[2]}" if found else None


_NUMERALS = {
    "单": 1,
    "一": 1,
    "双": 2,
    "两": 2,
    "二": 2,
    "三": 3,
    "四": 4,
    "五": 5,
    "六": 6,
    "七": 7,
    "八": 8,
    "十": 10,
}


def _count(plain: str) -> tuple[str, int]:
    if re.search(r"\btx\d$", plain):  # Jetson TX2: no count
        return plain, 1
    plain = re.sub(
        rf"(?:(?<=^)|(?<=\s))([{''.join(_NUMERALS)}])(?=\s?[卡张块路])", lambda m: str(_NUMERALS[m[1]]), plain
    ).replace("路", "卡")
    for pattern in (
        r"^(?P<rest>.*\S)\s*[:：]\s*(?P<n>\d{1,2})$",
        r"^(?P<rest>.*\S)\s*(?:\*|x)\s*(?P<n>\d{1,2})\s*(?:gpus?|卡|张|块)?$",
        r"^(?P<n>\d{1,2})\s*(?:x\s|\*\s?|\s?[卡张块]\s?(?:nvidia\s)?)(?P<rest>.*\S)$",
        r"^(?P<n>\d{1,2})x(?P<rest>[a-z].*\S|\d{4}.*)$",
        r"^(?P<rest>.*\S)\s+(?P<n>\d{1,2})\s?[卡张块]$",
    ):
        found = re.match(pattern, plain)
        if found and int(found["n"]) > 0:
            return found["rest"].strip(), int(found["n"])
    return plain, 1


def _foreign(plain: str, knowledge: Knowledge) -> str | None:
    for key, what in knowledge.foreign_gpus.items():
        pattern = re.escape(key) if not key.isascii() else rf"(?<![a-z0-9]){re.escape(key)}(?![0-9])"
        if re.search(pattern, plain):
            return what
    found = re.search(r"\b(amd|instinct|radeon|intel|gaudi|habana|ascend|huawei|apple|qualcomm)\b", plain)
    return f"{found[1].title()} accelerator: no CUDA" if found else None


def identify(text: str, knowledge: Knowledge, *, memory_mib: int | None = None, power_w: float | None = None) -> Card:
    """The card a name means. ``memory_mib`` and ``power_w`` (limit) help where nvidia-smi cut the name off."""
    plain, count = _count(_plain(text))
    given = Card(text=text, name=text.strip(), count=count, memory_mib=memory_mib)
    capability = _compute_capability(plain)
    if capability is not None:
        known = {m.compute_capability for m in knowledge.gpus} | {a.compute_capability for a in knowledge.architectures}
        if capability not in known:
            return replace(
                given,
                problem=f"no NVIDIA architecture has compute capability {capability}",
                nearest=tuple(difflib.get_close_matches(capability, sorted(known), n=3)),
            )
        return replace(given, name=f"compute capability {capability}", compute_capability=capability)
    foreign = _foreign(plain, knowledge)
    if foreign is not None:
        return replace(given, foreign=foreign)
    mig = _MIG.search(plain)
    if mig:
        plain = (plain[: mig.start()] + " " + plain[mig.end() :]).replace(" mig", " ").strip(" -")
        given = replace(given, mig=mig[1])
    vgpu = _VGPU.match(plain)
    if vgpu:
        base = vgpu[1].strip()
        trimmed = re.sub(r"(?<=\d)(?:dx?|x)$", "", base) if base not in {"a100x", "a30x"} else base
        # vGPU types called RTX6000 and RTX8000 are of the Turing boards; Ada's say RTX6000-Ada.
        trimmed = re.sub(r"^(?:quadro )?rtx ?(6000|8000)(?:p|-passive)?$", r"quadro rtx \1", trimmed)
        inner = identify(trimmed, knowledge)
        return replace(
            inner,
            text=text,
            name=text.strip(),
            count=count,
            model=None,
            vgpu=f"{vgpu[2]}{vgpu[3].upper()}",
            brand={"q": "vws", "c": "vcs", "b": "vpc", "a": "vapps", "v": "cloudgaming"}[vgpu[3]],
            memory_mib=int(vgpu[2]) * 1024,
        )
    if "..." in plain or "…" in plain:
        return _cut_off(given, re.split(r"\.\.\.|…", plain)[0], memory_mib, power_w, knowledge)
    size = _MEMORY.search(plain)
    wanted_mib = int(size[1]) * 1024 if size else None
    words = plain if size is None else plain[: size.start()] + " " + plain[size.end() :]
    full = frozenset(t for t in _tokens(plain) if t not in _NOISE)
    bare = frozenset(t for t in _tokens(words) if t not in _NOISE)
    if not bare:
        return replace(given, problem=f"{text!r} names no card", nearest=())
    found = [m for m, forms in _index(knowledge) if full in forms]
    for core in (full, bare) if not found else ():
        hits = _matching(core, knowledge)
        if hits:
            found = hits
            break
    rivals = _matching(bare, knowledge, loose=True) if found else []
    quadro = "quadro" in _plain(text)
    if found and not quadro and bare & {"6000", "5000", "4000", "3000"} and "rtx" not in bare ^ {"rtx"}:
        found = found + [m for m in rivals if m not in found]
    notes: list[str] = []
    if found and (memory := wanted_mib or memory_mib):
        fitting = [m for m in found if m.memory_mib is None or abs(m.memory_mib - memory) <= 0.12 * memory]
        if fitting:
            found = fitting
        else:
            notes.append(f"no {found[0].name} is sold with {memory // 1024} GB: a modified board, or another card")
    if not found:
        return replace(given, problem=f"no card named {text.strip()!r} is known", nearest=_nearest(plain, knowledge))
    return _agree(given, found, tuple(notes))


def _matching(core: frozenset[str], knowledge: Knowledge, *, loose: bool = False) -> list[GpuModel]:
    """Models one of whose names has all the words asked for, and no other word that makes it another card."""
    exact: list[GpuModel] = []
    for model, forms in _index(knowledge):
        for form in forms:
            if not core <= form:
                continue
            extra = form - core
            variants = _VARIANTS - {"blackwell", "max-q"} if "pro" in core else _VARIANTS
            if not loose and extra & variants:
                continue
            if not _number(core) and "titan" not in core:
                continue
            exact.append(model)
            break
    return exact


def _number(core: frozenset[str]) -> bool:
    return any(re.search(r"\d", word) for word in core)


def _agree(given: Card, found: list[GpuModel], notes: tuple[str, ...]) -> Card:
    capabilities = {m.compute_capability for m in found}
    if len(capabilities) > 1:
        names = tuple(dict.fromkeys(m.name for m in found))[:5]
        return replace(
            given,
            models=names,
            nearest=names,
            problem=f"{given.text.strip()!r} may be any of: "
            + ", ".join(f"{m.name} ({m.compute_capability})" for m in found[:5]),
        )
    first = found[0]
    brands, centres = {m.brand for m in found}, {m.data_centre for m in found}
    return replace(
        given,
        name=first.name if len(found) == 1 else given.name,
        compute_capability=first.compute_capability,
        model=first if len(found) == 1 else None,
        models=tuple(m.name for m in found),
        data_centre=first.data_centre if len(centres) == 1 else None,
        brand=first.brand if len(brands) == 1 else None,
        memory_mib=given.memory_mib or (first.memory_mib if len(found) == 1 else None),
        notes=notes,
        source=first.source,
    )


def _cut_off(given: Card, start: str, memory_mib: int | None, power_w: float | None, knowledge: Knowledge) -> Card:
    """nvidia-smi before R530 cut names off: the start, the memory and the power limit tell the card.

    Blackwell is out: its drivers print full names. So are laptop cards where a power limit is printed (theirs is N/A).
    """
    stem = re.sub(r"[^a-z0-9]", "", re.sub(r"^nvidia\s+", "", start.strip()))

    def squeezed(model: GpuModel) -> str:
        return re.sub(r"[^a-z0-9]", "", re.sub(r"^nvidia\s+", "", _plain(model.name)))

    models = [m for m in knowledge.gpus if stem and squeezed(m).startswith(stem)]
    models = [m for m in models if not m.compute_capability.startswith(("10.", "11.", "12."))]
    if power_w:
        models = [m for m in models if "Laptop" not in m.name]
    notes: list[str] = []
    if memory_mib:
        close = [m for m in models if m.memory_mib and abs(m.memory_mib - memory_mib) <= 0.02 * memory_mib + 160]
        models = close or models
    if power_w and len({m.compute_capability for m in models}) > 1:
        powered = [m for m in models if not (watts := _watts(m)) or abs(watts - power_w) <= 0.04 * watts]
        models = powered or models
        if powered:
            notes.append(f"name cut off by nvidia-smi: told by {memory_mib} MiB and {power_w:g} W")
    if not models:
        return replace(given, problem=f"the name is cut off and no card begins with {start.strip()!r}")
    return _agree(given, models, tuple(notes))


_BOARD_POWER = {
    "980 "
    "ti": 250, "980": 165, "970": 145, "titan x": 250, "titan xp": 250, "titan v": 250, "1050 ti": 75, "1060 3gb": 120,
    "1060 "
    "6gb": 120, "1070": 150, "1070 ti": 180, "1080": 180, "1650": 75, "1660": 120, "1660 super": 125, "1660 ti": 120,
    "2060": 160, "2060 super": 175, "2070": 175, "2070 super": 215, "2080": 215, "2080 super": 250, "3050": 130,
    "3060 "
    "ti": 200, "3070": 220, "3070 ti": 290, "4060": 115, "4060 ti": 160, "4070": 200, "4070 super": 220, "4070 ti": 285,
    "5060": 145, "5060 ti": 180, "5070": 250,
}  # fmt: skip
"""Reference board power in W of cards whose row has none, to tell cut-off names apart (NVIDIA's product pages)."""


def _watts(model: GpuModel) -> float | None:
    if model.power_w:
        return float(model.power_w)
    short = re.sub(r"^(nvidia )?(geforce )?(rtx |gtx )?", "", _plain(model.name))
    found = _BOARD_POWER.get(short)
    return float(found) if found else None


def _nearest(plain: str, knowledge: Knowledge) -> tuple[str, ...]:
    names: dict[str, str] = {}
    for model in knowledge.gpus:
        for name in (model.name, *model.aliases):
            names.setdefault(re.sub(r"^(nvidia )?(geforce )?(tesla )?", "", _plain(name)), model.name)
    wanted = re.sub(r"^(nvidia )?(geforce )?(tesla )?", "", plain)
    close = difflib.get_close_matches(wanted, list(names), n=6, cutoff=0.55)
    return tuple(dict.fromkeys(names[c] for c in close))[:3]


def card_of(gpu: Gpu, knowledge: Knowledge) -> Card:
    """A host's GPU → ``Card``. A measured compute capability outranks what the name says."""
    power = gpu.details.get("power_limit_w") or gpu.details.get("power_w")
    card = identify(
        gpu.name,
        knowledge,
        memory_mib=gpu.memory_mib,
        power_w=float(power) if isinstance(power, (int, float)) else None,
    )
    if gpu.pci_id and card.model is None:
        by_id = [m for m in knowledge.gpus if gpu.pci_id.upper() in m.pci_ids]
        if by_id and len({m.compute_capability for m in by_id}) == 1:
            card = _agree(replace(card, problem=None, nearest=()), by_id, card.notes)
    if gpu.compute_capability:
        card = replace(card, compute_capability=gpu.compute_capability, problem=None)
    if gpu.mig_profiles and card.mig is None:
        card = replace(card, mig=gpu.mig_profiles[0])
    return card
