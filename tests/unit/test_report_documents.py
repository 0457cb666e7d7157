"""Reports: every form holds the verdict, nothing an image prints can break or script them, identifiers hide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gpuimg.errors import BadInput
from gpuimg.nouns import CheckResult, Evidence
from gpuimg.report.curves import Curve, curves_of, svg, thinned
from gpuimg.report.document import to_html, to_markdown
from gpuimg.report.entry import Entry, read_entries, write_entry
from gpuimg.report.junit import to_junit
from gpuimg.report.redact import redact
from gpuimg.report.terminal import render
from gpuimg.report.values import short

EVIL = "<script>alert(1)</script>\x1b[31m|\x00]]>"


def entry(*checks: CheckResult, certified: bool = False, **more: Any) -> Entry:
    host = {
        "image": {"reference": "r.example/x:1"},
        "watch": {
            "available": True,
            "period_s": 0.2,
            "gpus": [{"index": 0, "utilisation_percent": [0, 90, 100, 40], "memory_mib": [1, 2, 3, 4]}],
        },
    }
    environment = {"framework": "torch", "frameworks": {"torch": "2.6.0"}, "device": "cpu"}
    made = Evidence(environment, checks, {}, "1", "sha256:ab", "smoke", "sha256:1", "none", "a", "b", host)
    verdict = {"certified": certified, "device": "cpu", "scope": {"device": "cpu", "profile": "smoke"}, "reasons": []}
    return Entry("r.example/x:1", made, {**verdict, **more})


PASS = CheckResult("compute.matmul", "Matrix product", "pass", 1.25, {"error": 1e-7, "curve": list(range(100))})
FAIL = CheckResult(
    "host.shm", "Shared memory", "fail", 0.5, {"mib": 64}, reason=f"too small {EVIL}", hint="--shm-size=8g"
)
SKIP = CheckResult("driver.init", "Driver", "skip", 0.0, reason="no GPU")


def text_of(one: Entry, language: Any = "en") -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(one, language))
    return console.export_text()


def test_first_line_is_the_verdict_then_why_then_what_to_do() -> None:
    lines = text_of(entry(PASS, FAIL, SKIP)).splitlines()
    assert lines[0].startswith("FAILED  r.example/x:1")
    assert "host.shm: too small" in lines[1]
    assert "--shm-size=8g" in "".join(lines[1:4])


@pytest.mark.parametrize(
    ("one", "answer"),
    [
        (entry(PASS, certified=True), "passed"),
        (entry(PASS, FAIL), "failed"),
        (entry(PASS, SKIP), "cannot-tell"),
    ],
)
def test_answers(one: Entry, answer: str) -> None:
    assert one.answer == answer
    assert one.to_json()["answer"] == answer


def test_html_is_self_contained_and_escapes_what_images_print() -> None:
    page = to_html([entry(PASS, FAIL, SKIP)])
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert "&lt;script&gt;" in page
    assert page.count("<svg") >= 2


def test_chinese_report() -> None:
    page = to_html([entry(PASS, FAIL, SKIP)], "zh")
    assert 'lang="zh"' in page
    for text in ("GPU 镜像验证报告", "未通过", "处理办法" if "处理办法" in page else "实测值", "GPU 利用率"):
        assert text in page
    assert "未通过" in to_markdown([entry(PASS, FAIL)], "zh")
    assert text_of(entry(PASS, FAIL), "zh").startswith("未通过")


def test_junit_parses_whatever_an_image_prints() -> None:
    root = ET.fromstring(to_junit([entry(PASS, FAIL, SKIP)]))
    [suite] = root
    assert suite.attrib["failures"] == "1"
    assert suite.attrib["skipped"] == "1"
    names = {c.attrib["name"]: [child.tag for child in c] for c in suite}
    assert names["host.shm"] == ["failure"]
    assert names["driver.init"] == ["skipped"]


def test_junit_shows_what_could_not_be_told_as_a_failure() -> None:
    [suite] = ET.fromstring(to_junit([entry(PASS, SKIP)]))
    assert suite.attrib["failures"] == "1"


@given(st.text(max_size=60))
def test_junit_and_markdown_take_any_text(text: str) -> None:
    one = entry(CheckResult("a.b", text, "fail", 0.1, {"said": text}, reason=text, hint=text))
    ET.fromstring(to_junit([one]))
    table = [line for line in to_markdown([one]).splitlines() if line.startswith("| FAIL")]
    assert len(table) == 1


def test_curves_come_from_outside_and_from_checks() -> None:
    series = CheckResult("mon.curve", "x", "pass", 1.0, {"gpu0": {"period_s": 0.5, "series": {"watts": [1.0] * 9}}})
    titles = [c.title for c in curves_of(entry(PASS, series).evidence)]
    assert any("utilisation" in t for t in titles)
    assert "mon.curve: watts" in titles
    assert "compute.matmul: curve" in titles


def test_svg_is_xml_even_for_flat_lines() -> None:
    ET.fromstring(svg(Curve("a<b>&", (("x", (5.0, 5.0)), ("y", (0.0, -1.0, 3.0))), 0.2)))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5000))
def test_thinning_keeps_the_extremes(line: list[float]) -> None:
    shown = thinned(line, 100)
    assert len(shown) <= 102 or len(line) <= 100
    assert min(shown) == min(line)
    assert max(shown) == max(line)


def test_written_entries_read_back_equal(tmp_path: Path) -> None:
    one = entry(PASS, FAIL, SKIP)
    write_entry(tmp_path / "a", one)
    [again] = read_entries(tmp_path)
    assert again.evidence == one.evidence
    assert again.verdict == one.verdict
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("content", ["", "[]", "{", '{"checks": 1}', '{"checks": []}'])
def test_what_is_no_evidence_is_said_so(tmp_path: Path, content: str) -> None:
    (tmp_path / "evidence.json").write_text(content)
    with pytest.raises(BadInput):
        read_entries(tmp_path)
    with pytest.raises(BadInput, match=r"no evidence\.json"):
        read_entries(tmp_path / "nothing")


def test_redaction_hides_machines_and_keeps_measurements() -> None:
    uuid = "GPU-12345678-1234-1234-1234-123456789abc"
    value = {
        "uuid": uuid, "text": f"on {uuid} at 10.1.2.3 of web7", "serial": "1650924", "cudnn": "9.1.0.70",
        "host_name": "web7", "mac": "02:42:ac:11:00:02", "tflops": 794.1, "local": "127.0.0.1:5000", "list": [uuid],
    }  # fmt: skip
    shown = redact(value, hide=("web7",))
    text = json.dumps(shown)
    for secret in ("12345678-1234", "10.1.2.3", "web7", "1650924", "02:42"):
        assert secret not in text
    assert shown["cudnn"] == "9.1.0.70"
    assert shown["tflops"] == 794.1
    assert shown["local"] == "127.0.0.1:5000"
    assert shown["uuid"] == shown["list"][0]


def test_short_values_fit_a_line() -> None:
    assert short({"a": 1.23456789, "b": True, "c": {"d": [1] * 50}}) == "a=1.235, b=yes, c.d=[50 values]"
    assert len(short({"a": "x" * 1000})) == 160


def test_every_check_has_a_chinese_title() -> None:
    from gpuimg.report.words import title_of
    from gpuimg.suite.registry import all_checks

    same = [i for i, c in all_checks().items() if title_of(i, c.title, "zh") == c.title and not i.startswith("engine.")]
    assert same == []
