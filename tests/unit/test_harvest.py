"""Reading wheels: pure parts on made-up bytes and listings, remote reads against a local HTTP server."""

from __future__ import annotations

import io
import struct
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuimg.errors import BadInput, GpuimgError
from gpuimg.harvest import collect, fatbin, index, remote, rows, update
from gpuimg.harvest.packages import BY_NAME, PackageSpec


def entry(kind: int, arch: int, flags: int = 0, payload: int = 16) -> bytes:
    head = struct.pack("<HHIQ", kind, 1, 64, payload) + bytes(12) + struct.pack("<I", arch) + bytes(8)
    return head + struct.pack("<Q", flags) + bytes(64 - len(head) - 8) + bytes(payload)


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return fatbin.MAGIC + struct.pack("<HHQ", 1, 16, len(body)) + body


def test_scan_reads_every_entry_of_a_container() -> None:
    data = b"junk" + container(entry(2, 80), entry(2, 90, 0x100000), entry(1, 90)) + b"tail" + container(entry(2, 80))
    found, containers, _ = fatbin.scan(data)
    assert found == Counter({"sm_80": 2, "sm_90a": 1, "compute_90": 1})
    assert containers == 2


@given(st.binary(max_size=400))
def test_scan_survives_any_bytes(data: bytes) -> None:
    found, containers, position = fatbin.scan(data)
    assert containers >= 0
    assert 0 <= position <= len(data)
    assert all(n > 0 for n in found.values())


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 97))
def test_scan_in_pieces_finds_what_a_whole_scan_finds(shape: list[int], step: int) -> None:
    data = b"\x00\x50".join(container(*(entry(2, 80 + i) for i in range(n))) for n in shape)
    whole, count, _ = fatbin.scan(data)
    pieces: Counter[str] = Counter()
    seen = 0
    pending = bytearray()
    for start in range(0, len(data), step):
        pending += data[start : start + step]
        found, containers, position = fatbin.scan(pending)
        pieces += found
        seen += containers
        del pending[:position]
    assert (pieces, seen) == (whole, count)


def test_single_kernels_do_not_count_as_support() -> None:
    entries = Counter({"sm_80": 100, "sm_90": 99, "compute_90": 98, "sm_90a": 3, "sm_121": 1})
    assert fatbin.common_targets(entries) == ["sm_80", "sm_90", "compute_90"]
    assert fatbin.common_targets(Counter()) == []


def test_the_longest_arch_list_is_torchs() -> None:
    data = b"\x00sm_80 sm_90\x00glued.sm_50 sm_60 sm_70 compute_70\x00"
    assert fatbin.arch_list_string(data) == ["sm_50", "sm_60", "sm_70", "compute_70"]
    assert fatbin.arch_list_string(b"nothing") == []


def test_sonames() -> None:
    assert fatbin.sonames(b"\x00libcudart.so.12\x00libcudnn.so.9\x00libc.so.6") == ["libcudart.so.12", "libcudnn.so.9"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, index.DEFAULT_INDEX),
        ({"PIP_INDEX_URL": "https://one.example/simple/"}, "https://one.example/simple"),
        ({"UV_DEFAULT_INDEX": "own=https://two.example/simple", "PIP_INDEX_URL": "x"}, "https://two.example/simple"),
    ],
)
def test_the_index_is_the_one_pip_and_uv_use(environ: dict[str, str], expected: str) -> None:
    assert index.configured_index(environ, files=()) == expected


