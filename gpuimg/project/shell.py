"""Shell text of a RUN line → simple commands with their words, assignments and lines. A reader, not a shell.

Understood: quotes, escapes, ``$VAR`` and ``${VAR:-default}`` where the value is known, ``&&``, ``||``, ``;``, ``|``,
newlines, groups, ``if/then/for/do``, redirections, here-documents (skipped), ``$(…)`` (its commands are listed too),
``sh -c '…'``. What is not known stays as written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

_RESERVED = {
    "if",
    "then",
    "else",
    "elif",
    "fi",
    "for",
    "while",
    "until",
    "do",
    "done",
    "case",
    "esac",
    "{",
    "}",
    "!",
    "time",
    "in",
}
_PREFIXES = {
    "sudo",
    "env",
    "exec",
    "nohup",
    "command",
    "nice",
    "ionice",
    "stdbuf",
    "xvfb-run",
    "eatmydata",
    "travis_retry",
}
_SHELLS = {"sh", "bash", "dash", "ash", "zsh"}
_DEPTH = 6


@dataclass(frozen=True)
class Command:
    """One simple command. ``words[0]`` is the program as written; ``assigned`` are the ``A=b`` in front of it."""

    words: tuple[str, ...]
    line: int
    assigned: tuple[tuple[str, str], ...] = ()
    text: str = ""
    """Words joined by blanks, variables put in."""
    redirects: tuple[str, ...] = ()
    """Files written to with ``>`` or ``>>``."""
    piped: bool = False
    """Its output goes to the next command."""
    conditional: bool = False
    """Inside if/case, or after ``||``: it may not run."""

    @property
    def program(self) -> str:
        """Base name of the program, '' for bare assignments."""
        return self.words[0].rsplit("/", 1)[-1] if self.words else ""


@dataclass
class _Token:
    text: str
    line: int
    operator: bool = False
    quoted: bool = False


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """Puts known variables in: ``$A``, ``${A}``, ``${A:-x}``, ``${A:+x}``, ``${A%…}`` untouched; unknown ones stay.

    ``\\$`` is a literal dollar.
    """

    def put(found: re.Match[str]) -> str:
        if found[0].startswith("\\"):
            return found[0][1:]
        if found["plain"]:
            return variables.get(found["plain"], found[0])
        name, operator, word = found["name"], found["op"] or "", found["word"] or ""
        value = variables.get(name)
        if operator in {":-", "-", ":=", "="}:
            if value is None or (operator.startswith(":") and not value):
                return substitute(word, variables)
            return value
        if operator in {":+", "+"}:
            return substitute(word, variables) if value else ""
        if operator in {":?", "?"}:
            return value if value is not None else found[0]
        if value is None:
            return found[0]
        if not operator:
            return value
        if operator in {"%", "%%", "#", "##"}:
            return _trim(value, operator, word)
        if operator in {"/", "//"}:
            old, _, new = word.partition("/")
            return value.replace(old, new) if operator == "//" else value.replace(old, new, 1)
        return found[0]

    pattern = (
        r"\\\$|\$(?P<plain>[A-Za-z_]\w*)"
        r"|\$\{(?P<name>[A-Za-z_]\w*)(?:(?P<op>:-|:\+|:=|:\?|-|\+|=|\?|%%|%|##|#|//|/)(?P<word>(?:[^{}]|\$\{[^{}]*\})*))?\}"
    )
    return re.sub(pattern, put, text)


def _trim(value: str, operator: str, word: str) -> str:
    pattern = "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in word)
    lengths = range(len(value) + 1)
    candidates = [
        n for n in lengths if re.fullmatch(pattern, value[len(value) - n :] if "%" in operator else value[:n], re.S)
    ]
    if not candidates:
        return value
    size = max(candidates) if len(operator) == 2 else min(candidates)
    return value[: len(value) - size] if "%" in operator else value[size:]


def commands(text: str, first_line: int = 1, variables: Mapping[str, str] | None = None) -> tuple[Command, ...]:
    """Simple commands in reading order. Backslash-newline must still be in the text, so that lines can be counted."""
    known = dict(variables or {})
    return tuple(_commands(text, first_line, known, 0))


def _commands(text: str, first_line: int, known: dict[str, str], depth: int) -> list[Command]:
    if depth > _DEPTH:
        return []
    tokens, inner = _tokens(text, first_line)
    made: list[Command] = []
    for inner_text, inner_line in inner:
        made.extend(_commands(inner_text, inner_line, dict(known), depth + 1))
    current: list[_Token] = []
    inside = 0
    after_or = False
    for token in [*tokens, _Token(";", first_line, True)]:
        if not token.operator:
            current.append(token)
            continue
        if current:
            opening = {t.text for t in current[:2] if not t.quoted}
            inside += bool({"if", "case"} & opening)
            found = _simple(current, known, depth, piped=token.text == "|")
            made.extend(replace(c, conditional=c.conditional or inside > 0 or after_or) for c in found)
            inside = max(0, inside - bool({"fi", "esac"} & opening))
            current = []
        after_or = token.text == "||"
    return made


def _simple(tokens: list[_Token], known: dict[str, str], depth: int, *, piped: bool) -> list[Command]:
    redirects: list[str] = []
    words: list[_Token] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        redirect = None if token.quoted else re.match(r"^(\d*|&)(>>|>\||>|<)(&?\d?-?)(.*)$", token.text)
        if redirect and not (redirect[2] == "<" and token.text.startswith("<(")):
            target = redirect[4]
            if not target and not redirect[3] and position + 1 < len(tokens):
                position += 1
                target = tokens[position].text
            if redirect[2] != "<" and target:
                redirects.append(substitute(target, known))
        else:
            words.append(token)
        position += 1
    while words and not words[0].quoted and words[0].text in _RESERVED:
        if words[0].text in {"for", "case"}:
            return []
        words.pop(0)
    assigned: list[tuple[str, str]] = []
    while words:
        found = re.match(r"^([A-Za-z_]\w*)\+?=(.*)$", words[0].text, re.S)
        if found and not words[0].text.startswith("="):
            assigned.append((found[1], substitute(found[2], known)))
            words.pop(0)
            continue
        if words[0].text in _PREFIXES and len(words) > 1:
            words.pop(0)
            while words and words[0].text.startswith("-"):
                words.pop(0)
            continue
        break
    if not words:
        known.update(assigned)
        line = tokens[0].line
        return [Command((), line, tuple(assigned), "", tuple(redirects), piped)] if assigned or redirects else []
    plain: list[str] = []
    for word in words:
        put = substitute(word.text, known)
        unquoted_variable = not word.quoted and "$" in word.text and " " in put.strip()
        plain.extend(put.split() if unquoted_variable else [put])
    if not plain:
        return []
    if plain[0] in {"export", "declare", "local", "readonly"}:
        for word_text in plain[1:]:
            name, equals, value = word_text.partition("=")
            if equals:
                known[name] = value
                assigned.append((name, value))
    line = words[0].line
    command = Command(tuple(plain), line, tuple(assigned), " ".join(plain), tuple(redirects), piped)
    result = [command]
    if command.program in _SHELLS:
        for index, word_text in enumerate(plain[1:], 1):
            if re.match(r"^-[a-z]*c$", word_text) and index + 1 < len(plain):
                result.extend(_commands(plain[index + 1], line, dict(known), depth + 1))
                break
    elif command.program == "eval" and len(plain) > 1:
        result.extend(_commands(" ".join(plain[1:]), line, known, depth + 1))
    return result


def _tokens(text: str, first_line: int) -> tuple[list[_Token], list[tuple[str, int]]]:
    """Tokens, and the texts of command substitutions with their lines."""
    tokens: list[_Token] = []
    inner: list[tuple[str, int]] = []
    buffer: list[str] = []
    line = first_line
    start_line = line
    quoted = False
    active = False
    pending: list[tuple[str, bool]] = []
    i = 0
    size = len(text)

    def flush() -> None:
        nonlocal buffer, quoted, active
        if active:
            tokens.append(_Token("".join(buffer), start_line, quoted=quoted))
        buffer, quoted, active = [], False, False

    def begin() -> None:
        nonlocal active, start_line
        if not active:
            active, start_line = True, line

    while i < size:
        char = text[i]
        if char == "\\" and i + 1 < size:
            following = text[i + 1]
            if following == "\n":
                line += 1
                i += 2
                # a comment line or an empty line inside a continued command, as Docker leaves them out
                continue
            begin()
            buffer.append(following if following != "$" else "\\$")
            i += 2
            continue
        if char == "'":
            end = text.find("'", i + 1)
            end = size if end < 0 else end
            begin()
            quoted = True
            piece = text[i + 1 : end]
            buffer.append(piece.replace("$", "\\$"))
            line += piece.count("\n")
            i = end + 1
            continue
        if char == '"':
            begin()
            quoted = True
            i += 1
            while i < size and text[i] != '"':
                if text[i] == "\\" and i + 1 < size and text[i + 1] in '"\\$`\n':
                    if text[i + 1] == "\n":
                        line += 1
                    else:
                        buffer.append("\\$" if text[i + 1] == "$" else text[i + 1])
                    i += 2
                    continue
                if text.startswith("$(", i):
                    end = _closing(text, i + 1)
                    inner.append((text[i + 2 : end], line))
                    buffer.append(text[i : end + 1])
                    line += text[i : end + 1].count("\n")
                    i = end + 1
                    continue
                line += text[i] == "\n"
                buffer.append(text[i])
                i += 1
            i += 1
            continue
        if text.startswith("$(", i):
            end = _closing(text, i + 1)
            begin()
            inner.append((text[i + 2 : end], line))
            buffer.append(text[i : end + 1])
            line += text[i : end + 1].count("\n")
            i = end + 1
            continue
        if text.startswith("${", i):
            end = text.find("}", i)
            end = size - 1 if end < 0 else end
            begin()
            buffer.append(text[i : end + 1])
            line += text[i : end + 1].count("\n")
            i = end + 1
            continue
        if char == "`":
            end = text.find("`", i + 1)
            end = size - 1 if end < 0 else end
            begin()
            inner.append((text[i + 1 : end], line))
            buffer.append(text[i : end + 1])
            line += text[i : end + 1].count("\n")
            i = end + 1
            continue
        if char == "#" and not active:
            end = text.find("\n", i)
            i = size if end < 0 else end
            continue
        if char == "\n":
            flush()
            tokens.append(_Token(";", line, True))
            line += 1
            i += 1
            for delimiter, strip_tabs in pending:
                i, passed = _skip_heredoc(text, i, delimiter, strip_tabs)
                line += passed
            pending = []
            continue
        if char in " \t":
            flush()
            i += 1
            continue
        if text.startswith("<<", i) and not text.startswith("<<<", i):
            found = re.compile(r"<<(-?)\s*(['\"]?)([A-Za-z_]\w*)\2").match(text, i)
            if found:
                flush()
                pending.append((found[3], bool(found[1])))
                i = found.end()
                continue
        operator = next((o for o in ("&&", "||", ";;", "&>", "|&") if text.startswith(o, i)), None)
        if operator == "&>":
            flush()
            begin()
            buffer.append("&>")
            i += 2
            continue
        if operator is None and char in ";|()":
            operator = char
        if operator is None and char == "&" and not (active and buffer and buffer[-1].endswith((">", "<"))):
            operator = "&"
        if operator is not None:
            flush()
            tokens.append(_Token(operator, line, True))
            i += len(operator)
            continue
        begin()
        buffer.append(char)
        i += 1
    flush()
    return tokens, inner


def _closing(text: str, opening: int) -> int:
    depth = 0
    for position in range(opening, len(text)):
        if text[position] == "(":
            depth += 1
        elif text[position] == ")":
            depth -= 1
            if depth == 0:
                return position
    return len(text) - 1


def _skip_heredoc(text: str, start: int, delimiter: str, strip_tabs: bool) -> tuple[int, int]:
    passed = 0
    position = start
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        content = text[position:end]
        passed += 1
        position = end + 1
        if (content.lstrip("\t") if strip_tabs else content) == delimiter:
            break
    return min(position, len(text)), passed
