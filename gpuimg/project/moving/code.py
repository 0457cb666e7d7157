"""Python sources: imports, and what in the code holds on Windows or macOS only. Read with ``ast``, nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpuimg.nouns import LintFinding, LintSeverity

WINDOWS_MODULES = {
    "winreg": "the Windows registry", "_winreg": "the Windows registry", "msvcrt": "Windows' console", "winsound": "Windows' sound",
    "win32api": "pywin32", "win32con": "pywin32", "win32gui": "pywin32", "win32com": "pywin32", "win32file": "pywin32",
    "win32process": "pywin32", "win32event": "pywin32", "win32service": "pywin32", "win32serviceutil": "pywin32", "win32clipboard": "pywin32",
    "pythoncom": "pywin32", "pywintypes": "pywin32", "wmi": "WMI", "_winapi": "Windows", "nt": "Windows", "comtypes": "COM",
    "pywinauto": "Windows' user interface", "torch_directml": "DirectML", "winrt": "WinRT", "win10toast": "Windows' notifications",
}  # fmt: skip
PLATFORM_WORDS = re.compile(
    r"sys\.platform|os\.name|platform\.system|platform\.platform|IS_WINDOWS|ON_WINDOWS|is_windows|_WIN", re.I
)
_DRIVE = re.compile(r"^[A-Za-z]:(\\|/(?!/))")
_UNC = re.compile(r"^\\\\[\w.$-]+\\")
_HOME = re.compile(r"^(/Users/[\w.-]+/|/home/(?!runner\b|user\b|app\b|ubuntu\b)[\w.-]+/|/mnt/[c-z]/)")
_RELATIVE = re.compile(r"^\.{0,2}\\?[\w.-]+(\\[\w.-]+)+\\?$")
_EXE = re.compile(r"\.(exe|bat|cmd|ps1)\b", re.I)
OPENERS = {
    "open", "imread", "imwrite", "load", "read_csv", "read_excel", "read_json", "listdir", "makedirs", "mkdir", "exists", "isfile",
    "isdir", "glob", "Path", "save", "to_csv", "savefig", "chdir", "copy", "copyfile", "move", "rmtree", "remove", "from_pretrained",
    "ImageFolder", "loadtxt", "savetxt", "append", "insert", "VideoCapture", "torch_load", "load_model", "truetype", "walk", "rename",
}  # fmt: skip
GUI = {"imshow", "namedWindow", "waitKey", "destroyAllWindows", "createTrackbar"}
SOURCES = {
    "paths": "https://docs.python.org/3/library/pathlib.html",
    "windows": "https://docs.python.org/3/library/windows.html",
    "cuda": "https://pytorch.org/docs/stable/notes/cuda.html#device-agnostic-code",
    "encoding": "https://peps.python.org/pep-0597/",
    "spawn": "https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods",
    "gui": "https://github.com/opencv/opencv-python#frequently-asked-questions",
    "mps": "https://pytorch.org/docs/stable/notes/mps.html",
}


@dataclass
class Code:
    """What one source says: modules imported (top names with their lines), and findings."""

    imports: dict[str, int] = field(default_factory=dict)
    relative: list[tuple[int, str | None, tuple[str, ...], int]] = field(default_factory=list)
    """(level, module, names, line) of relative imports."""
    dotted: list[tuple[str, tuple[str, ...], int]] = field(default_factory=list)
    """(module, names, line) of absolute imports, for the check of letter case."""
    findings: list[LintFinding] = field(default_factory=list)


def read_code(text: str, name: str) -> Code:
    """Imports and findings of a source. A syntax error is a finding, never an exception."""
    code = Code()
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        hint = "Python 2" if re.search(r"(?m)^\s*print\s+[\"'\w]", text) else "it"
        code.findings.append(
            _found(
                "syntax",
                "warning",
                name,
                error.lineno,
                f"cannot be read as Python 3 ({error.msg})",
                f"mend {hint} first",
                SOURCES["windows"],
            )
        )
        for match in re.finditer(r"(?m)^\s*(?:import|from)\s+([A-Za-z_]\w*)", text):
            code.imports.setdefault(match[1], text.count("\n", 0, match.start()) + 1)
        return code
    except (ValueError, RecursionError, MemoryError):
        return code
    _Visitor(code, name, text).visit_tree(tree)
    return code


def _found(
    rule: str, severity: LintSeverity, file: str, line: int | None, message: str, fix: str, source: str
) -> LintFinding:
    return LintFinding(rule, severity, file, line, message, fix, source)


class _Visitor:
    """One pass over the tree; ``guarded`` is true inside branches that ask for the platform and in try blocks."""

    def __init__(self, code: Code, name: str, text: str) -> None:
        self.code = code
        self.name = name
        self.text = text
        self.docstrings: set[int] = set()
        self.has_main_guard = bool(re.search(r"if __name__\s*==\s*['\"]__main__", text))

    def add(self, rule: str, severity: LintSeverity, line: int, message: str, fix: str, source: str) -> None:
        self.code.findings.append(_found(rule, severity, self.name, line, message, fix, SOURCES[source]))

    def visit_tree(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) and node.body:
                first = node.body[0]
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                    self.docstrings.add(id(first.value))
        self.visit(tree, guarded=False, parent=None)

    def visit(self, node: ast.AST, *, guarded: bool, parent: ast.AST | None, depth: int = 0) -> None:
        if depth > 300:
            return
        if isinstance(node, ast.If | ast.IfExp):
            asks = bool(PLATFORM_WORDS.search(ast.unparse(node.test)))
            for child in ast.iter_child_nodes(node):
                self.visit(child, guarded=guarded or (asks and child is not node.test), parent=node, depth=depth + 1)
            return
        if isinstance(node, ast.Try):
            catches = any(
                h.type is None
                or re.search(r"ImportError|ModuleNotFoundError|Exception|OSError|AttributeError", ast.unparse(h.type))
                for h in node.handlers
            )
            for child in ast.iter_child_nodes(node):
                self.visit(child, guarded=guarded or (catches and child in node.body), parent=node, depth=depth + 1)
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node, guarded)
        elif isinstance(node, ast.Call):
            self._call(node, guarded)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in self.docstrings:
            self._text(node, node.value, parent, guarded)
        for child in ast.iter_child_nodes(node):
            self.visit(child, guarded=guarded, parent=node, depth=depth + 1)

    def _import(self, node: ast.Import | ast.ImportFrom, guarded: bool) -> None:
        if isinstance(node, ast.ImportFrom):
            if node.level:
                self.code.relative.append((node.level, node.module, tuple(a.name for a in node.names), node.lineno))
                return
            modules = [node.module or ""]
            self.code.dotted.append((node.module or "", tuple(a.name for a in node.names), node.lineno))
        else:
            modules = [a.name for a in node.names]
            self.code.dotted.extend((m, (), node.lineno) for m in modules)
        for module in modules:
            top = module.split(".")[0]
            self.code.imports.setdefault(top, node.lineno)
            meaning = WINDOWS_MODULES.get(top)
            if meaning:
                self.add(
                    "windows-module", "note" if guarded else "error", node.lineno, f"import {top}: {meaning}, there is none on Linux",
                    "put it behind 'if sys.platform == \"win32\"', or use something that exists on both", "windows",
                )  # fmt: skip

    def _call(self, node: ast.Call, guarded: bool) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        line = node.lineno
        severity: LintSeverity = "note" if guarded else "error"
        if called == "startfile" and owner == "os":
            self.add(
                "windows-call",
                severity,
                line,
                "os.startfile exists on Windows only",
                "subprocess.run(['xdg-open', …]), or leave it out on a server",
                "windows",
            )
        elif called in {"WinDLL", "OleDLL"} or (owner.endswith("ctypes.windll") or "windll" in owner.split(".")):
            self.add(
                "windows-call",
                severity,
                line,
                "ctypes.windll exists on Windows only",
                "ctypes.CDLL with the .so of the library",
                "windows",
            )
        elif (called in {"system", "popen"} and owner == "os") or (
            called in {"run", "call", "Popen", "check_output", "check_call"} and owner in {"subprocess", "sp"}
        ):
            self._command(node, severity, line)
        elif called in GUI and owner in {"cv2", "cv"}:
            if called == "imshow":
                self.add(
                    "gui",
                    "warning",
                    line,
                    "cv2.imshow needs a display, and a GPU server has none",
                    "cv2.imwrite, or a notebook",
                    "gui",
                )
        elif called == "show" and owner in {"plt", "pyplot", "matplotlib.pyplot"}:
            self.add(
                "gui", "note", line, "plt.show shows nothing on a server", "plt.savefig, and MPLBACKEND=Agg", "gui"
            )
        elif called == "open" and not owner:
            self._open(node, line)
        elif called == "truetype":
            first = node.args[0] if node.args else None
            if (
                isinstance(first, ast.Constant)
                and isinstance(first.value, str)
                and re.search(r"(arial|simhei|simsun|msyh|times|calibri|consola|verdana|tahoma)", first.value, re.I)
            ):
                self.add(
                    "font",
                    "error",
                    line,
                    f"the font {first.value} comes with Windows: OSError: cannot open resource",
                    "ship a font with the project, or install fonts-dejavu / fonts-noto-cjk",
                    "paths",
                )
        elif called == "set_start_method" and any(
            isinstance(a, ast.Constant) and a.value == "spawn" for a in node.args
        ):
            self.add(
                "spawn",
                "note",
                line,
                "the start method is forced to spawn, as on Windows",
                "leave it to Linux' default unless CUDA was used before",
                "spawn",
            )
        elif called == "directml" or (called == "device" and owner.endswith("torch_directml")):
            self.add("directml", severity, line, "DirectML is for Windows", "torch.device('cuda')", "windows")
        for keyword in node.keywords:
            if (
                keyword.arg == "num_workers"
                and isinstance(keyword.value, ast.Constant)
                and keyword.value.value == 0
                and called == "DataLoader"
            ):
                self.add(
                    "num-workers",
                    "note",
                    line,
                    "num_workers=0 is the usual way round Windows' spawn: on Linux the GPU waits for one process",
                    "num_workers=4 or more, with --shm-size",
                    "spawn",
                )
            if keyword.arg == "device_ids" and isinstance(keyword.value, ast.List) and len(keyword.value.elts) > 1:
                self.add(
                    "device-count",
                    "warning",
                    line,
                    f"device_ids={ast.unparse(keyword.value)}: a fixed number of GPUs",
                    "list(range(torch.cuda.device_count()))",
                    "cuda",
                )

    def _command(self, node: ast.Call, severity: LintSeverity, line: int) -> None:
        first = node.args[0] if node.args else None
        words: list[str] = []
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            words = [first.value]
        elif isinstance(first, ast.List):
            words = [e.value for e in first.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        if not words:
            return
        text = " ".join(words).strip()
        program = text.split()[0].lower() if text else ""
        if program in {
            "cls",
            "dir",
            "copy",
            "xcopy",
            "robocopy",
            "del",
            "move",
            "rmdir",
            "taskkill",
            "tasklist",
            "powershell",
            "cmd",
            "start",
            "where",
            "ipconfig",
            "wmic",
            "type",
            "ren",
            "pause",
        } or _EXE.search(program):
            soft = program in {"cls", "pause"}
            self.add(
                "windows-call",
                "warning" if soft and severity == "error" else severity,
                line,
                f"{program!r} is a command of Windows",
                "shutil, pathlib or the Linux command",
                "windows",
            )

    def _open(self, node: ast.Call, line: int) -> None:
        mode = node.args[1] if len(node.args) > 1 else next((k.value for k in node.keywords if k.arg == "mode"), None)
        binary = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and "b" in mode.value
        named = any(k.arg == "encoding" for k in node.keywords) or len(node.args) > 3
        if not binary and not named and not any(f.rule == "open-encoding" for f in self.code.findings):
            self.add(
                "open-encoding",
                "note",
                line,
                "open() without encoding: the code page of Windows there, the locale's here (ASCII without LANG)",
                "encoding='utf-8'",
                "encoding",
            )
        if isinstance(mode, ast.Constant) or not node.keywords:
            pass
        for keyword in node.keywords:
            if (
                keyword.arg == "encoding"
                and isinstance(keyword.value, ast.Constant)
                and str(keyword.value.value).lower() in {"mbcs", "oem", "ansi"}
            ):
                self.add(
                    "windows-call",
                    "error",
                    line,
                    f"the encoding {keyword.value.value!r} exists on Windows only",
                    "name the real one: cp1252, gbk, utf-8",
                    "encoding",
                )

    def _text(self, node: ast.Constant, value: str, parent: ast.AST | None, guarded: bool) -> None:
        if len(value) > 500 or "\n" in value:
            return
        line = node.lineno
        opens = (
            isinstance(parent, ast.Call)
            and (
                (parent.func.attr if isinstance(parent.func, ast.Attribute) else getattr(parent.func, "id", ""))
                in OPENERS
            )
            and not (isinstance(parent.func, ast.Attribute) and ast.unparse(parent.func.value) == "re")
        )
        severity: LintSeverity = "note" if guarded else "error" if opens else "warning"
        if _DRIVE.match(value) or _UNC.match(value):
            self.add(
                "windows-path",
                severity,
                line,
                f"{value!r} is a path of Windows",
                "a path relative to the project, or from an argument or a variable of the environment",
                "paths",
            )
        elif _HOME.match(value):
            self.add(
                "home-path",
                "warning" if not guarded else "note",
                line,
                f"{value!r} exists on one machine only",
                "a path relative to the project, or from an argument",
                "paths",
            )
        elif _RELATIVE.match(value) and not _is_regex(value, parent):
            self.add(
                "backslash-path",
                severity,
                line,
                f"{value!r}: on Linux a backslash is part of the name",
                "pathlib, or slashes: they work on both",
                "paths",
            )
        device = re.fullmatch(r"cuda:(\d+)", value)
        if device and int(device[1]) > 0:
            self.add(
                "device-count",
                "warning",
                line,
                f"{value!r} is written into the code: a server with fewer GPUs has no such device",
                "take the device from an argument, or use CUDA_VISIBLE_DEVICES",
                "cuda",
            )
        elif value == "mps" and not guarded and isinstance(parent, ast.Call) and _called(parent) in {"device", "to"}:
            self.add(
                "mps",
                "warning",
                line,
                "'mps' is the GPU of Apple: there is none on Linux",
                "'cuda' if torch.cuda.is_available() else 'cpu'",
                "mps",
            )
        if value in {"DmlExecutionProvider", "CoreMLExecutionProvider"} and isinstance(parent, ast.List | ast.Tuple):
            self.add("directml", "warning", line, f"{value} is not there on Linux", "CUDAExecutionProvider", "windows")


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_regex(value: str, parent: ast.AST | None) -> bool:
    if re.search(r"\\[dwsbDWSB](?![\w])|\\[dws][+*?]|\\\.", value):
        return True
    if (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Attribute)
        and ast.unparse(parent.func.value) in {"re", "regex"}
    ):
        return True
    return not re.search(r"[A-Za-z0-9_.-]{2,}\\[A-Za-z0-9_.-]{2,}", value)


def notebook_source(text: str) -> Iterator[tuple[int, str]]:
    """(cell number, source) of the code cells of a notebook, magics blanked; nothing for what is no notebook."""
    import json

    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return
    cells = document.get("cells") if isinstance(document, dict) else None
    for number, cell in enumerate(cells if isinstance(cells, list) else [], 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source")
        joined = "".join(s for s in source if isinstance(s, str)) if isinstance(source, list) else source
        if isinstance(joined, str):
            yield number, re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", joined)
