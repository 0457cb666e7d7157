"""FROM: tags that are gone, never were, or have no support; floating tags; ARG out of scope."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator

from gpuimg.knowledge import Knowledge
from gpuimg.knowledge.base import version_key
from gpuimg.knowledge.tables import BaseTag
from gpuimg.lint.base import Base, base_of
from gpuimg.lint.docker_context import DockerContext
from gpuimg.lint.facts import finding
from gpuimg.nouns import LintFinding

TAGS = "https://gitlab.com/nvidia/container-images/cuda/-/blob/master/doc/supported-tags.md"
POLICY = "https://gitlab.com/nvidia/container-images/cuda/-/blob/master/doc/support-policy.md"
ARG_SCOPE = "https://docs.docker.com/reference/dockerfile/#understand-how-arg-and-from-interact"


def arg_scope(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """Variables of FROM that no ARG before the first FROM gives a value."""
    for stage in context.dockerfile.stages:
        for name in stage.unset_args:
            declared = name in context.dockerfile.global_args
            where = (context.file, stage.line)
            if name in stage.late_args:
                yield finding(
                    "arg-in-from", "error", where,
                    f"FROM uses ${name}, but its ARG stands inside a stage: FROM sees only ARGs before the first FROM, so it is empty here",
                    f"move ARG {name}=… above the first FROM", ARG_SCOPE,
                )  # fmt: skip
            elif declared:
                yield finding(
                    "arg-in-from", "warning", where, f"FROM uses ${name}, whose ARG has no default: a build without --build-arg {name} fails",
                    f"give it a default: ARG {name}=…", ARG_SCOPE,
                )  # fmt: skip
            else:
                yield finding(
                    "arg-in-from", "error", where, f"FROM uses ${name}, and no ARG before the first FROM declares it: it is empty, whatever --build-arg says",
                    f"put ARG {name}=… above the first FROM", ARG_SCOPE,
                )  # fmt: skip


def lost_args(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """Global ARGs used inside a stage that does not declare them again: empty there."""
    for stage in context.dockerfile.stages:
        for step in stage.steps:
            made = step.instruction
            if made.keyword not in {"RUN", "ENV", "WORKDIR", "LABEL"}:
                continue
            for name, value in context.dockerfile.global_args.items():
                if (
                    name in step.args
                    or name in step.env
                    or not re.search(r"\$(?:\{" + name + r"[}:]|" + name + r"\b)", made.value)
                ):
                    continue
                if re.search(rf"\b{name}=", made.value) or (made.keyword == "RUN" and made.heredocs):
                    continue
                if any(
                    re.search(rf"\b{name}=", s.instruction.value)
                    for s in stage.steps
                    if s.instruction.keyword == "RUN" and s is step
                ):
                    continue
                installs_with_it = (
                    made.keyword == "RUN" and re.search(r"install[^&;]*\$\{?" + name, made.value) is not None
                )
                yield finding(
                    "arg-scope", "error" if installs_with_it and value else "warning", (context.file, made.line),
                    f"${name} is empty here: an ARG above FROM is not seen inside a stage", f"repeat 'ARG {name}' after FROM", ARG_SCOPE,
                )  # fmt: skip


def base_tags(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """The tag of every stage that starts from an image."""
    for stage in context.dockerfile.stages:
        if stage.parent is not None or stage.base == "scratch" or stage.unset_args or "$" in stage.base:
            continue
        yield from image_tag(stage.base, (context.file, stage.line), kb)


def image_tag(reference: str, where: tuple[str, int | None], kb: Knowledge) -> Iterator[LintFinding]:
    """Does the image exist, is it still supported, and is it pinned?"""
    base = base_of(kb, reference)
    if base.facts.digest:
        return
    if re.fullmatch(r"(?:.*/)?\d\d\.\d\d-py[23]?", reference):
        return
    if base.cuda_image:
        yield from _cuda_tag(base, where, kb)
        return
    yield from _floating(base, where)
    yield from _pytorch_tag(base, where, kb)
    if base.facts.repository.endswith(("nvidia/cudagl", "nvidia/cudnn")):
        yield finding(
            "tag-deleted", "warning", where, f"{reference}: {base.facts.repository} is no longer published", "build on nvidia/cuda and add the GL packages", POLICY,
        )  # fmt: skip
    if re.search(r"anibali/pytorch|ufoym/deepo|continuumio/miniconda2?$|anaconda2", base.facts.repository):
        yield finding(
            "unmaintained-image",
            "warning",
            where,
            f"{base.facts.repository} is no longer maintained",
            "build on pytorch/pytorch or nvidia/cuda",
            "https://hub.docker.com/",
        )


def _pytorch_tag(base: Base, where: tuple[str, int | None], kb: Knowledge) -> Iterator[LintFinding]:
    """A pytorch/pytorch tag of a known release in a combination that was not published."""
    tag = base.facts.tag or ""
    found = re.fullmatch(r"(\d+\.\d+\.\d+)-cuda[\d.]+-cudnn\d+-(runtime|devel)", tag)
    if not base.facts.repository.endswith("pytorch/pytorch") or found is None:
        return
    known = [i.tag for i in kb.images if i.repository == "pytorch/pytorch" and i.tag.startswith(f"{found[1]}-")]
    if known and tag not in known:
        near = [t for t in known if t.endswith(found[2])]
        yield finding(
            "tag-unknown", "warning", where, f"{base.reference} is not among the published tags of {found[1]} known on {kb.date}",
            f"published: {', '.join(near)}", "https://hub.docker.com/r/pytorch/pytorch/tags",
        )  # fmt: skip


def _floating(base: Base, where: tuple[str, int | None]) -> Iterator[LintFinding]:
    tag = base.facts.tag
    if base.facts.kind in {"distribution"} and tag not in {None, "latest"}:
        return
    if tag is None or tag in {"latest", "main", "master", "nightly", "stable", "devel", "latest-gpu", "nightly-gpu"}:
        shown = f"{base.reference}:latest" if tag is None else base.reference
        yield finding(
            "floating-tag", "warning", where, f"{shown} moves: the next build may get another CUDA, Python or framework",
            "name a version, best with a digest", "https://docs.docker.com/build/building/best-practices/#pin-base-image-versions",
        )  # fmt: skip


def _cuda_tag(base: Base, where: tuple[str, int | None], kb: Knowledge) -> Iterator[LintFinding]:
    tag = base.facts.tag
    if tag is None or tag == "latest":
        yield finding(
            "no-latest-tag", "error", where, f"{base.reference}: nvidia/cuda has no 'latest' tag, it was removed: manifest unknown",
            f"name one: {_best(kb, None, 'base', 'ubuntu22.04')}", POLICY,
        )  # fmt: skip
        return
    row = base.row
    if row is not None and not row.deleted:
        if row.end_of_life is not None:
            yield finding(
                "tag-unsupported", "warning", where, f"{base.reference} still exists, but NVIDIA no longer supports or rebuilds it (end of life)",
                f"move on: {_best(kb, row.base_cuda, row.flavour, row.os, alive=True)}", row.source,
            )  # fmt: skip
        return
    if row is not None:
        yield finding(
            "tag-deleted", "error", where, f"{base.reference} was removed by NVIDIA: the pull ends with 'manifest unknown'",
            f"nearest that exists: {_nearest(tag, row, kb)}", row.source,
        )  # fmt: skip
        return
    yield from _unknown(base, tag, where, kb)


def _unknown(base: Base, tag: str, where: tuple[str, int | None], kb: Knowledge) -> Iterator[LintFinding]:
    cuda = re.match(r"^(\d+)\.(\d+)(?:\.(\d+))?(-|$)", tag)
    newest_known = max((t.tag.split("-")[0] for t in kb.base_tags), key=version_key)
    if not cuda:
        os_only = re.match(r"^(base|runtime|devel|cudnn\d*)?-?(ubuntu|centos|ubi)", tag)
        message = f"{base.reference}: nvidia/cuda has no such tag: a tag starts with the CUDA version"
        if os_only:
            message += " (the short tags were removed)"
        yield finding(
            "tag-unknown", "error", where, message, f"for example {_best(kb, None, 'base', 'ubuntu22.04')}", TAGS
        )
        return
    full = tag.split("-")[0]
    if version_key(full) > version_key(newest_known):
        yield finding(
            "tag-unknown", "warning", where, f"{base.reference} is newer than the data of {kb.date} (newest known: {newest_known})",
            "check that it exists, or run gpuimg kb update", TAGS,
        )  # fmt: skip
        return
    near = f"nearest that exists: {_nearest(tag, None, kb)}"
    major, minor = int(cuda[1]), int(cuda[2])
    old_cudnn = re.search(r"-cudnn(\d+)-", tag)
    has_os = re.search(r"(ubuntu|ubi|rockylinux|centos|opensuse|debian)", tag)
    if old_cudnn and (major, minor) >= (12, 4):
        reason = f"from CUDA 12.4 on the tags say 'cudnn', without a number: '{old_cudnn[0].strip('-')}' does not exist there"
    elif re.search(r"-cudnn-", tag) and (major, minor) < (12, 4):
        reason = "before CUDA 12.4 the tags name cuDNN's major (cudnn8)"
    elif not has_os:
        reason = "a tag without the operating system's suffix does not exist any more"
    elif cuda[3] is None:
        reason = "a tag needs the full CUDA version with its patch number"
    elif major < 11 or (major, minor) == (11, 0):
        reason = "tags of that age were removed"
    else:
        reason = "no such tag was ever published, or it was removed"
    yield finding("tag-unknown", "error", where, f"{base.reference} does not exist: {reason}", near, TAGS)


def _nearest(tag: str, row: BaseTag | None, kb: Knowledge) -> str:
    """The live tags most like one that is gone: same minor first, then the next."""
    cuda = re.match(r"^(\d+\.\d+)", tag)
    flavour = "devel" if "devel" in tag else "runtime" if "runtime" in tag else "base" if "base" in tag else "devel"
    if "cudnn" in tag and flavour != "base":
        flavour = f"cudnn-{flavour}"
    os_found = re.search(r"(ubuntu\d+\.\d+|ubi\d+|rockylinux\d+|centos\d+|opensuse\d+)", tag)
    return _best(kb, cuda[1] if cuda else None, flavour, os_found[1] if os_found else "ubuntu22.04")


def _best(kb: Knowledge, cuda: str | None, flavour: str, os_name: str, *, alive: bool = False) -> str:
    flavour = {"cudnn": "cudnn-runtime"}.get(flavour, flavour)
    live = [t for t in kb.base_tags if not t.deleted and (not alive or t.end_of_life is None) and t.flavour == flavour]
    if not live:
        live = [t for t in kb.base_tags if not t.deleted]
    wanted = version_key(cuda) if cuda else version_key("12.4")

    def order(tag: BaseTag) -> tuple[object, ...]:
        have = version_key(tag.tag.split("-")[0])
        same_minor = have.release[:2] == wanted.release[:2]
        same_major = have.release[:1] == wanted.release[:1]
        newer = have.release[:2] >= wanted.release[:2]
        distance = abs(have.release[0] * 100 + have.release[1] - wanted.release[0] * 100 - wanted.release[1])
        return (
            not same_minor,
            not same_major,
            not newer,
            distance,
            tag.os != os_name,
            not tag.os.startswith("ubuntu"),
            -have.micro,
        )

    ranked = sorted(live, key=order)
    names = [f"nvidia/cuda:{t.tag}" for t in ranked[:1]]
    other_os = next((t for t in ranked if t.os == os_name and f"nvidia/cuda:{t.tag}" not in names), None)
    if other_os is not None and ranked[0].os != os_name:
        names.append(f"nvidia/cuda:{other_os.tag}")
    return " or ".join(names)


def os_end_of_life(context: DockerContext, kb: Knowledge, today: datetime.date) -> Iterator[LintFinding]:
    """Distributions without updates: some mirrors are gone, others are only unsafe."""
    for view in context.views:
        base = view.base
        stage = context.dockerfile.root(view.stage)
        where = (context.file, stage.line)
        release = base.os
        interim = re.match(r"ubuntu(\d\d)\.(\d\d)$", base.facts.os or "")
        uses_apt = any(i.manager == "apt" for _, i in view.installs) or any(
            r.command.program in {"apt-get", "apt"} for r in view.runs
        )
        uses_yum = any(r.command.program in {"yum", "dnf", "microdnf"} for r in view.runs)
        mended = any(
            re.search(r"vault|archive\.debian\.org|old-releases|archive\.kernel|mirrors?\.", r.command.text)
            and r.command.program in {"sed", "echo", "curl", "wget", "cat", "printf", "tee"}
            for r in view.runs
        )
        if release is None:
            if (
                interim
                and (int(interim[1]) % 2 or interim[2] == "10")
                and datetime.date(2000 + int(interim[1]), int(interim[2]), 28) < today - datetime.timedelta(days=300)
            ):
                yield finding(
                    "os-eol", "error" if uses_apt and not mended else "warning", where,
                    f"{base.facts.os} had nine months of support and is gone from the mirrors: apt-get update ends with 404", "use ubuntu22.04 or ubuntu24.04", "https://wiki.ubuntu.com/Releases",
                )  # fmt: skip
            continue
        end = release.end_of_life
        if end is None or datetime.date.fromisoformat(end) >= today:
            continue
        age = (today - datetime.date.fromisoformat(end)).days
        if release.id.startswith(("centos", "ubi7")) and uses_yum and not mended:
            yield finding(
                "os-eol", "error", where, f"{release.id} ended on {end} (end of life): its mirror list is off, yum finds no repository",
                "use a rockylinux8/rockylinux9 or Ubuntu tag, or point yum at vault.centos.org", release.source,
            )  # fmt: skip
        elif release.id in {"debian8", "debian9", "debian10"} and uses_apt and not mended:
            yield finding(
                "os-eol", "error", where, f"{release.id} ended on {end} (end of life) and left the mirrors: apt-get update ends with 404",
                "use a bookworm tag, or point apt at archive.debian.org", release.source,
            )  # fmt: skip
        else:
            old = " apt still answers, but nothing is mended any more" if uses_apt and age < 4000 else ""
            yield finding(
                "os-eol", "warning", where, f"{release.id} reached its end of life on {end}: no security updates.{old}",
                "use ubuntu22.04 or ubuntu24.04", release.source,
            )  # fmt: skip


def old_cuda_repository(context: DockerContext, kb: Knowledge) -> Iterator[LintFinding]:
    """nvidia/cuda images from before May 2022 list repositories whose key was rotated, or that are gone."""
    for view in context.views:
        base = view.base
        if (
            not base.cuda_image
            or base.facts.os not in {"ubuntu16.04", "ubuntu18.04", "ubuntu20.04"}
            or base.facts.base_cuda is None
        ):
            continue
        if version_key(base.facts.base_cuda) >= version_key("11.7"):
            continue
        uses_apt = any(r.command.program in {"apt-get", "apt"} for r in view.runs)
        mended = any(
            re.search(r"3bf863cc|cuda-keyring|rm .*(cuda|nvidia-ml)\S*\.list", r.command.text) for r in view.runs
        )
        if not uses_apt or mended:
            continue
        ml = base.facts.os in {"ubuntu16.04", "ubuntu18.04"}
        yield finding(
            "apt-key", "warning", (context.file, context.dockerfile.root(view.stage).line),
            f"{base.reference}: images of that age were first published with the repository key 7fa2af80, rotated in April 2022"
            + (", and with the machine-learning repository (nvidia-ml.list), which is gone" if ml else "")
            + ": a cached or mirrored copy fails in apt-get update (NO_PUBKEY A4B469963BF863CC, 404)",
            "pull the tag again, remove /etc/apt/sources.list.d/cuda.list and nvidia-ml.list before apt-get update, or use a newer base",
            "https://developer.nvidia.com/blog/updating-the-cuda-linux-gpg-repository-key/",
        )  # fmt: skip
