"""Real messages from public issue threads get the right cause first, with the facts that matter in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuimg.explain import explain
from gpuimg.explain.catalogue import entries

FILE = Path(__file__).parent.parent / "data" / "explain" / "messages.yaml"
MESSAGES: list[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", MESSAGES, ids=[f"{row['top']}-{n}" for n, row in enumerate(MESSAGES)])
def test_message(row: dict[str, Any]) -> None:
    causes = explain(row["text"])
    assert causes, "not recognised"
    assert causes[0].rule == row["top"], [c.rule for c in causes]
    said = " ".join(f"{c.cause} {c.fix}" for c in causes)
    for pattern in row.get("say", ()):
        assert re.search(pattern, said, re.I), (pattern, said)
    for pattern in row.get("never", ()):
        assert not re.search(pattern, said, re.I), (pattern, said)


@pytest.mark.parametrize("rule", [entry.rule for entry in entries()])
def test_every_entry_speaks_on_its_examples(rule: str) -> None:
    entry = next(e for e in entries() if e.rule == rule)
    assert entry.examples
    for example in entry.examples:
        causes = explain(example)
        spoken = {c.rule for c in causes}
        computed = {"missing-library": "missing-", "cuda-number": "cuda-"}.get(rule)
        assert rule in spoken or (computed and any(r.startswith(computed) for r in spoken)), (example, spoken)
