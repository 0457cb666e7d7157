"""File names and kinds that do not carry over: letter case, names Linux or Windows lacks, binaries, scripts, line ends."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpuimg.nouns import LintFinding
from gpuimg.project.moving.walk import Entry

GIT_EOL = "https://git-scm.com/docs/gitattributes#_end_of_line_conversion"
CASE = "https://peps.python.org/pep-0235/"


def names(entries: Sequence[Entry]) -> Iterator[LintFinding]:
    """Names that differ in letter case only, binaries of Windows, links out of the folder."""
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        groups[entry.name.lower()].append(entry)
    for same in groups.values():
        if len(same) > 1:
            listed = ", ".join(e.name for e in same)
            yield LintFinding(
                "case-clash",
                "warning",
                same[0].name,
                None,
                f"{listed} differ in letter case only: on Windows and macOS one of them was never there",
                "keep one",
                CASE,
            )
    stems = {
        re.sub(r"\.(so|dll|pyd|dylib)$", "", e.name) for e in entries if e.name.endswith(".so") or ".so." in e.name
    }
    for entry in entries:
        low = entry.name.lower()
        if low.endswith((".pyd", ".dll")):
            stem = re.sub(r"\.(pyd|dll)$", "", entry.name)
            if stem in stems:
                continue
            yield LintFinding(
                "windows-binary",
                "error" if low.endswith(".pyd") else "warning",
                entry.name,
                None,
                "a library compiled for Windows: Linux cannot load it",
                "build or install the Linux version (.so)",
                "https://docs.python.org/3/faq/windows.html#is-a-pyd-file-the-same-as-a-dll",
            )
        elif low.endswith(".exe"):
            yield LintFinding(
                "windows-binary",
                "warning",
                entry.name,
                None,
                "a program for Windows",
                "install the Linux version",
                "https://docs.python.org/3/using/windows.html",
            )
        elif low.endswith(".lnk"):
            yield LintFinding(
                "windows-link",
                "warning",
                entry.name,
                None,
                "a shortcut of Windows is an ordinary file on Linux",
                "use a symbolic link",
                "https://docs.python.org/3/library/os.html#os.symlink",
            )
        elif low.endswith((".bat", ".cmd", ".ps1")):
            twin = re.sub(r"\.(bat|cmd|ps1)$", ".sh", entry.name)
            if not any(e.name == twin for e in entries):
                yield LintFinding(
                    "windows-script",
                    "warning",
                    entry.name,
                    None,
                    "a script of Windows, and there is no .sh beside it",
                    f"write {twin.rsplit('/', 1)[-1]}",
                    "https://www.gnu.org/software/bash/manual/",
                )
        if entry.symlink_to is not None and re.match(r"^([A-Za-z]:|/)", entry.symlink_to):
            yield LintFinding(
                "absolute-link",
                "warning",
                entry.name,
                None,
                f"a link to {entry.symlink_to}: it points out of the project",
                "use a relative link, or copy the file",
                "https://docs.python.org/3/library/os.html#os.symlink",
            )


def script(data: bytes, entry: Entry) -> Iterator[LintFinding]:
    """CRLF in what the shell or the kernel reads, and sources that are no UTF-8."""
    low = entry.name.lower()
    first, _, _ = data.partition(b"\n")
    shebang = data.startswith(b"#!")
    if shebang and first.endswith(b"\r"):
        yield LintFinding(
            "crlf-shebang",
            "error",
            entry.name,
            1,
            "the first line ends with CR LF: 'bad interpreter: No such file or directory'",
            "dos2unix, and '*.sh text eol=lf' in .gitattributes",
            GIT_EOL,
        )
    elif low.endswith((".sh", ".bash")) and b"\r\n" in data:
        line = data[: data.index(b"\r\n")].count(b"\n") + 1
        yield LintFinding(
            "crlf-script",
            "error",
            entry.name,
            line,
            "a shell script with CR LF line ends: every command gets a \\r",
            "dos2unix, and '*.sh text eol=lf' in .gitattributes",
            GIT_EOL,
        )
    if data.startswith(b"\xef\xbb\xbf#!"):
        yield LintFinding(
            "bom-shebang",
            "error",
            entry.name,
            1,
            "a byte order mark stands before '#!': the kernel does not see it",
            "save without BOM",
            GIT_EOL,
        )
    if low.endswith(".py"):
        declared = re.search(rb"coding[:=]\s*([-\w.]+)", b"\n".join(data.split(b"\n")[:2]))
        try:
            data.decode(declared[1].decode() if declared else "utf-8-sig")
        except (UnicodeDecodeError, LookupError):
            yield LintFinding(
                "source-encoding",
                "error",
                entry.name,
                None,
                "the source is not UTF-8 and names no encoding: SyntaxError: Non-UTF-8 code",
                "save it as UTF-8",
                "https://peps.python.org/pep-0263/",
            )


def import_case(
    dotted: Sequence[tuple[str, str, tuple[str, ...], int]], entries: Sequence[Entry]
) -> Iterator[LintFinding]:
    """``from Utils import x`` where the file is utils.py: found on Windows and macOS, not on Linux.

    ``dotted`` holds (importing file, module, names, line).
    """
    modules: dict[str, str] = {}
    for entry in entries:
        if entry.name.endswith(".py"):
            stem = entry.name[:-3]
            modules.setdefault(stem.lower(), stem)
            parts = stem.split("/")
            for end in range(1, len(parts)):
                folder = "/".join(parts[:end])
                modules.setdefault(folder.lower(), folder)
    exact = set(modules.values())
    for entry in entries:
        if entry.name.endswith(".py"):
            exact.add(entry.name[:-3])
    for file, module, names_, line in dotted:
        bases = ["", *([file.rsplit("/", 1)[0] + "/"] if "/" in file else [])]
        path = module.replace(".", "/")
        for base in bases:
            candidate = f"{base}{path}"
            found = modules.get(candidate.lower())
            if found is not None and candidate not in exact and found != candidate:
                yield LintFinding(
                    "import-case",
                    "error",
                    file,
                    line,
                    f"import {module}: the file is {found}.py or {found}/, and Linux tells upper from lower case",
                    f"import {found.removeprefix(base).replace('/', '.')}",
                    CASE,
                )
                break
            if found is not None:
                for name in names_:
                    inner = f"{candidate}/{name}"
                    real = modules.get(inner.lower())
                    if real is not None and inner not in exact and real != inner:
                        yield LintFinding(
                            "import-case",
                            "error",
                            file,
                            line,
                            f"from {module} import {name}: the file is {real}.py, and Linux tells upper from lower case",
                            f"import {real.rsplit('/', 1)[-1]}",
                            CASE,
                        )
                break
