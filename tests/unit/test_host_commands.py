"""gpuimg host, explain and doctor as a user calls them: exit codes, one JSON document, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FORMS = Path(__file__).parent.parent / "data" / "host"


def call(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "gpuimg", *arguments], input=stdin, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "stdin", "code"),
    [
        (("host", str(FORMS / "h200-nvidia-smi.xml")), b"", 0),
        (("host", "-"), b"Failed to initialize NVML: Driver/library version mismatch", 1),
        (("host", "-"), b"\xff\xfe\x00garbage\x80", 3),
        (("host", "no-such-file"), b"", 2),
        (("explain", "-"), b"CUDA error: no kernel image is available for execution on the device", 0),
        (("explain", "no kernel image is available for execution on the device"), b"", 0),
        (("explain", "-"), b"all is well", 3),
        (("explain", "-"), "错误：显存不足".encode("gb18030"), 0),
        (("explain", "no/such/file.log"), b"", 2),
        (("doctor",), b"", None),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], stdin: bytes, code: int | None) -> None:
    done = call(*arguments, "--json", stdin=stdin)
    assert b"Traceback" not in done.stderr
    assert isinstance(json.loads(done.stdout), dict)
    assert done.returncode in ((0, 1) if code is None else (code,))
    text = call(*arguments, stdin=stdin)
    assert text.returncode == done.returncode
    assert b"Traceback" not in text.stderr


def test_host_json_has_the_agreed_keys() -> None:
    document = json.loads(call("host", str(FORMS / "h200-nvidia-smi.xml"), "--json").stdout)
    assert {"gpus", "driver", "driver_cuda", "toolkit", "frameworks", "findings", "missing"} <= set(document)
    assert {"index", "name", "pci_id", "compute_capability", "memory_mib", "mig", "ecc"} <= set(document["gpus"][0])


def test_explain_json_has_the_agreed_keys() -> None:
    document = json.loads(call("explain", "could not select device driver", "--json").stdout)
    assert document["verdict"] == "known"
    assert set(document["causes"][0]) == {"rule", "cause", "evidence", "fix", "confidence", "source"}
    assert json.loads(call("explain", "fine", "--json").stdout) == {"verdict": "unknown", "causes": []}
