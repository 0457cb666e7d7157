"""PyTorch. Works without numpy, which a plain ``pip install torch`` does not bring."""

from __future__ import annotations

import importlib
import os
import shutil
import sysconfig
import time
from array import array
from collections.abc import Sequence
from typing import Any

from .adapter import Layer, TrainJob, TrainResult

DISTRIBUTIONS = ("torch",)
MODULE = "torch"


def versions() -> dict[str, Any]:
    import torch

    cuda = torch.version.cuda
    nccl = None
    if cuda and torch.distributed.is_available() and torch.distributed.is_nccl_available():
        found = torch.cuda.nccl.version()
        nccl = ".".join(map(str, found)) if isinstance(found, tuple) else str(found)
    return {
        "framework": str(torch.__version__),
        "wheel_cuda": cuda,
        "cudnn": _cudnn_name() if cuda else None,
        "nccl": nccl,
        "gpu_build": cuda is not None,
    }


def _cudnn_name() -> str | None:
    """The cuDNN PyTorch was *compiled* with; the loaded one is measured elsewhere."""
    import torch

    try:
        number = torch._C._cudnn.getCompileVersion()
        return ".".join(map(str, number))
    except (AttributeError, RuntimeError):
        return None


def arch_list() -> list[str] | None:
    import torch

    # get_arch_list() is empty without a visible GPU; the compiled flags are there all the same
    found = torch.cuda.get_arch_list() or (torch._C._cuda_getArchFlags() or "").split() if torch.version.cuda else []
    return list(found) or None


def library_dirs() -> list[str]:
    import torch

    return [os.path.join(os.path.dirname(str(torch.__file__)), "lib")]


def seen_gpus() -> list[str]:
    import torch

    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def allocated() -> int | None:
    import torch

    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else None


def touch(ctx: Any) -> list[str]:
    import torch

    device = ctx.device
    done = []
    a = torch.ones(64, 64, device=device)
    (a @ a).sum().item()
    done.append("matmul")
    x = torch.ones(2, 8, 16, 16, device=device)
    torch.nn.functional.conv2d(x, torch.ones(8, 8, 3, 3, device=device)).sum().item()
    done.append("conv")
    dist = torch.distributed
    if device == "cuda" and dist.is_available() and dist.is_nccl_available():
        dist.init_process_group("nccl", init_method=f"file://{ctx.workdir}/touch", rank=0, world_size=1)
        t = torch.ones(1024, device=device)
        dist.all_reduce(t)
        t.sum().item()
        dist.destroy_process_group()
        done.append("all_reduce")
    return done


# --- tensors ----------------------------------------------------------------------------------------------------


def tensor(values: Sequence[float], shape: Sequence[int], device: str) -> Any:
    import torch

    flat = values if isinstance(values, array) and values.typecode == "f" else array("f", values)
    return torch.frombuffer(bytearray(flat.tobytes()), dtype=torch.float32).reshape(tuple(shape)).to(device)


def numbers(t: Any) -> array[float]:
    import torch

    flat = t.detach().to("cpu", torch.float64).contiguous().reshape(-1)
    return array("d", flat.tolist())


def place(t: Any) -> str:
    return str(t.device)


def _capability() -> tuple[int, int]:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return int(major), int(minor)


def modes(device: str) -> list[str]:
    import torch

    if device != "cuda":
        return ["fp32", "fp16", "bf16"]
    found = ["fp32", "fp16"]
    if _capability() >= (8, 0):
        found += ["tf32", "bf16"]
    if _capability() >= (8, 9) and hasattr(torch, "_scaled_mm") and hasattr(torch, "float8_e4m3fn"):
        found.append("fp8")
    return found


def matmul(a: Any, b: Any, mode: str) -> Any:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = mode == "tf32"
    if mode in ("fp32", "tf32"):
        return a @ b
    if mode == "fp8":
        one = torch.ones((), device=a.device)
        left = a.to(torch.float8_e4m3fn)
        right = b.t().contiguous().to(torch.float8_e4m3fn).t()  # cuBLASLt wants the second operand column major
        out = torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return out[0] if isinstance(out, tuple) else out
    kind = _dtype(mode)
    return a.to(kind) @ b.to(kind)


