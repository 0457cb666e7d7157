"""The checks that are asked of every framework: their ids, what they prove and what they hold it to.

The work is in :mod:`.compute`, :mod:`.training`, :mod:`.inference` and :mod:`.engines`; importing this module imports
no framework.
"""

from __future__ import annotations

from ..registry import Context, Outcome, check, skipped
from . import compute, engines, inference, reference, training


def _idle(ctx: Context) -> Outcome | None:
    """A skip when this framework computes on GPUs alone and the run has none; else None."""
    if ctx.device == "cpu" and getattr(ctx.adapter.module, "GPU_ONLY", False):
        return skipped(f"{ctx.framework} computes on GPUs alone, and this run has none")
    return None


_AZNHC = "AzNHC thresholds (github.com/Azure/azurehpc-health-checks)"


@check(
    "compute.matmul",
    title="Matrix product in every number format",
    proves="The framework's matrix products are right on this device, in every format the card has, and ran there.",
    how="512³ product of random float32 data (seeded by the run's nonce) as fp32, tf32, fp16, bf16, fp8. All entries "
    "are checked with Freivalds' method and 256 one by one against float64 worked out in plain Python. That it ran on "
    "the GPU is read from the result's device, the driver's primary context and the allocator.",
    threshold="relative RMS error: " + ", ".join(f"{mode} {bound:g}" for mode, bound in reference.BOUNDS.items()) + "; "
    "on a CPU fp16 and bf16 five times that; single entries 8 times; NaN never passes",
    source="rounding theory: unit roundoff of each format, times 2 to 5 (see reference.BOUNDS)",
    needs=("framework",),
    timeout=90,
)
def matmul(ctx: Context) -> Outcome:
    return _idle(ctx) or compute.matmul(ctx)


@check(
    "compute.challenge",
    title="Random challenge of the run",
    proves="The work was done in this run: the answer follows from the nonce and is recomputed by the host.",
    how="48³ integer product with operands from HMAC(nonce, check id); exact in fp32; the digest of the product is "
    "reported and compared outside.",
    threshold="exact",
    source="every sum stays below 2**24",
    needs=("framework",),
    timeout=60,
)
def challenge(ctx: Context) -> Outcome:
    return _idle(ctx) or compute.challenge(ctx)


@check(
    "compute.conv",
    title="Convolution forward and backward",
    proves="cuDNN (or the framework's own kernels) computes convolutions and their gradients rightly.",
    how="3x3 convolution of 2x8x14x14 random data to 16 channels; output and both gradients against plain Python.",
    threshold="relative RMS error 1e-4 in float32 (TF32 off)",
    source="float32 roundoff 6e-8 over sums of up to 392 terms, with room for Winograd and FFT kernels",
    needs=("framework",),
    timeout=90,
)
def conv(ctx: Context) -> Outcome:
    return _idle(ctx) or compute.conv(ctx)


@check(
    "compute.attention",
    title="Attention",
    proves="Every attention kernel that accepts this card gives the right answer.",
    how="Causal attention over (1, 2, 32, 64) random tensors; each backend (flash, efficient, cuDNN, math) and format "
    "against plain Python.",
    threshold="relative RMS error fp32 1e-4, fp16 5e-3, bf16 3e-2",
    source="about five roundings of the format",
    needs=("framework",),
    timeout=90,
)
def attention(ctx: Context) -> Outcome:
    return _idle(ctx) or compute.attention(ctx)


@check(
    "compute.matmul_speed",
    title="Matrix product speed",
    proves="The card computes as fast as this card should.",
    how="8192³ products over random data for three seconds in bf16 (fp16 where the card has none), timed by device "
    "events where the framework has them; the median counts.",
    threshold="the profile's tflops, else 0.70 of the card's dense rate (0.60 PCIe and low-power boards, 0.85 "
    "GeForce); above 1.35 of it is not believed",
    source="measured rates beside the specs in the knowledge base (cards.json)",
    needs=("gpu-framework",),
    timeout=60,
    retry=True,
)
def matmul_speed(ctx: Context) -> Outcome:
    return _idle(ctx) or compute.matmul_speed(ctx)


