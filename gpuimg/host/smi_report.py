"""``nvidia-smi -q`` (indented text) and ``nvidia-smi -q -x`` (XML, any schema version): one tree, one reading."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any, Union

from gpuimg.host.readings import Readings, device_id, given, number, whole, yes
from gpuimg.nouns import Gpu

Tree = dict[str, Union[str, "Tree"]]

_GPU_HEAD = re.compile(r"^GPU\s+((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_PAIR = re.compile(r"^(\s*)([^:]+?)\s*(?:: ?(.*))?$")


def read_report(text: str) -> Readings | None:
    """``-q`` text. None when it is not one."""
    if not re.search(r"NVSMI LOG|^\s*(?:Product Name|Attached GPUs)\s*:", text, re.MULTILINE):
        return None
    out = Readings()
    head: Tree = {}
    blocks: list[tuple[str, list[str]]] = []
    top: list[str] = []
    for line in text.splitlines():
        found = _GPU_HEAD.match(line.strip()) if not line.startswith((" ", "\t")) else None
        if found:
            blocks.append((found.group(1), []))
        elif blocks:
            blocks[-1][1].append(line)
        else:
            top.append(line)
    if not blocks and any("Product Name" in line for line in top):
        blocks = [("", top)]
    head = _tree(top)
    out.driver = given(_get(head, "driver version"))
    out.driver_cuda = given(_get(head, "cuda version"))
    for index, (bus, lines) in enumerate(blocks):
        out.gpus.append(_gpu(index, bus or None, _tree(lines), out))
    return None if out.empty() else out


def read_xml(text: str) -> Readings | None:
    """``-q -x``; a cut-off document is read as far as it goes."""
    start = text.find("<nvidia_smi_log")
    if start < 0:
        start = text.find("<gpu")
        if start < 0 or "</" not in text:
            return None
    body = re.sub(r"<!DOCTYPE[^>]*>", "", text[start:])
    end = body.rfind("</nvidia_smi_log>")
    if end >= 0:
        body = body[: end + len("</nvidia_smi_log>")]
    root = _parse(body)
    out = Readings()
    if root is None:
        return None
    out.driver = given(root.findtext("driver_version"))
    out.driver_cuda = given(root.findtext("cuda_version"))
    gpus = [root] if root.tag == "gpu" else root.findall("gpu")
    for index, element in enumerate(gpus):
        out.gpus.append(_gpu(index, element.get("id"), _from_xml(element), out))
    return None if out.empty() else out


def _parse(body: str) -> ElementTree.Element | None:
    """The root of a document that may be cut off anywhere."""
    builder = ElementTree.TreeBuilder()
    parser = ElementTree.XMLParser(target=builder)
    depth: list[str] = []
    for piece in re.findall(r"[^>]*>", body):  # what follows the last complete tag is cut off anyway
        try:
            parser.feed(piece)
        except ElementTree.ParseError:
            break
        for tag in re.findall(r"<(/?[\w-]+)[^<>]*?(?<!/)>", piece):
            if tag.startswith("/"):
                if depth:
                    depth.pop()
            else:
                depth.append(tag)
    try:
        for tag in reversed(depth):
            parser.feed(f"</{tag}>")
        return parser.close()
    except ElementTree.ParseError:
        return None


def _from_xml(element: ElementTree.Element) -> Tree:
    tree: Tree = {}
    for child in element:
        key = child.tag.replace("_", " ").lower()
        if key in tree and key == "mig device":
            continue
        tree[key] = _from_xml(child) if len(child) else (child.text or "").strip()
    mig = element.find("mig_devices")
    if mig is not None:
        tree["mig count"] = str(len(mig.findall("mig_device")))
    return tree


def _tree(lines: list[str]) -> Tree:
    root: Tree = {}
    stack: list[tuple[int, Tree]] = [(-1, root)]
    for line in lines:
        found = _PAIR.match(line)
        if not found or not line.strip() or line.lstrip().startswith(("=", "|", "+")):
            continue
        indent, key, value = len(found.group(1).expandtabs(4)), found.group(2).strip().lower(), found.group(3)
        while stack and stack[-1][0] >= indent:
            stack.pop()
        parent = stack[-1][1] if stack else root
        if value is None or (value == "" and ":" not in line):
            node: Tree = {}
            parent.setdefault(key, node)
            found_node = parent[key]
            if isinstance(found_node, dict):
                stack.append((indent, found_node))
        else:
            parent.setdefault(key, value.strip())
        if not stack:
            stack = [(-1, root)]
    return root


def _walk(tree: Tree, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str]]:
    out: list[tuple[tuple[str, ...], str]] = []
    for key, value in tree.items():
        if isinstance(value, dict):
            out += _walk(value, (*path, key))
        else:
            out.append(((*path, key), value))
    return out


def _get(tree: Tree, *names: str) -> str | None:
    """The first value whose path ends in one of the names ('parent/child' pins the parent)."""
    flat = _walk(tree)
    for name in names:
        wanted = tuple(name.split("/"))
        for path, value in flat:
            if len(wanted) == 1 and path[-1] == wanted[0]:
                return value
            if len(wanted) > 1 and path[-1] == wanted[-1] and any(wanted[0] in part for part in path[:-1]):
                return value
    return None


def _gpu(index: int, bus: str | None, tree: Tree, out: Readings) -> Gpu:
    details: dict[str, Any] = {}

    def put(name: str, value: Any) -> None:
        if value is not None:
            details[name] = value

    put("power_limit_w", number(_get(tree, "current power limit", "power limit", "enforced power limit")))
    put(
        "power_w",
        number(_get(tree, "average power draw", "instant power draw", "power draw", "instantaneous power draw")),
    )
    put("memory_used_mib", whole(_get(tree, "fb memory usage/used")))
    put("pstate", given(_get(tree, "performance state")))
    put("compute_mode", given(_get(tree, "compute mode")))
    put("persistence", yes(_get(tree, "persistence mode")))
    put("temperature_c", number(_get(tree, "gpu current temp", "gpu temp")))
    put("pcie_gen", whole(_get(tree, "pcie gen/current link gen", "pcie generation/current")))
    put("pcie_gen_max", whole(_get(tree, "pcie gen/max link gen", "pcie generation/max")))
    put("pcie_width", whole(_get(tree, "link widths/current link width", "link width/current")))
    put("pcie_width_max", whole(_get(tree, "link widths/max link width", "link width/max")))
    put("pcie_replays", whole(_get(tree, "replay counter", "replays since reset")))
    put("remap_correctable", whole(_get(tree, "remapped row corr", "remapped rows/correctable error")))
    put("remap_uncorrectable", whole(_get(tree, "remapped row unc", "remapped rows/uncorrectable error")))
    put("remap_pending", yes(_get(tree, "remapped row pending", "remapped rows/pending")))
    put("remap_failure", yes(_get(tree, "remapped row failure", "remapped rows/remapping failure occurred")))
    put(
        "retired_sbe", whole(_get(tree, "multiple single bit retirement/retired count", "retired pages/single bit ecc"))
    )
    put("retired_dbe", whole(_get(tree, "double bit retirement/retired count", "retired pages/double bit ecc")))
    put(
        "retired_pending",
        yes(_get(tree, "pending retirement", "pending blacklist", "retired pages/pending page blacklist")),
    )
    put("recovery_action", given(_get(tree, "gpu recovery action")))
    put("driver_model", given(_get(tree, "driver model/current", "current dm")))
    put("virtualization", given(_get(tree, "virtualization mode")))
    put(
        "vgpu_license",
        given(
            _get(
                tree,
                "vgpu software licensed product/license status",
                "licensed product/license status",
                "license status",
            )
        ),
    )
    put("mig_pending", given(_get(tree, "pending mig", "mig mode/pending")))
    fabric = tree.get("fabric")
    if isinstance(fabric, dict):
        put("fabric_state", given(_get(fabric, "state")))
        put("fabric_status", given(_get(fabric, "status")))
    put("throttle", _reasons(tree) or None)
    put("throttle_us", _counters(tree) or None)
    for path, value in _walk(tree):
        count = whole(value)
        if not count or "ecc errors" not in path:
            continue
        name = path[-1].replace(" ", "")
        double_bit = "double bit" in path and path[-1] in ("device memory", "total")
        if ("uncorr" in name and "threshold" not in name) or double_bit:
            scope = "volatile" if "volatile" in path else "aggregate"
            key = f"ecc_{'sram' if 'sram' in name else 'dram'}_uncorrected_{scope}"
            details[key] = max(count, int(details.get(key, 0)))
    if details.get("driver_model") in ("WDDM", "TCC", "MCDM"):
        out.details["windows"] = True
    mig = _get(tree, "current mig", "mig mode/current")
    mig_count = whole(_get(tree, "mig count"))
    if mig_count is not None and yes(mig):
        details["mig_instances"] = mig_count
    ecc = yes(_get(tree, "current ecc", "ecc mode/current"))
    return Gpu(
        name=given(_get(tree, "product name")) or "unknown NVIDIA GPU",
        index=whole(_get(tree, "minor number")) if bus is None else index,
        compute_capability=given(_get(tree, "compute capability", "cuda compute capability")),
        memory_mib=whole(_get(tree, "fb memory usage/total")),
        pci_id=device_id(_get(tree, "pci device id", "device id")),
        bus_id=bus or given(_get(tree, "pci bus id", "bus id")),
        uuid=given(_get(tree, "uuid", "gpu uuid")),
        mig=yes(mig),
        ecc=ecc,
        details=details,
    )


def _reasons(tree: Tree) -> list[str]:
    found = []
    for path, value in _walk(tree):
        holder = " ".join(path[:-1])
        if ("event reasons" in holder or "throttle reasons" in holder) and "counters" not in holder and yes(value):
            name = re.sub(r"^clocks (?:event|throttle) reason ", "", path[-1])
            found.append(name)
    return found


def _counters(tree: Tree) -> dict[str, int]:
    found = {}
    for path, value in _walk(tree):
        if any("reasons counters" in part for part in path[:-1]):
            count = whole(value)
            if count:
                found[re.sub(r"^clocks event reasons counters ", "", path[-1])] = count
    return found