def test_the_index_from_a_pip_configuration(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://three.example/simple/\n")
    (tmp_path / "broken.conf").write_text("no section")
    assert index.configured_index({}, files=[tmp_path / "broken.conf", tmp_path / "pip.conf"]).startswith(
        "https://three"
    )


def listing(*names: str) -> list[index.IndexFile]:
    files = [{"filename": n, "url": f"https://files.example/{n}", "size": 1} for n in names]
    return index.parse_listing("Demo_Pkg", {"files": files})


def test_listing_leaves_out_what_is_not_this_project() -> None:
    files = listing("demo_pkg-1.0-py3-none-any.whl", "demo-pkg-1.0.tar.gz", "demo-pkg-1.0.exe", "other-1.0.tar.gz")
    assert [f.name for f in files] == ["demo_pkg-1.0-py3-none-any.whl", "demo-pkg-1.0.tar.gz"]
    assert [f.wheel for f in files] == [True, False]


def test_pythons_and_glibc_from_tags() -> None:
    files = listing(
        "demo_pkg-1.0-cp39-cp39-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "demo_pkg-1.0-cp310-cp310-manylinux_2_28_x86_64.whl",
        "demo_pkg-1.0-cp313-cp313t-manylinux_2_28_x86_64.whl",
    )
    assert rows.pythons_of(files, None, ()) == ["3.9", "3.10"]
    assert rows.glibc_of(files, "x86_64") == "2.17"
    assert rows.glibc_of(files, "aarch64") is None


def test_stable_abi_wheels_use_requires_python_and_classifiers() -> None:
    files = listing("demo_pkg-1.0-cp38-abi3-manylinux1_x86_64.whl")
    classifiers = ["Programming Language :: Python :: 3.9", "Programming Language :: Python :: 3.10"]
    assert rows.pythons_of(files, ">=3.9,<3.13", classifiers) == ["3.9", "3.10"]
    assert rows.pythons_of(files, ">=3.12", ()) == ["3.12", "3.13", "3.14", "3.15"]


def test_requirements_follow_markers() -> None:
    facts = collect.WheelFacts(
        "x",
        requires=[
            'nvidia-cudnn-cu12==9.1.0.70 ; platform_system == "Linux" and platform_machine == "x86_64"',
            'torch==2.5.1 ; extra == "gpu"',
            "not a requirement !!",
        ],
    )
    assert set(rows.requirements(facts)) == {"nvidia-cudnn-cu12"}
    assert set(rows.requirements(facts, machine="aarch64", extra="gpu")) == {"torch"}


def test_cuda_pin_from_either_spelling() -> None:
    old = collect.WheelFacts("x", requires=["nvidia-cuda-runtime-cu12==12.4.127"])
    new = collect.WheelFacts("x", requires=["cuda-toolkit[cudart,cublas]==13.0.2"])
    major = collect.WheelFacts("x", requires=["nvidia-cublas-cu12>=12.1"])
    assert rows.cuda_pin(rows.requirements(old)) == ("12.4", "pin")
    assert rows.cuda_pin(rows.requirements(new)) == ("13.0", "pin")
    assert rows.cuda_pin(rows.requirements(major)) == ("12", "range")
    assert rows.cuda_pin({}) == (None, None)


def test_one_wheel_is_chosen_per_version_and_machine() -> None:
    spec = PackageSpec("demo-pkg", "1.0", "wheel")
    files = listing(
        "demo_pkg-0.9-py3-none-any.whl",
        "demo_pkg-1.0-cp310-cp310-manylinux2014_x86_64.whl",
        "demo_pkg-1.0-cp311-cp311-manylinux2014_x86_64.whl",
        "demo_pkg-1.0-cp311-cp311-manylinux2014_aarch64.whl",
        "demo_pkg-1.0-cp311-cp311-win_amd64.whl",
        "demo_pkg-1.1rc1-cp311-cp311-manylinux2014_x86_64.whl",
    )
    chosen = [(str(c.version), c.machine, c.file.name) for c in collect.choose(spec, files)]
    assert chosen == [
        ("1.0", "x86_64", "demo_pkg-1.0-cp311-cp311-manylinux2014_x86_64.whl"),
        ("1.0", "aarch64", "demo_pkg-1.0-cp311-cp311-manylinux2014_aarch64.whl"),
    ]


def row(version: str, **more: object) -> dict[str, object]:
    return {"version": version, "machine": "x86_64", **more}


def test_floors_refuse_a_shrunken_scrape() -> None:
    before = {"demo": [row(f"1.{i}", wheel_cuda="12.4", sm=["sm_80"]) for i in range(20)]}
    update.check_floors(before, {"demo": before["demo"][:19]}, read={"demo"})
    with pytest.raises(GpuimgError, match="nothing found"):
        update.check_floors(before, {}, read={"demo"})
    with pytest.raises(GpuimgError, match="10 rows, 20 before"):
        update.check_floors(before, {"demo": before["demo"][:10]}, read={"demo"})
    with pytest.raises(GpuimgError, match="0 rows with sm, 20 before"):
        update.check_floors(before, {"demo": [row(f"1.{i}", wheel_cuda="12.4") for i in range(20)]}, read={"demo"})
    update.check_floors(before, {}, read=set())


def test_diff_names_what_changed() -> None:
    before = {"demo": [row("1.0", wheel_cuda="12.1", source="a"), row("1.1")]}
    after = {"demo": [row("1.0", wheel_cuda="12.4", source="b"), row("1.2")]}
    changes = [c.to_json() for c in update.diff(before, after)]
    assert [(c["kind"], c["key"]) for c in changes] == [
        ("removed", "1.1 x86_64"),
        ("added", "1.2 x86_64"),
        ("changed", "1.0 x86_64"),
    ]
    assert changes[-1]["fields"] == [{"field": "wheel_cuda", "before": "12.1", "after": "12.4"}]
    assert update.diff(before, before) == []


def test_written_files_read_back(tmp_path: Path) -> None:
    builds = {"b": [row("1.0")], "a": [row("2.0", sm=["sm_80"])]}
    update.write(tmp_path / "new" / "pypi.json", "2026-01-02", builds)
    assert update.read_builds(tmp_path / "new" / "pypi.json") == builds
    assert list(update.read_builds(tmp_path / "new" / "pypi.json")) == ["a", "b"]
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["pypi.json"]
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(BadInput, match=r"not a pypi\.json"):
        update.read_builds(tmp_path / "bad.json")


def test_an_unknown_package_is_named_with_its_nearest(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="did you mean 'torchvision'"):
        update.update(before={}, cache=tmp_path, out=tmp_path, only=("torchvison",), offline=True)


def test_every_package_that_is_read_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) > 60