@check(
    "compute.membw",
    title="GPU memory bandwidth",
    proves="The card's memory is as fast as this card's should be.",
    how="60 copies of up to 1 GiB inside GPU memory; bytes read plus bytes written; the median counts.",
    threshold="the profile's gbs, else DCGM's published fail-below for the card, else 0.70 of the spec",
    source="DCGM diag-skus.yaml; knowledge base",
    needs=("gpu-framework",),
    timeout=60,
    retry=True,
)
def membw(ctx: Context) -> Outcome:
    return _idle(ctx) or compute.membw(ctx)


@check(
    "compute.h2d",
    title="Host to GPU and back",
    proves="The PCIe link moves data at its own speed.",
    how="15 pinned copies of 256 MiB each way by device events; the median counts; the bytes are compared.",
    threshold="x16: generation 3 9 GB/s, 4 21 GB/s, 5 48 GB/s; narrower links in proportion",
    source=_AZNHC,
    needs=("gpu-framework",),
    timeout=60,
    retry=True,
)
def h2d(ctx: Context) -> Outcome:
    return _idle(ctx) or compute.h2d(ctx)


@check(
    "train.epoch",
    title="One training epoch on real data",
    proves="The framework learns: gradients, optimiser and convolutions work together, on CPU and GPU alike.",
    how="One epoch of a small convolutional net (a perceptron where there is no convolution) over 1500 of 1797 "
    "handwritten digits, start and order fixed by the run's seed; tested on the other 297; on a GPU repeated on the "
    "CPU and compared.",
    threshold=f"loss falls below half, accuracy ≥ {training.ACCURACY}, mean loss CPU against GPU within "
    f"{training.AGREE}",
    source="measured on the CPU over 40 seeds and more: 0.872 at the least",
    needs=("framework",),
    timeout=150,
)
def epoch(ctx: Context) -> Outcome:
    return _idle(ctx) or training.epoch(ctx)


@check(
    "train.amp",
    title="Mixed precision training",
    proves="Training in bf16 (and fp16 with loss scaling on GPUs) works and is really on.",
    how="The same epoch under the framework's mixed precision; the type of the activations is read.",
    threshold=f"loss falls below half, accuracy ≥ {training.ACCURACY}, activations in half precision",
    source="as train.epoch",
    needs=("framework",),
    timeout=150,
)
def amp(ctx: Context) -> Outcome:
    return _idle(ctx) or training.amp(ctx)


@check(
    "train.checkpoint",
    title="Checkpoint round trip",
    proves="What is saved is what is loaded.",
    how="Weights (and optimiser state where the format has it) saved from the device, loaded in a fresh process onto "
    "the device, hashed.",
    threshold="bit for bit",
    source="definition",
    needs=("framework",),
    timeout=120,
)
def checkpoint(ctx: Context) -> Outcome:
    return _idle(ctx) or training.checkpoint(ctx)


@check(
    "train.compile",
    title="Compiler",
    proves="torch.compile, XLA, or the framework's own compiler works in this image and agrees with eager execution.",
    how="A product with gelu and addition, eager and compiled.",
    threshold="relative RMS error 1e-4",
    source="float32 roundoff with reordered sums",
    needs=("framework",),
    timeout=180,
)
def compiler(ctx: Context) -> Outcome:
    return _idle(ctx) or training.compiler(ctx)


@check(
    "train.loader",
    title="Data loader workers",
    proves="Loader workers start, share memory and stop here; nothing is lost, doubled or mixed up.",
    how="256 samples through the framework's loader with 0, 2 and 4 workers, fork and spawn, pinned memory on GPUs.",
    threshold="every sample once, with its own data; no stall over 40 s",
    source="definition; pytorch#5040, pytorch#1355",
    needs=("framework",),
    timeout=150,
)
def loader(ctx: Context) -> Outcome:
    return _idle(ctx) or training.loader(ctx)


