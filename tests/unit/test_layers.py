"""A wheel's layer holds what a normal install gives, byte for byte the same every time."""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuimg.errors import BadInput
from gpuimg.layers.blobs import BlobCache, cache_key
from gpuimg.layers.grouping import BUCKETS, MAX_OWN_LAYERS, OWN_LAYER_BYTES, group_wheels
from gpuimg.layers.lockfile import LockedWheel, Platform, read_lock
from gpuimg.layers.wheel_tar import Environment, LayerTar, write_wheel
from tests.wheels import make_wheel

ENVIRONMENT = Environment("/opt/venv", "3.11")
PLATFORM = Platform("3.11", "2.36")
SITE = "opt/venv/lib/python3.11/site-packages"


def tar_of(wheel: Path) -> bytes:
    out = io.BytesIO()
    tar = LayerTar(out.write)
    write_wheel(wheel, tar, ENVIRONMENT)
    tar.close()
    return out.getvalue()


def test_files_land_where_an_install_puts_them(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(tar_of(make_wheel(tmp_path)))) as tar:
        names = tar.getnames()
        assert f"{SITE}/demo/__init__.py" in names
        assert "opt/venv/share/demo.txt" in names
        script = tar.extractfile("opt/venv/bin/tool.sh")
        assert script is not None
        assert script.read().startswith(b"#!/opt/venv/bin/python -u\n")
        entry = tar.extractfile("opt/venv/bin/demo-run")
        assert entry is not None
        assert b"from demo import main" in entry.read()
        assert tar.getmember("opt/venv/bin/demo-run").mode == 0o755
        assert {m.mtime for m in tar} == {0}
        assert {(m.uid, m.gid) for m in tar} == {(0, 0)}
        record = tar.extractfile(f"{SITE}/demo-1.0.dist-info/RECORD")
        assert record is not None
        assert "../../../bin/demo-run,sha256=" in record.read().decode()


def test_parents_come_before_children(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(tar_of(make_wheel(tmp_path)))) as tar:
        seen: set[str] = set()
        for member in tar:
            parent = member.name.rpartition("/")[0]
            assert not parent or parent in seen
            seen.add(member.name)


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_the_same_wheel_gives_the_same_digest(tmp_path: Path, compression: str) -> None:
    wheel = make_wheel(tmp_path)
    blobs = [
        BlobCache(tmp_path / folder).make([wheel], ENVIRONMENT, key="k", title="demo", compression=compression)  # type: ignore[arg-type]
        for folder in ("one", "two")
    ]
    assert blobs[0] == blobs[1]
    cached = BlobCache(tmp_path / "one")
    assert cached.get("k") == blobs[0]
    data = cached.path(blobs[0]).read_bytes()
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == blobs[0].digest
    assert len(data) == blobs[0].size


