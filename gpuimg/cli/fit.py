"""``gpuimg fit``: will this framework, project or image run on that server?"""

from __future__ import annotations

from typing import Any

import click

from gpuimg.cli.output import json_option, print_json
from gpuimg.cli.question import build_question, question_options


@click.command("fit")
@question_options
@json_option
def command(as_json: bool, **options: Any) -> int:
    """Will REQ (or a project, or an image) run on that server? Why, and if not, what does?

    Exit codes: 0 fits, 1 does not fit, 2 bad input, 3 cannot tell (facts missing), 4 no engine for --image.
    """
    from gpuimg.knowledge import load
    from gpuimg.knowledge.fit import answer

    knowledge = load()
    found = answer(build_question(knowledge, **options), knowledge)
    if as_json:
        print_json(found.to_json())
    else:
        from gpuimg.cli.answer_text import show

        show(found)
    return found.exit_code
