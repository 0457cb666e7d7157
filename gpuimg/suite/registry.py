"""What a check is, how one is registered, and what it is given.

A check is a function ``fn(ctx) -> Outcome`` under a stable id::

    @check("compute.matmul", title="Matrix product", proves="…", how="…", threshold="…", source="…",
           needs=("framework",), timeout=60)
    def matmul(ctx):
        return ctx.adapter.matmul(ctx)

It runs in a process of its own. It returns :func:`passed`, :func:`failed`, :func:`skipped` or
:func:`not_applicable`; an exception becomes status ``error`` with a hint from :mod:`.hints`.

**Adapters.** ``frameworks/<name>.py`` is a plain module. Checks call its functions through ``ctx.adapter``; a function
that is not there makes the check ``not_applicable``. Every adapter has:

=====================  ==========================================================================================
``DISTRIBUTIONS``      tuple of PyPI distribution names, in the order in which they are looked for
``MODULE``             the module that is imported
``versions()``         what the framework *declares*: ``{"framework": "2.6.0", "wheel_cuda": "12.4"|None, "cudnn":
                       "9.1.0"|None, "nccl": "2.21.5"|None, "gpu_build": bool}``; imports the framework
``arch_list()``        ``["sm_80", …, "compute_90"]`` as the framework reports it, or None where it does not
``library_dirs()``     directories that hold its own shared libraries (for the fat binary scan)
``touch(ctx)``         make it load its CUDA libraries in this process: matrix product, convolution, and where it has
                       them a one-process collective; returns the list of what was done, e.g. ``["matmul", "conv"]``
``dist_worker(job)``   one rank of a process group, in a process of its own; see :mod:`.checks_dist` for ``job``
=====================  ==========================================================================================

and the compute, training and inference functions its checks call (``matmul(ctx)``, ``conv(ctx)``,
``train_epoch(ctx)``, ``infer_roundtrip(ctx)``, ``quantised_chain(ctx)`` …), each ``(ctx) -> Outcome``.

Python 3.8 syntax, standard library only.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    import subprocess

PASS, FAIL, SKIP, ERROR = "pass", "fail", "skip", "error"

NEEDS = ("gpu", "multi-gpu", "framework", "gpu-framework", "numpy")
"""What a check may need; the runner skips it, with the reason, where that is missing.