def test_a_damaged_wheel_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    data = bytearray(wheel.read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        offset = archive.getinfo("demo/native.so").header_offset
    data[offset + 1000] ^= 0xFF
    wheel.write_bytes(data)
    cache = BlobCache(tmp_path / "cache")
    with pytest.raises(BadInput, match="damaged"):
        cache.make([wheel], ENVIRONMENT, key="k", title="demo")
    assert cache.get("k") is None
    assert list((tmp_path / "cache" / "sha256").iterdir()) == []


def test_a_wheel_may_not_write_outside_its_environment(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, files={"demo-1.0.data/data/../../../../etc/evil": b"x"})
    with pytest.raises(BadInput, match="outside"):
        tar_of(wheel)


def test_not_a_wheel(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(b"not a zip")
    with pytest.raises(BadInput, match="not a wheel"):
        tar_of(path)


def test_the_key_depends_on_all_that_changes_the_bytes() -> None:
    keys = {
        cache_key(["a"], Environment("/opt/venv", "3.11"), "zstd"),
        cache_key(["b"], Environment("/opt/venv", "3.11"), "zstd"),
        cache_key(["a"], Environment("/opt/venv", "3.12"), "zstd"),
        cache_key(["a"], Environment("/srv/venv", "3.11"), "zstd"),
        cache_key(["a"], Environment("/opt/venv", "3.11"), "gzip"),
    }
    assert len(keys) == 5


wheels = st.lists(
    st.builds(
        lambda name, size: LockedWheel(name, "1", f"{name}.whl", "", hashlib.sha256(name.encode()).hexdigest(), size),
        st.text("abcdefghij", min_size=1, max_size=6),
        st.integers(0, 3 * OWN_LAYER_BYTES),
    ),
    max_size=200,
    unique_by=lambda w: w.name,
)


@given(wheels, st.randoms())
def test_grouping_keeps_every_wheel_once_whatever_the_order(locked: list[LockedWheel], order: random.Random) -> None:
    groups = group_wheels(locked)
    assert sorted(w.name for g in groups for w in g.wheels) == sorted(w.name for w in locked)
    assert len(groups) <= MAX_OWN_LAYERS + BUCKETS
    shuffled = locked[:]
    order.shuffle(shuffled)
    assert group_wheels(shuffled) == groups


@given(wheels.filter(bool))
def test_a_changed_wheel_changes_one_layer(locked: list[LockedWheel]) -> None:
    small = next((w for w in locked if (w.size or 0) < OWN_LAYER_BYTES), None)
    if small is None or sum((w.size or 0) >= OWN_LAYER_BYTES for w in locked) >= MAX_OWN_LAYERS:
        return
    changed = [w if w is not small else LockedWheel(w.name, "2", w.filename, "", "0" * 64, w.size) for w in locked]
    assert len(set(group_wheels(locked)) - set(group_wheels(changed))) == 1


LOCK = """
lock-version = "1.0"
[[packages]]
name = "Demo_Pkg"
version = "1.0"
wheels = [{ url = "https://example.org/a/Demo_Pkg-1.0-py3-none-any.whl", size = 5, hashes = { sha256 = "ab" } }]
"""


def test_lock_is_read() -> None:
    (wheel,) = read_lock(LOCK, PLATFORM)
    assert (wheel.name, wheel.filename, wheel.size) == ("demo-pkg", "Demo_Pkg-1.0-py3-none-any.whl", 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not toml [", "not TOML"),
        ("a = 1", "not a pylock"),
        (LOCK.replace('hashes = { sha256 = "ab" }', "hashes = {}"), "no sha256"),
        ('lock-version = "1.0"\n[[packages]]\nname = "x"\n', "no wheel"),
    ],
)
def test_a_bad_lock_says_why(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_lock(text, PLATFORM)


@pytest.mark.parametrize(
    ("offered", "best"),
    [
        (["a-1-py3-none-any.whl", "a-1-cp311-cp311-manylinux2014_x86_64.whl"], 1),
        (["a-1-cp311-cp311-manylinux_2_39_x86_64.whl", "a-1-cp311-cp311-manylinux_2_28_x86_64.whl"], 1),
        (["a-1-cp311-cp311-manylinux_2_28_x86_64.whl", "a-1-2-cp311-cp311-manylinux_2_28_x86_64.whl"], 1),
        (["a-1-cp38-abi3-manylinux1_x86_64.whl", "a-1-py3-none-any.whl"], 0),
        (["a-1-cp311-cp311-manylinux_2_17_aarch64.whl", "a-1-py3-none-any.whl"], 1),
    ],
)
def test_the_best_wheel_for_the_platform_is_taken(offered: list[str], best: int) -> None:
    rows = ", ".join(
        f'{{ url = "https://example.org/{n}", hashes = {{ sha256 = "{i}" }} }}' for i, n in enumerate(offered)
    )
    text = f'lock-version = "1.0"\n[[packages]]\nname = "a"\nversion = "1"\nwheels = [{rows}]\n'
    assert read_lock(text, PLATFORM)[0].filename == offered[best]


def test_a_wheel_of_another_platform_is_not_taken() -> None:
    text = LOCK.replace("py3-none-any", "cp312-cp312-win_amd64")
    with pytest.raises(BadInput, match="no wheel for"):
        read_lock(text, PLATFORM)