# --- over HTTP ----------------------------------------------------------------------------------------------------


class RangeHandler(BaseHTTPRequestHandler):
    """Serves one file, with ranges or (``ranges = False``) without."""

    def __init__(self, content: bytes, ranges: bool, *args: object) -> None:
        self.content, self.ranges = content, ranges
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        if not self.ranges or "-" not in wanted:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.content)
            return
        start, _, stop = wanted.partition("-")
        part = self.content[int(start) : int(stop) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{stop}/{len(self.content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *args: object) -> None:
        pass


def wheel_bytes() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("demo/version.py", "cuda = '12.4'\n")
        code = b"".join(container(entry(2, 80), entry(2, 90)) + bytes(2000) for _ in range(30))
        archive.writestr("demo/lib.so", b"libcudart.so.12\x00" + code)
        archive.writestr("demo-1.0.dist-info/METADATA", "Name: demo\nVersion: 1.0\nRequires-Dist: torch==2.5.1\n")
    return buffer.getvalue()


@pytest.fixture(params=[True, False], ids=["ranges", "no-ranges"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, bool]]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), partial(RangeHandler, wheel_bytes(), request.param))
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}/demo.whl", request.param
    made.shutdown()
    made.server_close()


def test_a_remote_wheel_is_read_member_by_member(server: tuple[str, bool]) -> None:
    url, ranges = server
    spec = PackageSpec("demo", "1.0", "wheel", texts=(r"version\.py$",), fatbin=(r"lib\.so$",), containers=5)
    file = index.IndexFile("demo-1.0-py3-none-any.whl", url, None, *listing_version(), False, None, None, False)
    chosen = collect.Chosen(spec, file.version, "x86_64", file)
    traffic = collect.Traffic()
    if not ranges:
        with pytest.raises(OSError, match="no range requests"):
            collect.read_wheel(index.session(), chosen, traffic)
        return
    facts = collect.read_wheel(index.session(), chosen, traffic)
    assert facts.texts == {"demo/version.py": "cuda = '12.4'\n"}
    assert facts.requires == ["torch==2.5.1"]
    assert facts.sm == ["sm_80", "sm_90"]
    assert facts.sonames == ["libcudart.so.12"]
    assert traffic.read == 1


def listing_version() -> tuple[index.Version, frozenset[index.Tag]]:
    (file,) = index.parse_listing("demo", {"files": [{"filename": "demo-1.0-py3-none-any.whl", "url": "x"}]})
    return file.version, file.tags


def test_neighbouring_blocks_come_in_one_request(server: tuple[str, bool]) -> None:
    url, ranges = server
    if not ranges:
        with pytest.raises(OSError, match="no range requests"):
            remote.RemoteFile(index.session(), url, None)
        return
    file = remote.RemoteFile(index.session(), url, None, block=64)
    assert file.size == len(wheel_bytes())
    before = file.requests
    assert file.read(1000) == wheel_bytes()[:1000]
    file.seek(10)
    assert file.read(100) == wheel_bytes()[10:110]
    assert file.requests == before + 1


def test_the_cache_survives_a_damaged_file(tmp_path: Path) -> None:
    cache = collect.Cache(tmp_path)
    cache.put(collect.WheelFacts("demo.whl", requires=["a"]))
    found = cache.get("demo.whl")
    assert found is not None
    assert found.requires == ["a"]
    (tmp_path / "demo.whl.json").write_text("{")
    assert cache.get("demo.whl") is None
    assert cache.get("other.whl") is None
