"""The command line. One module per command; this one finds them and turns errors into messages and exit codes.

Commands are imported only when called, so that ``gpuimg fit`` does not pay for the Docker SDK.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from typing import Any

import click

from gpuimg import __version__
from gpuimg.errors import GpuimgError

COMMANDS: dict[str, str] = {
    "fit": "will this framework, project or image run on that server?",
    "resolve": "pick wheel_cuda, cuDNN, Python, index and base; explain what was turned down",
    "host": "facts and health of a GPU server",
    "lint": "what in these files will break or bloat, with line and fix",
    "explain": "an error message or log: which cause, which fix, how sure",
    "scan": "what a project needs, and what will not survive the move to Linux",
    "plan": "cells of a matrix with verdicts and estimated sizes",
    "lock": "pin everything a matrix needs",
    "render": "Dockerfiles and bake file of a matrix",
    "build": "build the images of a matrix",
    "verify": "run the verification suite on an image, or here",
    "certify": "plan, build, push, verify, certify, tag",
    "push": "promote certified images to another registry",
    "check": "check an image's certificate against this host",
    "doctor": "what is wrong with this machine's engine or toolkit, and the command that mends it",
    "report": "report of a run: terminal, JSON, JUnit, Markdown, HTML",
    "runs": "earlier runs and their state",
    "kb": "the knowledge base: show, sources, diff, update",
    "pull-cost": "bytes a host must fetch for an image, before fetching",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if _module_of(name) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _module_of(cmd_name) if cmd_name in COMMANDS else None
        if module is None:
            return None
        command = importlib.import_module(module).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, COMMANDS[name]) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from gpuimg.errors import nearest

            near = nearest(args[0], self.list_commands(ctx))
            hint = f"; did you mean {near!r}?" if near else ""
            raise click.UsageError(f"no such command {args[0]!r}{hint}", ctx) from None


def _module_of(name: str) -> str | None:
    module = f"gpuimg.cli.{name.replace('-', '_')}"
    return module if importlib.util.find_spec(module) is not None else None


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 yes/done, 1 no, 2 bad input, 3 cannot tell, 4 environment. Every command has --json.",
)
@click.version_option(__version__, prog_name="gpuimg")
def cli() -> None:
    """GPU container images that are known to run: resolve, build, verify on the GPU, certify, push."""


def main(argv: list[str] | None = None) -> None:
    """Entry point: no traceback ever reaches the user unless GPUIMG_DEBUG is set."""
    args = sys.argv[1:] if argv is None else argv
    as_json = "--json" in args
    try:
        code = cli.main(args=args, prog_name="gpuimg", standalone_mode=False)
    except GpuimgError as error:
        if os.environ.get("GPUIMG_DEBUG"):
            raise
        code = error.exit_code
        _fail(as_json, error.message, error.hint, code)
    except click.ClickException as error:
        code = error.exit_code if error.exit_code != 1 else 2
        _fail(as_json, error.format_message(), None, code)
    except (click.Abort, KeyboardInterrupt):
        code = 130
        _fail(as_json, "interrupted; what was finished is kept", None, code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _fail(as_json: bool, message: str, hint: str | None, code: int) -> None:
    if as_json:
        document: dict[str, Any] = {"verdict": "error", "error": message, "exit": code}
        if hint:
            document["hint"] = hint
        print(json.dumps(document, ensure_ascii=False))
    print(f"gpuimg: {message}", file=sys.stderr)
    if hint:
        print(f"  {hint}", file=sys.stderr)
