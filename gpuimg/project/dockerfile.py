"""Dockerfiles as BuildKit reads them: directives, stages, ARG and ENV in scope, heredocs, continued lines, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuimg.errors import BadInput
from gpuimg.project.shell import Command, commands, substitute

KEYWORDS = (
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER", "ONBUILD",
    "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
)  # fmt: skip
PREDEFINED_ARGS = {
    "TARGETPLATFORM",
    "TARGETOS",
    "TARGETARCH",
    "TARGETVARIANT",
    "BUILDPLATFORM",
    "BUILDOS",
    "BUILDARCH",
    "BUILDVARIANT",
}
_HEREDOC = re.compile(r"<<(-?)\s*([\"']?)([A-Za-z_][\w.-]*)\2")


@dataclass(frozen=True)
class Heredoc:
    """``<<EOF`` of a RUN, COPY or ADD line; ``line`` is where its content starts."""

    delimiter: str
    content: str
    line: int
    target: str = ""


@dataclass(frozen=True)
class Instruction:
    """One instruction. ``value`` is the text after keyword and flags, comment lines blanked, continuations kept."""

    keyword: str
    value: str
    line: int
    flags: tuple[tuple[str, str], ...] = ()
    exec_form: tuple[str, ...] | None = None
    heredocs: tuple[Heredoc, ...] = ()
    raw_keyword: str = ""

    def flag(self, name: str) -> str | None:
        """Value of ``--name=value``."""
        return next((v for k, v in self.flags if k == name), None)

    @property
    def one_line(self) -> str:
        """The value with continuations joined."""
        return re.sub(r"\s*\\\n\s*", " ", self.value).strip()


@dataclass(frozen=True)
class Step:
    """An instruction with what is in scope when it runs."""

    instruction: Instruction
    env: Mapping[str, str]
    args: Mapping[str, str]
    user: str | None
    workdir: str
    shell: tuple[str, ...]

    @property
    def variables(self) -> Mapping[str, str]:
        """ENV over ARG, as BuildKit."""
        return {**self.args, **self.env}

    def commands(self) -> tuple[Command, ...]:
        """Simple commands of a RUN; of CMD and ENTRYPOINT the one they start. Empty for other instructions."""
        made = self.instruction
        if made.keyword not in {"RUN", "CMD", "ENTRYPOINT"}:
            return ()
        if made.exec_form is not None:
            words = made.exec_form
            if len(words) > 2 and words[0].rsplit("/", 1)[-1] in {"sh", "bash"} and re.match(r"^-[a-z]*c$", words[1]):
                return commands(words[2], made.line, self.variables)
            return (Command(words, made.line, text=" ".join(words)),) if words else ()
        if made.heredocs and made.keyword == "RUN":
            head = _HEREDOC.sub("", made.value).strip()
            found: list[Command] = []
            if re.fullmatch(r"(?:/\S+/)?(?:bash|sh|dash)?(?:\s+-\S+)*", head):
                for doc in made.heredocs:
                    found.extend(commands(doc.content, doc.line, self.variables))
                return tuple(found)
            return commands(head, made.line, self.variables)
        return commands(made.value, made.line, self.variables)


@dataclass(frozen=True)
class Stage:
    """One FROM and what follows it. ``base`` has ARGs put in; what is unknown stays as ``${NAME}``."""

    index: int
    name: str | None
    base: str
    written: str
    line: int
    platform: str | None
    steps: tuple[Step, ...] = ()
    unset_args: tuple[str, ...] = ()
    """Names in FROM that no ARG before the first FROM gives a value."""
    late_args: tuple[str, ...] = ()
    """… of these, the ones declared only inside a stage, out of FROM's scope."""
    env: Mapping[str, str] = field(default_factory=dict)
    """ENV at the end, the parents' included."""
    user: str | None = None
    """USER in force at the end, the parents' included."""
    parent: int | None = None
    """Index of the stage it is built on."""


