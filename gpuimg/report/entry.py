"""What a report is about: one image or machine with its evidence, the verdict on it and, if there is one, its
certificate. Read from the folder a run leaves behind."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gpuimg.errors import BadInput, EnvironmentFault
from gpuimg.nouns import CheckResult, Evidence

Answer = Literal["certified", "passed", "failed", "cannot-tell"]
EVIDENCE_FILE, VERDICT_FILE, CERTIFICATE_FILE = "evidence.json", "verdict.json", "certificate.json"


@dataclass(frozen=True)
class Entry:
    """One subject of a report."""

    name: str
    evidence: Evidence
    verdict: dict[str, Any]
    """``Verdict.to_json()``."""
    certificate: dict[str, Any] | None = None
    """The in-toto statement."""

    @property
    def answer(self) -> Answer:
        """'passed': policy satisfied, but nothing signed. 'cannot-tell': nothing failed, something was not proven."""
        if self.verdict.get("certified"):
            return "certified" if self.certificate is not None else "passed"
        return "failed" if any(c.status in ("fail", "error") for c in self.evidence.checks) else "cannot-tell"

    @property
    def troubles(self) -> list[CheckResult]:
        """Checks that failed or broke, in running order."""
        return [c for c in self.evidence.checks if c.status in ("fail", "error")]

    @property
    def counts(self) -> dict[str, int]:
        out = {"pass": 0, "fail": 0, "error": 0, "skip": 0}
        for check in self.evidence.checks:
            out[check.status] += 1
        return out

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "answer": self.answer,
            "counts": self.counts,
            "verdict": self.verdict,
            "certificate": self.certificate,
            "evidence": self.evidence.to_json(),
        }


def read_entries(place: Path) -> list[Entry]:
    """Every entry of a run: ``place`` is an evidence file or a folder that holds some, at any depth.

    Raises:
        BadInput: nothing there, or a file that is not what its name says.
    """
    if place.is_file():
        return [read_entry(place)]
    found = sorted(place.rglob(EVIDENCE_FILE)) if place.is_dir() else []
    if not found:
        raise BadInput(f"{place}: no {EVIDENCE_FILE} there", hint="gpuimg runs lists earlier runs")
    return [read_entry(path) for path in found]


def read_entry(path: Path) -> Entry:
    """One entry: an evidence file, with verdict and certificate from beside it.

    Raises:
        BadInput: not readable, not JSON, not evidence.
    """
    raw = _read(path)
    try:
        evidence = Evidence.from_json(raw)
    except (TypeError, KeyError, AttributeError) as error:
        raise BadInput(f"{path}: not evidence of a gpuimg run: {error}") from error
    verdict, certificate = path.with_name(VERDICT_FILE), path.with_name(CERTIFICATE_FILE)
    image = evidence.host.get("image")
    name = image.get("reference") if isinstance(image, dict) else None
    return Entry(
        name=str(name or ("this machine" if evidence.injection == "bare" else path.parent.name)),
        evidence=evidence,
        verdict=_read(verdict) if path.name == EVIDENCE_FILE and verdict.exists() else {},
        certificate=_read(certificate) if path.name == EVIDENCE_FILE and certificate.exists() else None,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise BadInput.at(str(path), error.lineno, f"not JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text") from error
    if not isinstance(value, dict):
        raise BadInput(f"{path}: a JSON object was expected")
    return value


def write_entry(folder: Path, entry: Entry) -> None:
    """Evidence, verdict and certificate as the files :func:`read_entry` reads; each written whole or not at all.

    Raises:
        EnvironmentFault: the folder cannot be written.
    """
    parts = {
        EVIDENCE_FILE: entry.evidence.to_json(),
        VERDICT_FILE: entry.verdict,
        CERTIFICATE_FILE: entry.certificate,
    }
    for name, value in parts.items():
        if value is not None:
            write_text(folder / name, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """A text file, whole or not at all.

    Raises:
        EnvironmentFault: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, "utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise EnvironmentFault(f"{path}: cannot be written: {error.strerror}") from error
