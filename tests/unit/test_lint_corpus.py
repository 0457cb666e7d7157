"""Broken files are called broken for the right reason; sound files get no error."""

from __future__ import annotations

import datetime

import pytest

from gpuimg.knowledge import load
from gpuimg.lint import Options, lint_text
from tests.unit.lint_corpus import BROKEN, SOUND, Sample

TODAY = datetime.date(2026, 12, 1)


def _errors(sample: Sample) -> list[str]:
    found = lint_text(sample.text, sample.file, load(), Options(python=sample.python), today=TODAY)
    assert all(f.source and f.fix and f.message for f in found)
    return [f"{f.rule}: {f.message}" for f in found if f.severity == "error"]


def test_the_corpus_is_large_enough() -> None:
    assert len(BROKEN) >= 40
    assert len(SOUND) >= 25
    assert len({s.name for s in (*BROKEN, *SOUND)}) == len(BROKEN) + len(SOUND)


@pytest.mark.parametrize("sample", BROKEN, ids=lambda s: s.name)
def test_broken(sample: Sample) -> None:
    errors = _errors(sample)
    assert any(e.split(":")[0] in sample.rules for e in errors), errors


@pytest.mark.parametrize("sample", SOUND, ids=lambda s: s.name)
def test_sound(sample: Sample) -> None:
    assert _errors(sample) == []