@dataclass(frozen=True)
class Dockerfile:
    """A parsed Dockerfile."""

    file: str
    stages: tuple[Stage, ...]
    global_args: Mapping[str, str | None]
    directives: Mapping[str, str]
    problems: tuple[tuple[int, str], ...] = ()
    """(line, what BuildKit would refuse)."""

    @property
    def final(self) -> Stage:
        """The stage that becomes the image."""
        return self.stages[-1]

    def chain(self, stage: Stage) -> tuple[Stage, ...]:
        """The stage and the ones it is built on, root first."""
        found = [stage]
        while found[-1].parent is not None and len(found) <= len(self.stages):
            found.append(self.stages[found[-1].parent])
        return tuple(reversed(found))

    def root(self, stage: Stage) -> Stage:
        """The stage whose base is an image, not another stage."""
        return self.chain(stage)[0]

    def used(self) -> tuple[Stage, ...]:
        """Stages that the final image needs (FROM, COPY --from, --mount from), in order."""
        wanted = {self.final.index}
        for stage in reversed(self.stages):
            if stage.index not in wanted:
                continue
            if stage.parent is not None:
                wanted.add(stage.parent)
            for step in stage.steps:
                made = step.instruction
                mounts = " ".join(v for k, v in made.flags if k == "mount")
                sources = [made.flag("from"), *re.findall(r"from=([\w.-]+)", mounts)]
                for source in sources:
                    target = self.stage_named(source, before=stage.index) if source else None
                    if target is not None:
                        wanted.add(target.index)
        return tuple(s for s in self.stages if s.index in wanted)

    def stage_named(self, name: str, *, before: int | None = None) -> Stage | None:
        """A stage by name or number."""
        limit = len(self.stages) if before is None else before
        for stage in self.stages[:limit]:
            if (stage.name or "").lower() == name.lower() or str(stage.index) == name:
                return stage
        return None


def parse_dockerfile(text: str, file: str, build_args: Mapping[str, str] | None = None) -> Dockerfile:
    """Reads a Dockerfile. Raises BadInput with file and line when it has no FROM or an unknown instruction."""
    given = dict(build_args or {})
    directives, instructions = _instructions(text, file)
    problems: list[tuple[int, str]] = []
    global_args: dict[str, str | None] = {}
    stages: list[Stage] = []
    open_stage: dict[str, object] | None = None
    steps: list[Step] = []
    env: dict[str, str] = {}
    args: dict[str, str] = {}
    user: str | None = None
    workdir = "/"
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    in_stage_args = _stage_args(instructions)

    def close() -> None:
        if open_stage is not None:
            stages.append(Stage(steps=tuple(steps), env=dict(env), user=user, **open_stage))  # type: ignore[arg-type]

    for made in instructions:
        if made.keyword == "FROM":
            close()
            words = made.one_line.split()
            if not words:
                raise BadInput.at(file, made.line, "FROM names no image")
            written = words[0].strip("\"'")
            name = None
            if len(words) >= 3 and words[1].lower() == "as":
                name = words[2]
            elif len(words) > 1:
                problems.append((made.line, "FROM takes an image and 'AS name', nothing else"))
            known = {k: v for k, v in global_args.items() if v is not None}
            unset = tuple(
                n
                for n in variable_names(written)
                if not known.get(n) and not _has_default(written, n) and n not in PREDEFINED_ARGS
            )
            base = substitute(written, known)
            parent = next((s for s in reversed(stages) if (s.name or "").lower() == base.lower()), None)
            env, user, workdir, shell = ({}, None, "/", ("/bin/sh", "-c"))
            if parent is not None:
                last = parent.steps[-1] if parent.steps else None
                env, user = dict(parent.env), parent.user
                workdir = last.workdir if last else "/"
                shell = last.shell if last else shell
            args = {}
            steps = []
            open_stage = {
                "index": len(stages), "name": name, "base": base, "written": written, "line": made.line,
                "platform": made.flag("platform"), "unset_args": unset,
                "late_args": tuple(n for n in unset if n in in_stage_args and n not in global_args),
                "parent": parent.index if parent is not None else None,
            }  # fmt: skip
            continue
        if open_stage is None:
            if made.keyword != "ARG":
                raise BadInput.at(file, made.line, f"{made.keyword} stands before the first FROM; only ARG may")
            known = {k: v for k, v in global_args.items() if v is not None}
            for key, value in _assignments(made.one_line):
                global_args[key] = given.get(key, substitute(value, known) if value is not None else None)
            continue
        step = Step(made, dict(env), dict(args), user, workdir, shell)
        steps.append(step)
        variables = {**args, **env}
        if made.keyword == "ARG":
            for key, value in _assignments(made.one_line):
                default = substitute(value, variables) if value is not None else global_args.get(key)
                chosen = given.get(key, default)
                if chosen is not None:
                    args[key] = chosen
        elif made.keyword == "ENV":
            for key, value in env_pairs(made.value):
                env[key] = substitute(value, variables)
        elif made.keyword == "USER":
            user = substitute(made.one_line, variables)
        elif made.keyword == "WORKDIR":
            target = substitute(made.one_line.strip("\"'"), variables)
            workdir = target if target.startswith("/") else f"{workdir.rstrip('/')}/{target}"
        elif made.keyword == "SHELL" and made.exec_form:
            shell = made.exec_form
    close()
    if not stages:
        raise BadInput.at(file, 1, "is no Dockerfile: there is no FROM")
    return Dockerfile(file, tuple(stages), global_args, directives, tuple(problems))