def _dtype(mode: str) -> Any:
    import torch

    return {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[mode]


def conv(x: Any, w: Any, dy: Any) -> tuple[Any, Any, Any]:
    import torch

    torch.backends.cudnn.allow_tf32 = False
    x, w = x.clone().requires_grad_(True), w.clone().requires_grad_(True)
    y = torch.nn.functional.conv2d(x, w, padding=1)
    dx, dw = torch.autograd.grad((y * dy).sum(), (x, w))
    return y, dx, dw


def attention(q: Any, k: Any, v: Any, mode: str) -> dict[str, Any]:
    import torch

    kind = _dtype(mode)
    q, k, v = (t.to(kind) for t in (q, k, v))
    sdpa = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    if sdpa is None:  # before 2.0
        return {}
    found = {"default": sdpa(q, k, v, is_causal=True)}
    if q.device.type != "cuda":
        return found
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:  # before 2.3
        return found
    wanted = {
        "math": "MATH",
        "flash": "FLASH_ATTENTION",
        "efficient": "EFFICIENT_ATTENTION",
        "cudnn": "CUDNN_ATTENTION",
    }
    for name, constant in wanted.items():
        backend = getattr(SDPBackend, constant, None)
        if backend is None:
            continue
        try:
            with sdpa_kernel(backend):
                found[name] = sdpa(q, k, v, is_causal=True)
        except RuntimeError as error:
            # "No available kernel": this backend refuses the type or the card, which is its right
            if "No available kernel" not in str(error) and "No viable backend" not in str(error):
                raise
    return found


# --- speed ------------------------------------------------------------------------------------------------------


def _timed(work: Any, repeats: int) -> list[float]:
    """Milliseconds of each call by CUDA events."""
    import torch

    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for i in range(repeats):
        work()
        marks[i + 1].record()
    torch.cuda.synchronize()
    return [float(marks[i].elapsed_time(marks[i + 1])) for i in range(repeats)]


def bench_matmul(n: int, mode: str, seconds: float) -> list[float]:
    import torch

    kind = _dtype("fp32" if mode == "tf32" else mode)
    torch.backends.cuda.matmul.allow_tf32 = mode == "tf32"
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float32).to(kind) for _ in range(2))
    out = torch.empty(n, n, device="cuda", dtype=kind)
    _timed(lambda: torch.mm(a, b, out=out), 3)
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        times += _timed(lambda: torch.mm(a, b, out=out), 10)
    return times


