"""``gpuimg report RUN``: the report of a run, in the form that is wanted."""

from __future__ import annotations

from pathlib import Path

import click

from gpuimg.cli.output import json_option, out, print_json

FORMATS = ("terminal", "json", "junit", "markdown", "html")
_SUFFIXES = {".html": "html", ".htm": "html", ".md": "markdown", ".xml": "junit", ".json": "json"}


@click.command("report")
@click.argument("run", required=False)
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Default: by the suffix of --out, else terminal.")
@click.option("--lang", type=click.Choice(["en", "zh"]), default="en", show_default=True)
@click.option("-o", "--out", "file", type=click.Path(path_type=Path), help="Write there instead of printing.")
@click.option("--redact", is_flag=True, help="Replace UUIDs, serials, host names and private addresses.")
@click.option("-v", "--verbose", is_flag=True, help="Every measurement.")
@json_option
def command(
    run: str | None, kind: str | None, lang: str, file: Path | None, redact: bool, verbose: bool, as_json: bool
) -> int:
    """Report of RUN: an id of `gpuimg runs`, a folder, or an evidence file. Default: the newest run.

    Exit codes: 0 everything certified or passed, 1 something failed, 3 something could not be told.
    """
    import json
    import socket

    from gpuimg.cli.runs import find_run
    from gpuimg.nouns import Evidence
    from gpuimg.report.document import to_html, to_markdown
    from gpuimg.report.entry import Entry, read_entries, write_text
    from gpuimg.report.junit import to_junit
    from gpuimg.report.redact import redact as redacted
    from gpuimg.report.terminal import render

    entries = read_entries(find_run(run))
    if redact:
        hide = (socket.gethostname(),)
        entries = [
            Entry(
                str(redacted(e.name, hide=hide)),
                Evidence.from_json(redacted(e.evidence.to_json(), hide=hide)),
                redacted(e.verdict, hide=hide),
                redacted(e.certificate, hide=hide),
            )
            for e in entries
        ]
    answers = {e.answer for e in entries}
    code = 1 if "failed" in answers else 3 if "cannot-tell" in answers else 0
    if kind is None:
        kind = "json" if as_json else _SUFFIXES.get(file.suffix, "terminal") if file is not None else "terminal"
    document = {"exit": code, "entries": [e.to_json() for e in entries]}
    language = "zh" if lang == "zh" else "en"
    if kind == "terminal" and file is None:
        for entry in entries:
            out.print(render(entry, "zh" if lang == "zh" else "en", verbose=verbose))
        return code
    if kind == "json" and file is None:
        print_json(document)
        return code
    if kind == "json":
        text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    elif kind == "junit":
        text = to_junit(entries)
    elif kind == "html":
        text = to_html(entries, "zh" if language == "zh" else "en")
    else:
        text = to_markdown(entries, "zh" if language == "zh" else "en")
    if file is None:
        click.echo(text)
        return code
    write_text(file, text)
    if as_json:
        print_json({"exit": code, "written": str(file)})
    else:
        out.print(f"written: {file}")
    return code