@check(
    "infer.roundtrip",
    title="Save, load, answer",
    proves="A saved model gives the same answers in a fresh process.",
    how="A perceptron with random weights in the framework's deployment format; eight real digits; outputs against "
    "float64 in plain Python.",
    threshold=f"relative RMS error {inference.TOLERANCE:g}",
    source="float32 roundoff over three layers",
    needs=("framework",),
    timeout=120,
)
def roundtrip(ctx: Context) -> Outcome:
    return _idle(ctx) or inference.roundtrip(ctx)


@check(
    "infer.quantised",
    title="Quantised chain",
    proves="Quantise, save, load in a fresh process, run: the int8 model is smaller and answers nearly the same.",
    how="The same perceptron with int8 weights, by the framework's own quantiser where it has one.",
    threshold=f"cosine ≥ {inference.COSINE} per input, smaller on disk",
    source="int8 with one scale per channel keeps about 0.9999 on this net",
    needs=("framework",),
    timeout=150,
)
def quantised(ctx: Context) -> Outcome:
    return _idle(ctx) or inference.quantised(ctx)


@check(
    "infer.onnx",
    title="ONNX export",
    proves="The framework's ONNX export works with the packages in the image and runs in ONNX Runtime.",
    how="The same perceptron exported, run by ONNX Runtime in a fresh process.",
    threshold=f"relative RMS error {inference.TOLERANCE:g}",
    source="float32 roundoff over three layers",
    needs=("framework",),
    timeout=150,
)
def onnx(ctx: Context) -> Outcome:
    return _idle(ctx) or inference.onnx(ctx)


@check(
    "infer.lm",
    title="Language model",
    proves="Prefill, decoding with a key/value cache, batches and repetition agree on this device.",
    how="A two-layer transformer with random weights: six greedy tokens with the cache against one pass without; "
    "four prompts in a batch against one by one; the same prompt twice.",
    threshold=f"relative RMS error {inference.LM_TOLERANCE:g}; the repetition bit for bit",
    source="float32 roundoff with reordered sums through two layers",
    needs=("framework",),
    timeout=150,
)
def language_model(ctx: Context) -> Outcome:
    return _idle(ctx) or inference.language_model(ctx)


@check(
    "engine.vllm",
    title="vLLM",
    proves="vLLM starts on this card, batches as it answers singly, gives its blocks back, and serves.",
    how="A tiny Llama with random weights from a configuration written here, no download: 16 prompts with a shared "
    "prefix together and one by one, greedy; cache usage afterwards; then the OpenAI server and one completion.",
    threshold="same tokens, or a first difference where the two best tokens are within 0.1 in log-probability, and at "
    "least 8 of 16 prompts equal; no cache blocks in use afterwards; HTTP 200 and the 8 tokens asked for",
    source="vllm#1157, #946 (bf16 before 8.0), vLLM's requirement of compute capability 7.0",
    needs=("gpu-framework",),
    frameworks=("vllm",),
    timeout=400,
)
def vllm(ctx: Context) -> Outcome:
    return engines.vllm(ctx)


@check(
    "engine.trtllm",
    title="TensorRT-LLM",
    proves="TensorRT-LLM starts on this card and answers the same twice.",
    how="A tiny Llama with random weights through the LLM API's PyTorch backend; greedy, twice, and in a batch.",
    threshold="the same tokens twice; first tokens as alone, one near tie allowed",
    source="TensorRT-LLM's supported hardware: compute capability 8.0 and newer",
    needs=("gpu-framework",),
    frameworks=("tensorrt_llm",),
    timeout=400,
)
def trtllm(ctx: Context) -> Outcome:
    return engines.tensorrt_llm(ctx)
