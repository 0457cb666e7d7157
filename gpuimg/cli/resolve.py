"""``gpuimg resolve``: pick wheel_cuda, cuDNN, Python, index and base; say what was turned down and why."""

from __future__ import annotations

from typing import Any

import click

from gpuimg.cli.output import json_option, print_json
from gpuimg.cli.question import build_question, question_options


@click.command("resolve")
@question_options
@json_option
def command(as_json: bool, **options: Any) -> int:
    """Pick the build of REQ for that server, with everything around it, and explain what was turned down.

    Exit codes: 0 resolved, 1 nothing runs there, 2 bad input, 3 cannot tell.
    """
    from gpuimg.knowledge import load
    from gpuimg.knowledge.resolve import resolve

    knowledge = load()
    found = resolve(build_question(knowledge, **options), knowledge)
    if as_json:
        print_json(found.to_json())
        return found.exit_code
    from gpuimg.cli.answer_text import show
    from gpuimg.cli.output import out

    show(found.answer)
    if found.answer.verdict.startswith("fits"):
        out.print("\nInstall:", style="bold")
        index = f" --index-url {found.chosen['index_url']}" if found.chosen.get("index_url") else ""
        out.print(f"  pip install '{found.chosen['requirement']}'{index}".replace("[", "\\["))
    if found.rejected:
        out.print("\nTurned down:", style="bold")
        for one in found.rejected:
            out.print(f"  {one['build']}: {one['reason']}".replace("[", "\\["), style="dim")
    return found.exit_code