``gpu``: at least one visible NVIDIA GPU. ``multi-gpu``: two or more. ``framework``: one was found.
``gpu-framework``: both, and the run is not limited to the CPU. ``numpy``: importable.
"""

FRAMEWORKS = (
    "torch",
    "tensorflow",
    "jax",
    "paddlepaddle",
    "mindspore",
    "onnxruntime",
    "cupy",
    "vllm",
    "tensorrt_llm",
)
"""Names of adapters: ``frameworks/<name>.py``; ``--framework`` also takes ``tensorrt-llm``."""

CHECK_MODULES = (
    "checks_host",
    "checks_card",
    "checks_driver",
    "checks_triangle",
    "frameworks.checks",
    "checks_dist",
    "checks_mon",
)
"""Modules that register checks, in the order in which the checks run."""


@dataclass(frozen=True)
class Outcome:
    """What a check found. ``measured`` and ``expected`` must be JSON values with units in their key names."""

    status: str
    measured: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    hint: str | None = None
    applicable: bool = True
    """False: the check has no meaning here (a framework without that feature), so a profile cannot require it."""


def passed(
    measured: Mapping[str, Any] | None = None,
    expected: Mapping[str, Any] | None = None,
    reason: str | None = None,
) -> Outcome:
    """The check proved what it is for. ``reason`` may add what limits it."""
    return Outcome(PASS, dict(measured or {}), dict(expected or {}), reason)


def failed(
    reason: str,
    hint: str | None = None,
    measured: Mapping[str, Any] | None = None,
    expected: Mapping[str, Any] | None = None,
) -> Outcome:
    """The check found a fault: ``reason`` says what, ``hint`` what to do."""
    return Outcome(FAIL, dict(measured or {}), dict(expected or {}), reason, hint)


def skipped(reason: str, measured: Mapping[str, Any] | None = None, hint: str | None = None) -> Outcome:
    """The check could not be made here. Never counts as passed."""
    return Outcome(SKIP, dict(measured or {}), {}, reason, hint)


def not_applicable(reason: str, measured: Mapping[str, Any] | None = None) -> Outcome:
    """The check has no meaning for this framework or card; a profile cannot require it here."""
    return Outcome(SKIP, dict(measured or {}), {}, reason, None, applicable=False)


@dataclass(frozen=True)
class Check:
    """A registered check; the texts are what ``docs/checks.md`` prints."""

    id: str
    title: str
    proves: str
    how: str
    threshold: str
    source: str
    timeout: float
    needs: tuple[str, ...]
    frameworks: tuple[str, ...] | None
    fn: Callable[[Context], Outcome]
    light: bool
    """True: standard library and driver calls only, so a forked process serves and no new interpreter is started."""
    retry: bool
    """True: measured once more before it fails (speeds on a shared machine); both runs are reported."""


_REGISTRY: dict[str, Check] = {}


def check(
    id: str,
    *,
    title: str,
    proves: str,
    how: str,
    threshold: str,
    source: str,
    timeout: float = 60.0,
    needs: Sequence[str] = (),
    frameworks: Sequence[str] | None = None,
    light: bool = False,
    retry: bool = False,
) -> Callable[[Callable[[Context], Outcome]], Callable[[Context], Outcome]]:
    """Register a check. ``timeout`` in seconds; ``needs`` from :data:`NEEDS`; ``frameworks`` None means every one.

    Raises ValueError for an id registered twice or an unknown need: a mistake of ours, found by any test.
    """
    unknown = [need for need in needs if need not in NEEDS]
    if unknown:
        raise ValueError(f"check {id}: unknown needs {unknown}")

    def register(fn: Callable[[Context], Outcome]) -> Callable[[Context], Outcome]:
        known = _REGISTRY.get(id)
        if known is not None and (known.fn.__module__, known.fn.__qualname__) != (fn.__module__, fn.__qualname__):
            raise ValueError(f"check {id} is registered twice")
        _REGISTRY[id] = Check(
            id,
            title,
            proves,
            how,
            threshold,
            source,
            timeout,
            tuple(needs),
            tuple(frameworks) if frameworks is not None else None,
            fn,
            light,
            retry,
        )
        return fn

    return register


def all_checks() -> dict[str, Check]:
    """Every check by id, in running order. Imports the check modules, no framework."""
    for name in CHECK_MODULES:
        importlib.import_module("." + name, __package__)
    return dict(_REGISTRY)


def load_check(check_id: str, module: str) -> Check:
    """One check, importing only the module that registers it (a process that makes one check needs no other)."""
    if check_id not in _REGISTRY:
        importlib.import_module("." + module, __package__)
    return _REGISTRY[check_id]


def load_adapter(name: str) -> Any:
    """The adapter module of a framework; ImportError when there is none of that name."""
    return importlib.import_module(".frameworks." + name, __package__)


class Missing:
    """Stands for an adapter function that does not exist: calling it says so."""

    def __init__(self, framework: str, function: str) -> None:
        self.framework, self.function = framework, function

    def __call__(self, *_: Any, **__: Any) -> Outcome:
        return not_applicable("{} has no {}".format(self.framework, self.function.replace("_", " ")))


class Adapter:
    """An adapter module whose missing functions answer ``not_applicable``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = load_adapter(name)

    def __getattr__(self, function: str) -> Any:
        return getattr(self.module, function, None) or Missing(self.name, function)

    def has(self, function: str) -> bool:
        return getattr(self.module, function, None) is not None