def bench_copy(mib: int, repeats: int) -> list[float]:
    import torch

    source = torch.randint(0, 255, (mib << 20,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    _timed(lambda: target.copy_(source), 3)
    return _timed(lambda: target.copy_(source), repeats)


def bench_transfer(mib: int, repeats: int) -> dict[str, list[float]]:
    import torch

    host = torch.empty(mib << 20, dtype=torch.uint8).pin_memory()
    host.fill_(7)
    card = torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
    _timed(lambda: card.copy_(host, non_blocking=True), 2)
    h2d = _timed(lambda: card.copy_(host, non_blocking=True), repeats)
    host.zero_()
    d2h = _timed(lambda: host.copy_(card, non_blocking=True), repeats)
    if int(host[0]) != 7 or int(host[-1]) != 7:
        raise RuntimeError("the bytes that came back are not the bytes that were sent")
    return {"h2d": h2d, "d2h": d2h}


# --- training ---------------------------------------------------------------------------------------------------


def _forward(p: Sequence[Any], x: Any, net: str) -> Any:
    import torch

    f = torch.nn.functional
    if net == "mlp":
        for i in (0, 2):
            x = f.relu(f.linear(x, p[i].t(), p[i + 1]))
        return f.linear(x, p[4].t(), p[5])
    x = x.reshape(-1, 1, 8, 8)
    x = f.max_pool2d(f.relu(f.conv2d(x, p[0], p[1], padding=1)), 2)
    x = f.relu(f.conv2d(x, p[2], p[3], padding=1))
    return f.linear(x.flatten(1), p[4].t(), p[5])


def train(job: TrainJob) -> TrainResult:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    device = job.device
    p = [tensor(w, s, device).requires_grad_(True) for w, s in zip(job.weights, job.shapes)]
    x = tensor(job.train_x, (-1, 64), device)
    y = torch.tensor(job.train_y, device=device)
    order = torch.tensor(job.order, device=device)
    optimiser = torch.optim.SGD(p, lr=job.rate, momentum=job.momentum)
    scaler = None
    if job.amp == "fp16" and device == "cuda":
        # torch.amp.GradScaler is from 2.3
        scaler = torch.amp.GradScaler("cuda") if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler()
    losses, seen = [], "float32"
    for at in range(0, len(job.order), job.batch):
        rows = order[at : at + job.batch]
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=_dtype(job.amp or "bf16"), enabled=job.amp is not None):
            logits = _forward(p, x[rows], job.net)
            seen = str(logits.dtype).replace("torch.", "")
            loss = torch.nn.functional.cross_entropy(logits.float(), y[rows])
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
        else:
            loss.backward()
            optimiser.step()
        losses.append(loss.detach())
    with torch.no_grad():
        logits = _forward(p, tensor(job.test_x, (-1, 64), device), job.net)
    return TrainResult(
        losses=[float(v) for v in torch.stack(losses).tolist()],
        logits=array("f", numbers(logits)),
        weights=[array("f", numbers(w)) for w in p],
        place=place(logits),
        compute_dtype=seen,
        details={"loss_scale": float(scaler.get_scale())} if scaler is not None else {},
    )


def checkpoint_save(weights: Sequence[Any], shapes: Sequence[Sequence[int]], path: str, device: str) -> None:
    import torch

    p = [torch.nn.Parameter(tensor(w, s, device)) for w, s in zip(weights, shapes)]
    optimiser = torch.optim.Adam(p, lr=1e-3)
    sum((w * w).sum() for w in p).backward()
    saved = [w.detach().clone() for w in p]
    optimiser.step()
    torch.save({"model": saved, "optimiser": optimiser.state_dict()}, path)


def checkpoint_load(path: str, shapes: Sequence[Sequence[int]], device: str) -> list[bytes]:
    import torch

    state = torch.load(path, map_location=device, weights_only=True)
    p = [torch.nn.Parameter(torch.zeros(tuple(s), device=device)) for s in shapes]
    with torch.no_grad():
        for target, source in zip(p, state["model"]):
            target.copy_(source)
    optimiser = torch.optim.Adam(p, lr=1e-3)
    optimiser.load_state_dict(state["optimiser"])
    if len(optimiser.state) != len(p):
        raise RuntimeError(f"the optimiser came back with {len(optimiser.state)} of {len(p)} states")
    return [array("f", numbers(w)).tobytes() for w in p]


def compiler_missing(device: str) -> str | None:
    """What torch.compile would miss in this image, or None: a C++ compiler on the CPU; C and Python.h for Triton."""
    import torch

    if not hasattr(torch, "compile"):
        return f"PyTorch {torch.__version__} has no torch.compile, which came with 2.0"
    names = ("CC", "gcc", "clang", "cc") if device == "cuda" else ("CXX", "g++", "clang++", "c++")
    if not os.environ.get(names[0]) and not any(shutil.which(name) for name in names[1:]):
        return f"there is no C{'' if device == 'cuda' else '++'} compiler in the image, which torch.compile needs"
    if device == "cuda" and not os.path.isfile(os.path.join(sysconfig.get_path("include"), "Python.h")):
        return "Python's header files (python3-dev) are not in the image, which Triton needs for torch.compile"
    return None


def compiled(x: Any, w: Any) -> tuple[Any, Any, str]:
    import torch

    # a cold cache in the check's own folder: nothing is left behind, and no home folder or user name is needed
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(os.getcwd(), "inductor")
    os.environ["TRITON_CACHE_DIR"] = os.path.join(os.getcwd(), "triton")

    torch.backends.cuda.matmul.allow_tf32 = False

    def work(a: Any, b: Any) -> Any:
        return torch.nn.functional.gelu(a @ b) * 2 + a

    return work(x, w), torch.compile(work)(x, w), "torch.compile (inductor)"


class Counting:
    """A map-style data set: sample i is ``([i, i², …], i)``. At module level, so that spawn can pickle it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        import torch

        return torch.full((64,), float(i)), i


def loaders(count: int, device: str) -> list[dict[str, Any]]:
    import torch

    found = []
    for workers, start in ((0, None), (2, "fork"), (4, "fork"), (2, "spawn")):
        pin = device == "cuda"
        begin = time.monotonic()
        loader = torch.utils.data.DataLoader(
            Counting(count),
            batch_size=16,
            shuffle=True,
            num_workers=workers,
            pin_memory=pin,
            timeout=40 if workers else 0,
            multiprocessing_context=start,
        )
        labels, sound, pinned = [], True, True
        for x, y in loader:
            pinned = pinned and (not pin or bool(x.is_pinned()))
            x = x.to(device, non_blocking=pin)
            labels += [int(v) for v in y]
            sound = sound and bool((x[:, 0].cpu() == y).all())
        found.append(
            {
                "workers": workers,
                "start": start or "in-process",
                "pinned": pinned if pin else None,
                "labels": labels,
                "sound": sound,
                "seconds": round(time.monotonic() - begin, 2),
            }
        )
    return found


# --- inference --------------------------------------------------------------------------------------------------


def _perceptron(layers: Sequence[Layer], device: str) -> Any:
    import torch

    parts: list[Any] = []
    for layer in layers:
        linear = torch.nn.Linear(layer.inputs, layer.outputs)
        with torch.no_grad():
            linear.weight.copy_(tensor(layer.w, (layer.inputs, layer.outputs), "cpu").t())
            linear.bias.copy_(tensor(layer.b, (layer.outputs,), "cpu"))
        parts += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1]).to(device).eval()


def model_save(layers: Sequence[Layer], path: str, device: str) -> str:
    import torch

    torch.save(_perceptron(layers, device).state_dict(), path)
    return "state_dict"


def model_run(path: str, x: Sequence[float], rows: int, device: str) -> tuple[array[float], str]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    state = torch.load(path, map_location=device, weights_only=True)
    widths = [state[f"{i}.weight"].shape for i in (0, 2, 4)]
    blank = [Layer(array("f", bytes(4 * o * i)), array("f", bytes(4 * o)), i, o) for o, i in widths]
    model = _perceptron(blank, device)
    model.load_state_dict(state)
    with torch.inference_mode():
        out = model(tensor(x, (rows, 64), device))
    return array("f", numbers(out)), place(out)


def quantised_save(layers: Sequence[Layer], path: str, device: str) -> str:
    """On the CPU PyTorch's own dynamic int8 where it is; else int8 weights with one scale per output channel."""
    import torch

    state: dict[str, Any]
    dynamic: Any = getattr(getattr(torch, "ao", None), "quantization", None)
    if device == "cpu" and hasattr(dynamic, "quantize_dynamic") and torch.backends.quantized.engine != "none":
        model = dynamic.quantize_dynamic(_perceptron(layers, "cpu"), {torch.nn.Linear}, dtype=torch.qint8)
        torch.save({"scheme": "dynamic", "state": model.state_dict()}, path)
        return "dynamic int8 (torch.ao.quantization)"
    state = {"scheme": "weight-only"}
    for i, layer in enumerate(layers):
        w = tensor(layer.w, (layer.inputs, layer.outputs), device)
        scale = w.abs().amax(0) / 127.0
        state[f"q{i}"] = torch.clamp(torch.round(w / scale), -127, 127).to(torch.int8)
        state[f"s{i}"] = scale
        state[f"b{i}"] = tensor(layer.b, (layer.outputs,), device)
    torch.save(state, path)
    return "int8 weights, one scale per output channel"


def quantised_run(path: str, x: Sequence[float], rows: int, device: str) -> tuple[array[float], str]:
    import torch

    # a quantised state_dict holds packed C++ parameters, which weights_only refuses; the file is our own
    state = torch.load(path, map_location=device, weights_only=False)
    t = tensor(x, (rows, 64), device)
    if state["scheme"] == "dynamic":
        sizes = ((64, 256), (256, 256), (256, 10))
        blank = [Layer(array("f", bytes(4 * i * o)), array("f", bytes(4 * o)), i, o) for i, o in sizes]
        model = torch.ao.quantization.quantize_dynamic(_perceptron(blank, "cpu"), {torch.nn.Linear}, dtype=torch.qint8)
        model.load_state_dict(state["state"])
        with torch.inference_mode():
            t = model(t)
        return array("f", numbers(t)), place(t)
    with torch.inference_mode():
        for i in range(3):
            t = (t @ state[f"q{i}"].to(t.dtype)) * state[f"s{i}"] + state[f"b{i}"]
            if i < 2:
                t = torch.relu(t)
    return array("f", numbers(t)), place(t)


def onnx_export(layers: Sequence[Layer], path: str) -> None:
    import torch

    options: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"]}
    model, example = _perceptron(layers, "cpu"), (torch.zeros(8, 64),)
    try:
        importlib.import_module("onnxscript")  # the newer exporter needs it
        torch.onnx.export(model, example, path, dynamo=True, external_data=False, **options)
    except (ImportError, TypeError):
        try:
            torch.onnx.export(model, example, path, dynamo=False, **options)
        except TypeError:  # before 2.5 there is no such argument
            torch.onnx.export(model, example, path, **options)


def lm_ops(device: str) -> Any:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False

    class Ops:
        tensor = staticmethod(lambda values, shape: tensor(values, shape, device))
        take = staticmethod(lambda table, ids: table[torch.tensor(ids, device=device)])
        reshape = staticmethod(lambda t, shape: t.reshape(tuple(shape)))
        transpose = staticmethod(lambda t, axes: t.permute(tuple(axes)))
        concat = staticmethod(lambda parts, axis: torch.cat(parts, dim=axis))
        softmax = staticmethod(lambda t: torch.softmax(t, dim=-1))
        sigmoid = staticmethod(torch.sigmoid)
        mean = staticmethod(lambda t: t.mean(dim=-1, keepdim=True))
        rsqrt = staticmethod(torch.rsqrt)
        numbers = staticmethod(numbers)
        place = staticmethod(place)

    return Ops
