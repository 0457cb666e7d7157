"""Cells that leave something open ('latest', 'auto') → the plan of the newest that fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpuimg.errors import BadInput
from gpuimg.knowledge.base import Knowledge, version_key
from gpuimg.knowledge.planning import Target, package_of, plan_cell
from gpuimg.knowledge.rules.numbers import parts
from gpuimg.knowledge.selection import rows_of
from gpuimg.matrix.expand import cell_id
from gpuimg.nouns import Cell, Plan

LATEST = "latest"
GOOD = ("fits", "fits-with-compat", "fits-via-ptx")
MAX_VERSIONS = 40
"""Versions tried for 'latest', newest first; frameworks publish about ten a year."""


def choose_plan(cell: Cell, targets: Sequence[Target], knowledge: Knowledge) -> Plan:
    """The plan of a cell under the id of what it became.

    ``version: latest`` is the newest final version that fits Python, distribution and every target, in the CUDA build
    of its own home (PyPI) where that fits. ``cuda: auto`` is the newest wheel_cuda the version has, or the newest that
    the targets' drivers allow.

    Raises:
        BadInput: the framework or a package line is not known, or 'latest' of a framework without any version.
    """
    first: Plan | None = None
    for tried in _candidates(cell, targets, knowledge):
        plan = plan_cell(tried, targets=targets, knowledge=knowledge)
        if plan.verdict in GOOD:
            return _named(plan)
        first = first or plan
    if first is None:
        raise BadInput.at(cell.file, cell.line, f"no version of {cell.framework} for {cell.device} is known")
    return _named(first)


def _candidates(cell: Cell, targets: Sequence[Target], knowledge: Knowledge) -> Iterator[Cell]:
    versions = [cell.version]
    rows = [b for b in rows_of(package_of(cell), knowledge) if b.machine == cell.machine]
    if cell.version == LATEST:
        builds = [b for b in rows if b.device == cell.device]
        found = {b.version for b in builds if not b.yanked and not version_key(b.version).is_prerelease}
        versions = sorted(found, key=version_key, reverse=True)[:MAX_VERSIONS]
    for version in versions:
        named = replace(cell, version=version)
        if cell.device == "cpu" or cell.cuda != "auto":
            yield named
            continue
        of_gpu = [b for b in rows if b.device == "cuda" and b.version == version]
        cudas = sorted({b.wheel_cuda for b in of_gpu if b.wheel_cuda}, key=parts, reverse=True)
        if cell.version == LATEST:
            at_home = {b.wheel_cuda for b in of_gpu if b.index == "pypi"}
            for cuda in sorted(cudas, key=lambda c: c not in at_home):
                yield replace(named, cuda=cuda)
        else:
            yield named
            for cuda in cudas[1:] if targets else ():
                yield replace(named, cuda=cuda)


def _named(plan: Plan) -> Plan:
    """'auto' and 'latest' give way to what was chosen."""
    cell = plan.cell
    cuda = plan.wheel_cuda or cell.cuda
    named = cell_id(cell.framework, cell.version, cell.device, cuda, cell.python, cell.os)
    return replace(plan, cell=replace(cell, id=named))