def _stage_args(instructions: list[Instruction]) -> set[str]:
    inside = False
    names: set[str] = set()
    for made in instructions:
        if made.keyword == "FROM":
            inside = True
        elif made.keyword == "ARG" and inside:
            names.update(k for k, _ in _assignments(made.one_line))
    return names


def variable_names(text: str) -> tuple[str, ...]:
    """Names of the variables in a text, in order."""
    return tuple(dict.fromkeys(a or b for a, b in re.findall(r"\$(?:\{([A-Za-z_]\w*)|([A-Za-z_]\w*))", text)))


def _has_default(text: str, name: str) -> bool:
    return re.search(r"\$\{" + re.escape(name) + r":?[-+]", text) is not None


def _assignments(text: str) -> list[tuple[str, str | None]]:
    """``ARG A=1 B="x y" C`` → pairs; None where there is no value."""
    pairs: list[tuple[str, str | None]] = []
    for word in _words(text):
        key, equals, value = word.partition("=")
        if re.fullmatch(r"[A-Za-z_][\w.-]*", key):
            pairs.append((key, _unquote(value) if equals else None))
    return pairs


def env_pairs(value: str) -> list[tuple[str, str]]:
    """Pairs of an ENV instruction: ``A=1 B="x y"``, or the old ``A the rest of the line``."""
    text = re.sub(r"\s*\\\n\s*", " ", value).strip()
    first = text.split(None, 1)
    if not first:
        return []
    if "=" not in first[0]:
        return [(first[0], _unquote(first[1].strip()))] if len(first) > 1 else []
    return [(k, v or "") for k, v in _assignments(text)]


def _words(text: str) -> list[str]:
    """Blank-separated words; quotes group and are kept, a backslash keeps the next character."""
    words: list[str] = []
    current = ""
    quote = ""
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\" and position + 1 < len(text) and quote != "'":
            current += text[position : position + 2]
            position += 2
            continue
        if quote:
            quote = "" if char == quote else quote
            current += char
        elif char in "\"'":
            quote = char
            current += char
        elif char.isspace():
            if current:
                words.append(current)
            current = ""
        else:
            current += char
        position += 1
    if current:
        words.append(current)
    return words


def _unquote(text: str) -> str:
    """Quotes and escapes removed as BuildKit does; ``\\$`` is kept for later substitution."""
    out: list[str] = []
    quote = ""
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\" and position + 1 < len(text) and quote != "'":
            following = text[position + 1]
            out.append("\\$" if following == "$" else following)
            position += 2
            continue
        if not quote and char in "\"'":
            quote = char
        elif quote and char == quote:
            quote = ""
        else:
            out.append("\\$" if char == "$" and quote == "'" else char)
        position += 1
    return "".join(out)


