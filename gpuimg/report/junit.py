"""JUnit XML: one test suite per image, one test case per check, so that any CI shows the results."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from gpuimg.report.entry import Entry
from gpuimg.report.values import short

_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot carry: control characters out of an image's output."""


def to_junit(entries: list[Entry]) -> str:
    """The document. A verdict that is not positive although no check failed shows as a case ``verdict`` that failed."""
    root = ET.Element("testsuites", name="gpuimg")
    for entry in entries:
        counts = entry.counts
        refused = entry.answer == "cannot-tell"
        suite = ET.SubElement(
            root,
            "testsuite",
            name=_clean(entry.name),
            tests=str(len(entry.evidence.checks) + 1),
            failures=str(counts["fail"] + (1 if refused else 0)),
            errors=str(counts["error"]),
            skipped=str(counts["skip"]),
            time=f"{sum(c.seconds for c in entry.evidence.checks):.3f}",
            timestamp=entry.evidence.started,
        )
        for check in entry.evidence.checks:
            case = ET.SubElement(
                suite, "testcase", classname=_clean(entry.name), name=check.id, time=f"{check.seconds:.3f}"
            )
            text = "\n".join(t for t in (check.reason, check.hint, short(check.measured, 2000)) if t)
            if check.status in ("fail", "error"):
                kind = "failure" if check.status == "fail" else "error"
                ET.SubElement(case, kind, message=_clean(check.reason or check.status)).text = _clean(text)
            elif check.status == "skip":
                ET.SubElement(case, "skipped", message=_clean(check.reason or "no reason given"))
            else:
                ET.SubElement(case, "system-out").text = _clean(short(check.measured, 2000))
        case = ET.SubElement(suite, "testcase", classname=_clean(entry.name), name="verdict", time="0")
        if refused:
            reasons = "\n".join(entry.verdict.get("reasons") or ["not judged"])
            ET.SubElement(case, "failure", message="cannot tell").text = _clean(reasons)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("�", text)
