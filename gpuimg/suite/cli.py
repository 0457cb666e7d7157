"""Command line of the suite: ``python3 gpuimg-suite.pyz [--profile P] …``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import Any

from . import STARTED, SUITE_VERSION
from .child import honour_pythonpath


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="gpuimg-suite",
        description="Prove that this machine or container can do the GPU work it is meant for.",
        epilog="Exit status: 0 every required check passed, 1 one failed, 2 wrong usage, 3 nothing could be told "
        "(no GPU or no framework).",
    )
    p.add_argument("--profile", default="base", help="smoke, base, training, inference, llm, multi-gpu, full")
    p.add_argument("--profile-file", metavar="FILE", help="your own profile (JSON); see docs/checks.md")
    p.add_argument("--framework", help="torch, tensorflow, jax, …; default: the first that is installed")
    p.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="cpu: prove the CPU side alone")
    p.add_argument("--nonce", help="echoed and sealed into the document; '-' reads it from standard input")
    p.add_argument("--out", metavar="FILE", help="write the JSON lines there (atomically)")
    p.add_argument("--json", action="store_true", help="JSON lines on standard output even at a terminal")
    p.add_argument("--only", action="append", default=[], metavar="ID", help="only these (repeatable, * allowed)")
    p.add_argument("--skip", action="append", default=[], metavar="ID", help="not these checks (repeatable)")
    p.add_argument("--run", metavar="CMD", help="your own command as one more required check")
    p.add_argument("--run-timeout", type=float, default=300.0, metavar="S", help="seconds it may take (300)")
    p.add_argument("--timeout-scale", type=float, default=1.0, metavar="X", help="multiply every time limit")
    p.add_argument("--list", action="store_true", help="print the checks and profiles and end")
    p.add_argument("--version", action="version", version=SUITE_VERSION)
    return p


def list_checks(profile: Any, as_json: bool) -> int:
    """``--list``: ids with titles, marked by how the profile treats them."""
    from .registry import all_checks

    rows = []
    for check in all_checks().values():
        wants = profile.wants(check.id)
        word = {True: "required", False: "optional", None: "-"}[wants]
        rows.append({"id": check.id, "title": check.title, "profile": word, "timeout_s": check.timeout})
    if as_json:
        print(json.dumps({"profile": profile.name, "checks": rows}, ensure_ascii=False))
    else:
        print(f"Profile {profile.name}: {profile.title}")
        for row in rows:
            print(f"  {row['profile']:9} {row['id']:22} {row['title']}")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    args = parser().parse_args(argv)
    honour_pythonpath()
    return run_main(args)


def _interrupt(number: int, frame: Any) -> None:
    """SIGTERM and SIGHUP end the run as Ctrl-C does: children killed, folders removed."""
    raise KeyboardInterrupt


def run_main(args: argparse.Namespace) -> int:
    from .profiles import BadProfile, load_profile
    from .registry import FRAMEWORKS, all_checks
    from .report import human, progress
    from .runner import CANNOT_TELL, NoRoom, Options, Run

    try:
        profile = load_profile(args.profile, all_checks(), args.profile_file)
        if args.list:
            return list_checks(profile, args.json)
        framework = args.framework.replace("-", "_") if args.framework else None
        if framework is not None and framework not in FRAMEWORKS:
            import difflib

            near = difflib.get_close_matches(framework, FRAMEWORKS, n=1)
            more = f"; did you mean {near[0]!r}?" if near else ""
            raise BadProfile(f"no framework {args.framework!r}; there are: {', '.join(FRAMEWORKS)}{more}")
        if args.timeout_scale <= 0:
            raise BadProfile("--timeout-scale must be above 0")
        nonce = sys.stdin.readline().strip() if args.nonce == "-" else (args.nonce or "")
        options = Options(
            profile=profile,
            profile_name=profile.name,
            framework=framework,
            device=args.device,
            nonce=nonce,
            only=tuple(args.only),
            skip=tuple(args.skip),
            run=args.run,
            run_timeout=args.run_timeout,
            started=STARTED,
            timeout_scale=args.timeout_scale,
        )
        if args.out and not os.path.isdir(os.path.dirname(os.path.abspath(args.out))):
            raise BadProfile(f"--out {args.out}: there is no such folder")
        at_terminal = sys.stdout.isatty() and not args.json
        stream_json = not at_terminal and not (args.out and not args.json)
        emitted = [0]

        def emit(value: dict[str, Any]) -> None:
            if stream_json:
                sys.stdout.write(run.lines[-1] + "\n")
                sys.stdout.flush()
            else:
                progress(value, sys.stderr)
            emitted[0] += 1

        run = Run(options, emit)
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGHUP, _interrupt)
        summary = run.go()
    except BadProfile as error:
        print(f"gpuimg-suite: {error}", file=sys.stderr)
        return 2
    except NoRoom as error:
        print(f"gpuimg-suite: {error}", file=sys.stderr)
        return CANNOT_TELL
    except KeyboardInterrupt:
        print("gpuimg-suite: interrupted; no document was written", file=sys.stderr)
        return 130
    if args.out:
        temporary = args.out + ".part"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write("\n".join(run.lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, args.out)
    if not stream_json:
        print(human(run.environment, list(run.results.values()), summary))
    return int(summary["exit"])