def _instructions(text: str, file: str) -> tuple[dict[str, str], list[Instruction]]:
    lines = text.split("\n")
    directives: dict[str, str] = {}
    escape = "\\"
    for line in lines:
        found = re.match(r"^\s*#\s*([A-Za-z]+)\s*=\s*(.+?)\s*$", line)
        if not found:
            break
        directives[found[1].lower()] = found[2]
    if directives.get("escape") == "`":
        escape = "`"
    made: list[Instruction] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        if not line.strip() or line.lstrip().startswith("#"):
            number += 1
            continue
        start = number
        parts: list[str] = []
        while number < len(lines):
            current = lines[number]
            stripped = current.rstrip()
            if parts and (not stripped or stripped.lstrip().startswith("#")):
                # BuildKit skips empty and comment lines inside a continued instruction; keep the line count
                parts.append("\\")
                number += 1
                continue
            number += 1
            if re.search(r"(?:^|[^" + re.escape(escape) + r"])" + re.escape(escape) + r"$", stripped):
                parts.append(stripped[:-1] + "\\")
                continue
            parts.append(stripped)
            break
        while parts and parts[-1] == "\\":
            parts.pop()
        content = "\n".join(parts)
        if content.endswith("\\"):
            content = content[:-1]
        keyword_match = re.match(r"^\s*([A-Za-z]+)(?:\s+|(?=\\\n)|$)", content)
        if not keyword_match:
            raise BadInput.at(file, start + 1, f"is no Dockerfile instruction: {lines[start].strip()[:40]!r}")
        keyword = keyword_match[1].upper()
        if keyword not in KEYWORDS:
            raise BadInput.at(
                file, start + 1, f"unknown instruction {keyword_match[1]!r}", allowed=KEYWORDS, value=keyword
            )  # fmt: skip
        value = content[keyword_match.end() :]
        docs: list[Heredoc] = []
        if keyword in {"RUN", "COPY", "ADD"}:
            for mark in _HEREDOC.finditer(value):
                delimiter = mark[3]
                doc_start = number
                body: list[str] = []
                ended = False
                while number < len(lines):
                    content_line = lines[number].lstrip("\t") if mark[1] else lines[number]
                    number += 1
                    if content_line.rstrip() == delimiter:
                        ended = True
                        break
                    body.append(content_line)
                if not ended:
                    if "\n" in value or keyword == "RUN":
                        # a here-document of the shell inside one continued RUN, not of BuildKit
                        number = doc_start
                        break
                    raise BadInput.at(file, start + 1, f"the here-document {delimiter} does not end")
                docs.append(Heredoc(delimiter, "\n".join(body), doc_start + 1))
        made.append(_finish(keyword, keyword_match[1], value, start + 1, tuple(docs)))
    return directives, made


def _finish(keyword: str, raw: str, value: str, line: int, docs: tuple[Heredoc, ...]) -> Instruction:
    flags: list[tuple[str, str]] = []
    if keyword in {"FROM", "RUN", "COPY", "ADD", "HEALTHCHECK"}:
        while True:
            found = re.match(r"^(?:\s|\\\n)*--([a-z][a-z-]*)(?:=((?:\"[^\"]*\"|[^\s])*))?(?:\s|\\\n|$)", value)
            if not found:
                break
            flags.append((found[1], (found[2] or "").strip('"')))
            value = _blank(value[: found.end()]) + value[found.end() :]
    exec_form: tuple[str, ...] | None = None
    joined = re.sub(r"\\\n", " ", value).strip()
    if keyword in {"RUN", "CMD", "ENTRYPOINT", "SHELL", "COPY", "ADD", "VOLUME"} and joined.startswith("["):
        try:
            parsed = json.loads(joined)
        except (json.JSONDecodeError, RecursionError):
            parsed = None
        if isinstance(parsed, list) and all(isinstance(p, str) for p in parsed):
            exec_form = tuple(parsed)
    return Instruction(keyword, value, line, tuple(flags), exec_form, docs, raw)


def _blank(text: str) -> str:
    """Only the continued line ends, so that lines can still be counted."""
    return "\\\n" * text.count("\n")