@dataclass
class Context:
    """What a check is given. Built anew in the process of each check from plain JSON."""

    check_id: str
    profile: str
    floors: dict[str, Any]
    """Floors of the profile: ``{"compute.matmul": {"fraction_of_spec": 0.7}, …}``; see :meth:`floor`."""
    framework: str | None
    device: str
    """``cuda`` or ``cpu``: where the work must run. With ``cuda`` a fall back to the CPU is a failure."""
    workdir: Path
    """An empty temporary folder of this check alone, removed afterwards."""
    nonce: str
    deadline: float
    """``time.monotonic()`` value at which this check is killed."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The environment line: ``gpus`` (list of dicts with name, pci_device_id, compute_capability, memory_mib …),
    ``driver``, ``driver_cuda``, ``python``, ``framework``, ``versions`` … see :mod:`.environment`."""
    options: dict[str, Any] = field(default_factory=dict)
    earlier: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Result lines of the checks that ran before, by id (for checks that judge a whole run)."""
    samples: str | None = None
    """File of the background sampler (JSON lines), for ``mon.*``."""
    busy_windows: list[dict[str, Any]] = field(default_factory=list)
    _adapter: Adapter | None = None

    @property
    def seed(self) -> int:
        """A 64-bit seed that depends on the nonce and the check: the host can derive it too."""
        from .challenge import seed_of

        return seed_of(self.nonce, self.check_id)

    @property
    def rng(self) -> random.Random:
        """A fresh generator from :attr:`seed`; the same on every call."""
        import random

        return random.Random(self.seed)

    @property
    def adapter(self) -> Any:
        """The framework's adapter (see the module docstring)."""
        if self._adapter is None:
            if self.framework is None:
                raise RuntimeError("no framework in this run")
            self._adapter = Adapter(self.framework)
        return self._adapter

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """Visible GPUs, as the environment line has them; empty on ``device == 'cpu'`` runs."""
        return list(self.facts.get("gpus") or []) if self.device == "cuda" else []

    def card(self, index: int = 0) -> dict[str, Any] | None:
        """The knowledge-base row of visible GPU ``index`` (spec rates, floors, SM count), or None when unknown."""
        from .cards import row_of

        gpus = self.gpus
        return row_of(gpus[index]) if index < len(gpus) else None

    def floor(self, key: str, default: Any = None) -> Any:
        """A floor of this check: the profile's, else ``default``."""
        return (self.floors.get(self.check_id) or {}).get(key, default)

    def remaining(self) -> float:
        """Seconds left until this check is killed."""
        return self.deadline - time.monotonic()

    @contextlib.contextmanager
    def busy(self, label: str, gpus: Sequence[int] | None = None, *, full: bool = True) -> Iterator[None]:
        """Mark a stretch in which the GPUs are meant to be fully busy; ``mon.*`` judges the curve inside it.

        Wrap only the timed loop, not imports and warm-up; at least 2 s to be judged. ``gpus`` None means all.
        ``full`` False: they work, but wait for the host in between (a small net); clocks then say nothing.
        """
        start = time.time()
        try:
            yield
        finally:
            self.busy_windows.append(
                {"check": self.check_id, "label": label, "start": start, "end": time.time(), "gpus": gpus, "full": full}
            )

    def data(self, name: str) -> bytes:
        """Bytes of a bundled file of ``suite/data/`` (also out of the zipapp)."""
        return read_data(name)

    def data_path(self, name: str) -> Path:
        """The same as a real file, copied into the work folder."""
        target = self.workdir / Path(name).name
        target.write_bytes(self.data(name))
        return target

    def start_fresh(self, function: str, argument: Any, env: Mapping[str, str] | None = None) -> Fresh:
        """Run ``"module:function"`` of this package in a fresh interpreter with one JSON argument.

        For "load it again in a process that never saw the original" and for ranks of a process group. The function
        takes the argument and returns a JSON value. It stays in this check's process group, so it dies with it.
        """
        import subprocess

        from .child import interpreter_argv

        result = self.workdir / f"fresh-{os.getpid()}-{time.monotonic_ns()}.json"
        argv = [*interpreter_argv(), "--call", function, str(result)]
        full = dict(os.environ)
        full.update(env or {})
        log = open(str(result) + ".log", "wb")  # noqa: SIM115 (closed by Fresh.wait)
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=full)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(argument).encode())
            process.stdin.close()
        return Fresh(process, result, log)

    def call_fresh(
        self,
        function: str,
        argument: Any,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Any:
        """:meth:`start_fresh` and wait. Raises RuntimeError with the end of its output when it fails."""
        return self.start_fresh(function, argument, env).wait(timeout or max(1.0, self.remaining() - 2.0))


class Fresh:
    """A function of this package running in an interpreter of its own."""

    def __init__(self, process: subprocess.Popen[bytes], result: Path, log: Any) -> None:
        self.process, self.result, self.log = process, result, log

    def output(self) -> str:
        """The end of what it printed (8 KiB)."""
        try:
            return Path(self.log.name).read_bytes()[-8192:].decode("utf-8", "replace")
        except OSError:
            return ""

    def wait(self, timeout: float) -> Any:
        """Its JSON value. RuntimeError when it failed, TimeoutError (and it is killed) when it takes too long."""
        import subprocess

        try:
            code = self.process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise TimeoutError(f"no answer in {timeout:.0f} s: {self.output()[-400:]}") from None
        finally:
            self.log.close()
        try:
            answer = json.loads(self.result.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise RuntimeError(f"process ended with {code}: {self.output()[-1500:]}") from None
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]


def read_data(name: str) -> bytes:
    """A bundled file of ``suite/data/``: from the folder, or through the zip importer."""
    import pkgutil

    content = pkgutil.get_data(__package__ or "", "data/" + name)
    if content is None:
        raise FileNotFoundError(name)
    return content


def eprint(*parts: Any) -> None:
    """Words for a person go to stderr."""
    print(*parts, file=sys.stderr, flush=True)
