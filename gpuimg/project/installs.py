"""Install commands in shell text → what they install, from where, for which Python: pip, uv, conda, apt, yum, apk …"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from gpuimg.nouns import Requirement
from gpuimg.project.entries import Index, IndexKind, conda_requirement, pip_requirement
from gpuimg.project.shell import Command

Manager = Literal["pip", "uv", "conda", "apt", "yum", "apk", "poetry", "pipenv", "pixi"]

_PIP_VALUE = {
    "-t", "--target", "--prefix", "--root", "--src", "--python", "-p", "--platform", "--python-version",
    "--implementation", "--abi", "--progress-bar", "--timeout", "--retries", "--trusted-host", "--cache-dir",
    "--proxy", "--cert", "--no-binary", "--only-binary", "--config-settings", "-C", "--global-option",
    "--build-option", "--install-option", "--upgrade-strategy", "--root-user-action", "--log", "--exists-action",
    "--report", "--use-feature", "--torch-backend", "--index-strategy", "--keyring-provider", "--resolution",
    "--prerelease", "--exclude-newer", "--link-mode", "--default-timeout", "--no-build-isolation-package",
    "--extra", "--group", "--override", "--overrides", "--python-platform", "--refresh-package",
    "--reinstall-package", "-P", "--upgrade-package", "--directory", "--project", "--config-file",
    "--allow-insecure-host", "--package", "--no-group", "--only-group", "--with",
}  # fmt: skip
_INDEX: dict[str, IndexKind] = {
    "-i": "index-url", "--index-url": "index-url", "--pypi-url": "index-url", "--default-index": "index-url",
    "--extra-index-url": "extra-index-url", "--index": "extra-index-url", "-f": "find-links",
    "--find-links": "find-links",
}  # fmt: skip
_PIP_FILES = {
    "-r", "--requirement", "--requirements", "-c", "--constraint", "--constraints", "-b", "--build-constraint",
}  # fmt: skip
_CONDA_VALUE = {
    "-n",
    "--name",
    "-p",
    "--prefix",
    "--solver",
    "--experimental-solver",
    "--repodata-fn",
    "--platform",
    "--subdir",
    "-r",
    "--root-prefix",
}
_APT_VALUE = {"-o", "-t", "--target-release", "-c", "--option"}


@dataclass(frozen=True)
class Install:
    """One install command. ``texts`` are the package words as written, ``requirements`` what they mean."""

    manager: Manager
    line: int
    executable: str
    texts: tuple[str, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    files: tuple[str, ...] = ()
    """Requirements or environment files."""
    constraint_files: tuple[str, ...] = ()
    local_paths: tuple[str, ...] = ()
    """``.``, ``-e ./ext``: source trees that are built."""
    indexes: tuple[Index, ...] = ()
    channels: tuple[str, ...] = ()
    flags: frozenset[str] = field(default_factory=frozenset)
    options: tuple[tuple[str, str], ...] = ()
    python: str | None = None
    """'3.10' for ``pip3.10`` and ``python3.10 -m pip``, a uv ``--python``."""
    python_exe: str | None = None
    """Interpreter path in ``X -m pip``."""
    environment: str | None = None
    """conda environment or virtual environment it goes to, where the command says so."""
    words: tuple[str, ...] = ()
    conditional: bool = False
    """Inside if/case: it may not run."""

    def option(self, *names: str) -> str | None:
        return next((v for k, v in self.options if k in names), None)


def installs(found: Iterable[Command], file: str) -> tuple[Install, ...]:
    """The install commands among simple commands, in order."""
    made: list[Install] = []
    for command in found:
        made.extend(replace(i, conditional=command.conditional) for i in _of(command.words, command.line, file))
    return tuple(made)


def _of(words: tuple[str, ...], line: int, file: str) -> list[Install]:
    if not words:
        return []
    program = words[0].rsplit("/", 1)[-1]
    rest = words[1:]
    if program in {"conda", "mamba", "micromamba"} and rest and rest[0] == "run":
        inner = list(rest[1:])
        environment = None
        while inner and inner[0].startswith("-"):
            flag = inner.pop(0)
            if flag in {"-n", "--name", "-p", "--prefix"} and inner:
                environment = inner.pop(0)
        return [_with_environment(i, environment or "base") for i in _of(tuple(inner), line, file)]
    pip_version = re.fullmatch(r"pip(\d(?:\.\d+)?)?", program)
    if pip_version:
        return _pip("pip", words[0], rest, line, file, _minor(pip_version[1]), None)
    python = re.fullmatch(r"(?:python|pypy)(\d(?:\.\d+)?)?", program)
    if python or program in {"$PYTHON", "${PYTHON}"}:
        for index, word in enumerate(rest):
            if word == "-m" and index + 1 < len(rest):
                if rest[index + 1] == "pip":
                    return _pip(
                        "pip", words[0], rest[index + 2 :], line, file, _minor(python[1]) if python else None, words[0]
                    )
                if rest[index + 1] == "uv":
                    return _of(("uv", *rest[index + 2 :]), line, file)
                break
            if not word.startswith("-"):
                break
        return []
    if program == "uv":
        plain = [
            w
            for w in rest
            if w not in {"-q", "--quiet", "-v", "--verbose", "--no-cache", "-n", "--no-progress", "--native-tls"}
        ]
        extra = [w for w in rest if w in {"--no-cache", "-n"}]
        if len(plain) > 1 and plain[0] == "pip" and plain[1] in {"install", "sync"}:
            made = _pip("uv", words[0], ("install", *plain[2:], *extra), line, file, None, None)
            if plain[1] == "sync":
                return [_sync(i) for i in made]
            return made
        if plain and plain[0] in {"add", "sync"}:
            return _pip("uv", words[0], ("install", *plain[1:], *extra), line, file, None, None, project=True)
        return []
    if program in {"conda", "mamba", "micromamba"}:
        return _conda(words, line, file)
    if program in {"apt-get", "apt", "aptitude", "apt-fast"}:
        return _packages("apt", words, line, _APT_VALUE)
    if program in {"yum", "dnf", "microdnf", "zypper", "tdnf"}:
        return _packages("yum", words, line, {"--setopt", "--releasever", "-c", "--enablerepo", "--disablerepo"})
    if program == "apk":
        return _packages("apk", words, line, {"-t", "--virtual", "-X", "--repository"}, verbs={"add"})
    if program == "poetry" and rest and rest[0] in {"install", "add"}:
        texts = tuple(w for w in rest[1:] if not w.startswith("-"))
        return [_plain("poetry", words, line, file, texts if rest[0] == "add" else ())]
    if program == "pipenv" and rest and rest[0] in {"install", "sync"}:
        return [_plain("pipenv", words, line, file, tuple(w for w in rest[1:] if not w.startswith("-")))]
    return []


def _plain(manager: Manager, words: tuple[str, ...], line: int, file: str, texts: tuple[str, ...]) -> Install:
    found = tuple(r for t in texts if (r := pip_requirement(t, file=file, line=line)) is not None)
    return Install(
        manager,
        line,
        words[0],
        texts,
        found,
        flags=frozenset(w.split("=")[0] for w in words if w.startswith("-")),
        words=words,
    )


def _minor(text: str | None) -> str | None:
    return text if text and "." in text else None


def _with_environment(made: Install, environment: str) -> Install:
    return replace(made, environment=environment)


def _sync(made: Install) -> Install:
    files = (*made.files, *(p for p in (*made.texts, *made.local_paths) if p.endswith((".txt", ".toml", ".in"))))
    return replace(made, files=files, texts=(), requirements=(), local_paths=())


def _pip(
    manager: Manager, executable: str, rest: tuple[str, ...], line: int, file: str, python: str | None,
    python_exe: str | None, *, project: bool = False,
) -> list[Install]:  # fmt: skip
    words = list(rest)
    before: list[str] = []
    while words and words[0] not in {"install", "download", "wheel"}:
        word = words.pop(0)
        if not word.startswith("-"):
            return []
        before.append(word)
        if word in _PIP_VALUE and words and "=" not in word:
            before.append(words.pop(0))
    if not words or words[0] != "install":
        return []
    words.pop(0)
    words = before + words
    texts: list[str] = []
    requirements: list[Requirement] = []
    files: list[str] = []
    constraint_files: list[str] = []
    local_paths: list[str] = []
    indexes: list[Index] = []
    flags: set[str] = set()
    options: list[tuple[str, str]] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word.startswith("-") and word != "-":
            name, equals, value = word.partition("=")
            short = re.match(r"^(-[ircefpt])([^-].*)$", word) if not word.startswith("--") else None
            if short:
                name, equals, value = short[1], "=", short[2]
            takes = name in _PIP_VALUE or name in _INDEX or name in _PIP_FILES or name in {"-e", "--editable"}
            if project and name in {"-p", "--python"}:
                takes = True
            if takes and not equals and position < len(words):
                value = words[position]
                position += 1
            kind = _INDEX.get(name)
            if kind is not None:
                if value:
                    url = value.split("=", 1)[1] if name == "--index" and re.match(r"^[\w-]+=https?:", value) else value
                    indexes.append(Index(url, kind, file, line))
            elif name in {"-r", "--requirement", "--requirements"}:
                files.append(value)
            elif name in {"-c", "--constraint", "--constraints"}:
                constraint_files.append(value)
            elif name in {"-e", "--editable"}:
                flags.add("--editable")
                _package(value, file, line, texts, requirements, local_paths)
            else:
                flags.add(name)
                if value:
                    options.append((name, value))
                if name in {"-p", "--python"}:
                    python = python or _python_option(value)
                    python_exe = python_exe or (value if "/" in value else None)
                elif re.fullmatch(r"-[A-Za-z]{2,4}", word):
                    flags.update(f"-{letter}" for letter in word[1:])
        else:
            _package(word, file, line, texts, requirements, local_paths)
    return [
        Install(
            manager,
            line,
            executable,
            tuple(texts),
            tuple(requirements),
            tuple(files),
            tuple(constraint_files),
            tuple(local_paths),
            tuple(indexes),
            (),
            frozenset(flags),
            tuple(options),
            python,
            python_exe,
            words=(executable, *rest),
        )
    ]


def _python_option(value: str) -> str | None:
    found = re.search(r"(?:^|python)(3\.\d+)(?:\.\d+)?$", value)
    return found[1] if found else None


def _package(
    word: str, file: str, line: int, texts: list[str], requirements: list[Requirement], local_paths: list[str]
) -> None:
    if not word:
        return
    texts.append(word)
    is_path = re.match(r"^(\.{1,2}(/|$|\[)|/|~)", word) is not None or (
        "/" in word and "://" not in word and " @ " not in word and not word.startswith("git+")
    )
    if is_path and not re.search(r"\.(whl|tar\.gz|zip)(\[|$)", word):
        local_paths.append(word)
        return
    made = pip_requirement(word, file=file, line=line)
    if made is not None:
        requirements.append(made)


def _conda(words: tuple[str, ...], line: int, file: str) -> list[Install]:
    rest = list(words[1:])
    flags: set[str] = set()
    channels: list[str] = []
    texts: list[str] = []
    files: list[str] = []
    options: list[tuple[str, str]] = []
    environment: str | None = None
    verbs: list[str] = []
    position = 0
    while position < len(rest):
        word = rest[position]
        position += 1
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            takes = name in _CONDA_VALUE or name in {"-c", "--channel", "-f", "--file"}
            if name in {"-f"} and verbs[:1] != ["env"] and words[0].endswith("conda") and "create" not in verbs:
                takes = position < len(rest) and rest[position].endswith((".yml", ".yaml", ".txt"))
            if takes and not equals and position < len(rest):
                value = rest[position]
                position += 1
            if name in {"-c", "--channel"}:
                channels.append(value)
            elif name in {"-f", "--file"} and value:
                files.append(value)
            elif name in {"-n", "--name", "-p", "--prefix"}:
                environment = value
            else:
                flags.add(name)
                if value:
                    options.append((name, value))
        elif not verbs or (verbs == ["env"] and word in {"create", "update"}):
            verbs.append(word)
        else:
            texts.append(word)
    if not verbs or (
        verbs[0] not in {"install", "create", "update"} and verbs[:2] not in (["env", "create"], ["env", "update"])
    ):
        return []
    joined: list[str] = []
    for text in texts:
        if joined and re.match(r"^[<>=!~]", text):
            joined[-1] += text
        else:
            joined.append(text)
    made = tuple(r for t in joined if (r := conda_requirement(t, file=file, line=line)) is not None)
    channels += [t.partition("::")[0] for t in joined if "::" in t]
    python = next((r.specifier for r in made if r.name == "python"), None)
    minor = re.match(r"^==(3\.\d+)", python or "")
    return [
        Install(
            "conda",
            line,
            words[0],
            tuple(joined),
            made,
            tuple(files),
            channels=tuple(dict.fromkeys(channels)),
            flags=frozenset(flags),
            options=tuple(options),
            python=minor[1] if minor else None,
            environment=environment,
            words=words,
        )
    ]


def _packages(
    manager: Manager, words: tuple[str, ...], line: int, with_value: set[str], verbs: set[str] | None = None
) -> list[Install]:
    wanted = verbs or {"install", "reinstall", "groupinstall", "localinstall"}
    rest = list(words[1:])
    flags: set[str] = set()
    plain: list[str] = []
    position = 0
    while position < len(rest):
        word = rest[position]
        position += 1
        if word.startswith("-"):
            flags.add(word.split("=")[0])
            if re.fullmatch(r"-[a-z]{2,4}", word):
                flags.update(f"-{letter}" for letter in word[1:])
            if word in with_value and position < len(rest):
                position += 1
        else:
            plain.append(word)
    if not plain or plain[0] not in wanted:
        return []
    return [Install(manager, line, words[0], tuple(plain[1:]), flags=frozenset(flags), words=words)]
