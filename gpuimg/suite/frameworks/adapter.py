"""The one shape of an adapter, and the plain data that checks and adapters exchange.

An adapter is a module. It turns flat lists of numbers into tensors of its framework on one device, runs one operation
and gives numbers back; what is asked, what the right answer is and what passes is decided outside, in the same way
for every framework. Functions a framework has no counterpart for are left out: checks then say "not applicable".

Tensors travel as flat row-major sequences (``array('f')``), so that an adapter needs no numpy unless its framework
does. ``device`` is ``"cuda"`` (the first visible GPU) or ``"cpu"``.

Python 3.8 syntax, standard library only.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

try:
    from typing import Protocol
except ImportError:  # pragma: no cover (Python 3.7 is not supported, but the message should be)
    raise SystemExit("Python 3.8 or newer is needed") from None


class Core(Protocol):
    """What every adapter has."""

    DISTRIBUTIONS: tuple[str, ...]
    MODULE: str

    def versions(self) -> dict[str, Any]:
        """Declared: framework, wheel_cuda, cudnn, nccl, gpu_build."""

    def arch_list(self) -> list[str] | None:
        """``sm_80`` … as the framework reports it."""

    def library_dirs(self) -> list[str]:
        """Folders of its shared libraries."""

    def touch(self, ctx: Any) -> list[str]:
        """Load the CUDA libraries: do a product and, where there is one, a convolution and a collective."""

    def seen_gpus(self) -> list[str]:
        """Names of the GPUs that the framework itself can use."""

    def allocated(self) -> int | None:
        """Bytes that its allocator holds on the first GPU; None when it does not say."""

    def modes(self, device: str) -> list[str]:
        """Number formats of :func:`matmul` on that device: fp32, tf32, fp16, bf16, fp8."""

    def tensor(self, values: Sequence[float], shape: Sequence[int], device: str) -> Any:
        """A float32 tensor on the device."""

    def numbers(self, tensor: Any) -> array[float]:
        """Its values as ``array('d')``, flat."""

    def place(self, tensor: Any) -> str:
        """``cuda:0`` or ``cpu``: where the framework says the tensor lies."""

    def matmul(self, a: Any, b: Any, mode: str) -> Any:
        """Product of two float32 matrices with operands rounded to ``mode`` (fp32: without TF32)."""


class Compute(Core, Protocol):
    """What compute.* asks beyond the core; each may be absent."""

    def conv(self, x: Any, w: Any, dy: Any) -> tuple[Any, Any, Any]:
        """3 x 3 convolution, padding 1, NCHW float32: ``(y, dx, dw)`` of ``sum(y * dy)``; dx, dw None: no autodiff."""

    def attention(self, q: Any, k: Any, v: Any, mode: str) -> dict[str, Any]:
        """Causal attention of (1, heads, length, width) tensors, by backend name."""

    def bench_matmul(self, n: int, mode: str, seconds: float) -> list[float]:
        """Milliseconds of each n³ product on the GPU over random data, for about ``seconds``."""

    def bench_copy(self, mib: int, repeats: int) -> list[float]:
        """Milliseconds of each copy of ``mib`` MiB inside GPU memory."""

    def bench_transfer(self, mib: int, repeats: int) -> dict[str, list[float]]:
        """Milliseconds of each pinned host-to-device (``h2d``) and device-to-host (``d2h``) copy of ``mib`` MiB."""


class Training(Core, Protocol):
    """What train.* asks; each may be absent."""

    def train(self, job: TrainJob) -> TrainResult:
        """Train one epoch with the framework's own autodiff."""

    def checkpoint_save(self, weights: Sequence[Any], shapes: Sequence[Sequence[int]], path: str, device: str) -> None:
        """Write weights in the framework's own checkpoint format, from tensors on the device."""

    def checkpoint_load(self, path: str, shapes: Sequence[Sequence[int]], device: str) -> list[bytes]:
        """Read it back onto the device; the float32 bytes of each tensor."""

    def compiled(self, x: Any, w: Any) -> tuple[Any, Any, str]:
        """``gelu(x @ w) * 2 + x`` eager and through the framework's compiler, and the compiler's name."""

    def loaders(self, count: int, device: str) -> list[dict[str, Any]]:
        """Read ``count`` samples through the framework's loader in each of its ways; see training.loader."""


class Inference(Core, Protocol):
    """What infer.* asks; each may be absent. Models are 64-256-256-10 perceptrons: three weights, three biases."""

    def model_save(self, layers: Sequence[Layer], path: str, device: str) -> str:
        """Write the model in the framework's deployment format; its name."""

    def model_run(self, path: str, x: Sequence[float], rows: int, device: str) -> tuple[array[float], str]:
        """Load it and run ``rows`` inputs of 64: flat outputs and the place they lay on."""

    def quantised_save(self, layers: Sequence[Layer], path: str, device: str) -> str:
        """The same with int8 weights; the scheme's name."""

    def quantised_run(self, path: str, x: Sequence[float], rows: int, device: str) -> tuple[array[float], str]:
        """Load and run it."""

    def onnx_export(self, layers: Sequence[Layer], path: str) -> None:
        """Export as ONNX with input ``x`` and output ``y``. ImportError: a package it needs is not installed."""

    def lm_ops(self, device: str) -> Any:
        """The few operations of :mod:`.lm`."""


@dataclass
class Layer:
    """A linear layer: ``y = x · w + b``, w is (inputs, outputs), row major."""

    w: array[float]
    b: array[float]
    inputs: int
    outputs: int

    def to_json(self) -> dict[str, Any]:
        return {"w": list(self.w), "b": list(self.b), "inputs": self.inputs, "outputs": self.outputs}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Layer:
        return Layer(array("f", value["w"]), array("f", value["b"]), value["inputs"], value["outputs"])


@dataclass
class TrainJob:
    """One epoch over the digits: everything random is decided here, so that every framework and device starts equal."""

    train_x: array[float]
    """rows x 64, in [0, 1]."""
    train_y: list[int]
    test_x: array[float]
    test_y: list[int]
    order: list[int]
    """Row numbers in the order in which they are shown."""
    batch: int
    rate: float
    momentum: float
    weights: list[array[float]]
    shapes: list[tuple[int, ...]]
    net: str
    """``cnn`` (see :func:`cnn_shapes`) or ``mlp``."""
    device: str
    amp: str | None = None
    """None: float32; else ``bf16`` or ``fp16`` for the forward pass."""


@dataclass
class TrainResult:
    """What a training run gave."""

    losses: list[float]
    """Mean loss of each batch."""
    logits: array[float]
    """Test logits, rows x 10."""
    weights: list[array[float]]
    place: str
    compute_dtype: str = "float32"
    """Type of the activations as the framework says, e.g. ``bfloat16``."""
    details: dict[str, Any] = field(default_factory=dict)


def cnn_shapes() -> list[tuple[int, ...]]:
    """conv 3x3 1→16, relu, 2x2 max pool, conv 3x3 16→32, relu, linear 512→10: (kernel OIHW, bias) per layer."""
    return [(16, 1, 3, 3), (16,), (32, 16, 3, 3), (32,), (512, 10), (10,)]


def mlp_shapes() -> list[tuple[int, ...]]:
    """64→256→256→10 with relu between: (weight (in, out), bias) per layer."""
    return [(64, 256), (256,), (256, 256), (256,), (256, 10), (10,)]


def size_of(shape: Sequence[int]) -> int:
    """Number of elements."""
    total = 1
    for extent in shape:
        total *= extent
    return total
