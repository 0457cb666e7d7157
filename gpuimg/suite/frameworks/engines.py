"""engine.*: serving engines, with a tiny model whose weights are random: nothing is downloaded.

Both engines refuse cards that they cannot serve; we say so first, with the reason, instead of waiting for an assert
deep inside. They need a GPU; the steps run in fresh processes, so that a crash of the engine is told as such.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..registry import Context, Outcome, failed, passed, skipped

VOCAB, DIM, HEADS, KV_HEADS, LAYERS, FFN = 512, 256, 4, 2, 2, 512
"""Head width 64: every attention backend takes it."""


def capability(ctx: Context) -> tuple[int, int] | None:
    """Compute capability of the first GPU, or None when it is not known."""
    text = str((ctx.gpus[0] if ctx.gpus else {}).get("compute_capability", ""))
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def refusal(engine: str, cc: tuple[int, int] | None, dtype: str) -> str | None:
    """Why an engine cannot serve this card, or None. Pure.

    vLLM needs 7.0 (its kernels are not built for less); bf16 needs 8.0; TensorRT-LLM supports 8.0 and newer.
    """
    if cc is None:
        return None
    shown = f"{cc[0]}.{cc[1]}"
    if engine == "vllm" and cc < (7, 0):
        return f"vLLM needs compute capability 7.0 or newer; this card has {shown}"
    if engine == "tensorrt_llm" and cc < (8, 0):
        return f"TensorRT-LLM needs compute capability 8.0 or newer; this card has {shown}"
    if dtype == "bfloat16" and cc < (8, 0):
        return f"bfloat16 needs compute capability 8.0 or newer; this card has {shown}: use float16"
    return None


def write_model(folder: Path, rng: random.Random) -> None:
    """A Llama of about 1.3 M parameters as config.json and model.safetensors (float16), both written by hand.

    safetensors: 8 bytes little-endian header length, JSON header, raw tensors.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": DIM,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": DIM // HEADS,
        "vocab_size": VOCAB,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "attention_bias": False,
        "mlp_bias": False,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    kv = DIM // HEADS * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, DIM)}
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        shapes.update(
            {
                base + "input_layernorm.weight": (DIM,),
                base + "post_attention_layernorm.weight": (DIM,),
                base + "self_attn.q_proj.weight": (DIM, DIM),
                base + "self_attn.k_proj.weight": (kv, DIM),
                base + "self_attn.v_proj.weight": (kv, DIM),
                base + "self_attn.o_proj.weight": (DIM, DIM),
                base + "mlp.gate_proj.weight": (FFN, DIM),
                base + "mlp.up_proj.weight": (FFN, DIM),
                base + "mlp.down_proj.weight": (DIM, FFN),
            }
        )
    shapes["model.norm.weight"] = (DIM,)
    shapes["lm_head.weight"] = (VOCAB, DIM)
    header: dict[str, Any] = {}
    blobs, at = [], 0
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        if len(shape) == 1:
            blob = struct.pack("<e", 1.0) * count
        else:
            # large enough that logits are far apart: greedy tokens then do not hang on a rounding
            scale = 2.0 * (3.0 / shape[1]) ** 0.5
            blob = struct.pack(f"<{count}e", *(rng.uniform(-scale, scale) for _ in range(count)))
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def prompts(rng: random.Random) -> list[list[int]]:
    """16 prompts of token numbers: a shared prefix of 48 (three cache blocks of 16), then 1 to 16 of their own."""
    prefix = [rng.randrange(3, VOCAB) for _ in range(48)]
    return [prefix + [rng.randrange(3, VOCAB) for _ in range(i + 1)] for i in range(16)]


NEAR_TIE = 0.1
"""Two tokens whose log-probabilities are this close may change places when sums are reordered in float16."""


def divergences(batch: list[list[int]], single: list[list[int]], gaps: list[list[float]]) -> list[dict[str, Any]]:
    """First differing position of each prompt that answered differently: ``{prompt, position, gap}``. Pure.

    ``gaps``: difference of the two best log-probabilities at each position of the batch's answer. After the first
    difference the texts go separate ways, so later ones mean nothing.
    """
    found = []
    for number, (left, right) in enumerate(zip(batch, single)):
        if len(left) != len(right):
            found.append({"prompt": number, "position": min(len(left), len(right)), "gap": float("inf")})
            continue
        for at, (a, b) in enumerate(zip(left, right)):
            if a != b:
                found.append({"prompt": number, "position": at, "gap": round(gaps[number][at], 4)})
                break
    return found


def agreement(one: list[list[int]], other: list[list[int]]) -> float:
    """Share of equal tokens, position by position."""
    pairs = [(a, b) for left, right in zip(one, other) for a, b in zip(left, right)]
    return sum(a == b for a, b in pairs) / len(pairs) if pairs else 0.0


def _environment() -> dict[str, str]:
    """No network, no usage reports, the engine core in this process (so that its metrics can be read)."""
    return {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }


def vllm(ctx: Context) -> Outcome:
    """Offline batch against single prompts, blocks given back, then the server."""
    why = refusal("vllm", capability(ctx), "float16")
    if why:
        return skipped(why)
    folder = ctx.workdir / "model"
    write_model(folder, ctx.rng)
    answer = ctx.call_fresh(
        "frameworks.engines:vllm_offline",
        {"model": str(folder), "prompts": prompts(ctx.rng)},
        timeout=max(10.0, ctx.remaining() * 0.55),
        env=_environment(),
    )
    measured: dict[str, Any] = {key: value for key, value in answer.items() if key not in ("batch", "single", "gaps")}
    apart = divergences(answer["batch"], answer["single"], answer["gaps"])
    measured["same_tokens"] = round(agreement(answer["batch"], answer["single"]), 4)
    measured["divergences"] = [{**row, "gap": min(row["gap"], 1e9)} for row in apart]
    expected = {"divergence_only_at_gaps_below": NEAR_TIE, "prompts_equal_at_least": 8, "blocks_in_use_after": 0}
    if not all(answer["batch"]):
        return failed("vLLM gave no tokens for some prompts", "read its log", measured, expected)
    if len(apart) > 8 or any(row["gap"] >= NEAR_TIE for row in apart):
        return failed(
            f"{len(apart)} of 16 prompts answer differently in a batch than alone (greedy), and not at a near tie",
            "block reuse or the attention backend is wrong on this card: try VLLM_ATTENTION_BACKEND, or without "
            "prefix caching",
            measured,
            expected,
        )
    if measured["blocks_in_use_after"] not in (0, None):
        return failed(
            f"{measured['blocks_in_use_after']} cache blocks are still in use after all requests ended",
            "vLLM leaks cache blocks: another release",
            measured,
            expected,
        )
    measured["server"] = serve(ctx, folder)
    return passed(
        measured, expected, None if measured["blocks_in_use_after"] == 0 else "this release does not tell block usage"
    )


def vllm_offline(argument: dict[str, Any]) -> dict[str, Any]:
    """In the fresh process: 16 prompts together, then one by one."""
    import torch
    import vllm

    engine = vllm.LLM(
        model=argument["model"],
        skip_tokenizer_init=True,
        dtype="float16",
        seed=0,
        max_model_len=256,
        gpu_memory_utilization=0.2,
        enforce_eager=True,
        enable_prefix_caching=True,
        disable_log_stats=False,
    )
    sampling = vllm.SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True, detokenize=False, logprobs=2)
    asked = [{"prompt_token_ids": p} for p in argument["prompts"]]
    started = time.monotonic()
    outputs = [o.outputs[0] for o in engine.generate(asked, sampling, use_tqdm=False)]
    seconds = time.monotonic() - started
    batch = [list(o.token_ids) for o in outputs]
    gaps = []
    for output in outputs:
        best = [sorted((p.logprob for p in row.values()), reverse=True)[:2] for row in output.logprobs]
        gaps.append([float(pair[0] - pair[1]) for pair in best])
    single = [list(engine.generate([a], sampling, use_tqdm=False)[0].outputs[0].token_ids) for a in asked]
    return {
        "vllm": vllm.__version__,
        "attention_backend": _backend(engine),
        "batch": batch,
        "single": single,
        "gaps": gaps,
        "batch_seconds": round(seconds, 3),
        "blocks_in_use_after": _blocks_in_use(engine),
        "gpu_memory_bytes": int(torch.cuda.max_memory_allocated()),
    }


def _backend(engine: Any) -> str | None:
    """Name of the attention backend that was chosen, where this release lets itself be asked."""
    try:
        names = engine.collective_rpc(_worker_backend)
        return str(names[0])
    except Exception as error:
        return f"not readable: {type(error).__name__}"


def _worker_backend(worker: Any) -> str:
    runner = worker.model_runner
    groups = getattr(runner, "attn_groups", None)
    if groups:
        return str(groups[0][0].backend.get_name())
    return str(runner.attn_backend.get_name())


def _blocks_in_use(engine: Any) -> int | None:
    """Cache blocks still referenced; None when this release has another structure."""
    try:
        core = engine.llm_engine.engine_core.engine_core
        pool = core.scheduler.kv_cache_manager.block_pool
        # one block is the null block, never given out
        return int(pool.num_gpu_blocks - 1 - pool.get_num_free_blocks())
    except AttributeError:
        return None


def serve(ctx: Context, folder: Path) -> dict[str, Any]:
    """Start the OpenAI server on a free port, ask for one completion, stop it. RuntimeError says what went wrong."""
    import urllib.error  # here: every check pays for what this module imports
    import urllib.request

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = ctx.workdir / "server.log"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--skip-tokenizer-init", "--dtype", "float16", "--max-model-len", "256", "--enforce-eager"]
    command += ["--gpu-memory-utilization", "0.2", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", "tiny"]
    environment = {**os.environ, **_environment()}
    del environment["VLLM_ENABLE_V1_MULTIPROCESSING"]
    started = time.monotonic()
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        while True:
            if server.poll() is not None:
                raise RuntimeError(f"the server ended with {server.returncode}: {_tail(log)}")
            if ctx.remaining() < 15:
                raise RuntimeError(f"the server was not ready in time: {_tail(log)}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as reply:
                    if reply.status == 200:
                        break
            except (OSError, urllib.error.URLError):
                time.sleep(0.5)
        ready = time.monotonic() - started
        body = {"model": "tiny", "prompt": prompts(ctx.rng)[0], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/completions",
            data=json.dumps({**body, "detokenize": False}).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=max(5.0, min(60.0, ctx.remaining() - 5))) as reply:
                answer = json.loads(reply.read())
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"the server answered {error.code}: {error.read()[:400]!r}; {_tail(log)}") from None
        if answer["usage"]["completion_tokens"] != 8:
            raise RuntimeError(f"8 tokens were asked for, the server says {answer['usage']}")
        return {"ready_seconds": round(ready, 1), "completion_tokens": 8}
    finally:
        server.terminate()
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _tail(log: Path) -> str:
    return log.read_bytes()[-1200:].decode("utf-8", "replace")


def tensorrt_llm(ctx: Context) -> Outcome:
    """The same tokens twice and in a batch."""
    why = refusal("tensorrt_llm", capability(ctx), "float16")
    if why:
        return skipped(why)
    folder = ctx.workdir / "model"
    write_model(folder, ctx.rng)
    answer = ctx.call_fresh(
        "frameworks.engines:trtllm_offline", {"model": str(folder), "prompts": prompts(ctx.rng)[:4]}, env=_environment()
    )
    measured = {key: value for key, value in answer.items() if key not in ("batch", "again", "single")}
    if not all(answer["batch"]) or not all(answer["single"]):
        return failed("TensorRT-LLM gave no tokens for some prompts", "read its log", measured)
    measured["same_again"] = round(agreement(answer["batch"], answer["again"]), 4)
    # the first token alone: after a near tie the texts go separate ways, and one of four may meet one
    first = [([a[0]], [b[0]]) for a, b in zip(answer["batch"], answer["single"])]
    measured["first_token_same_alone"] = sum(a == b for a, b in first)
    expected = {"same_again": 1.0, "first_token_same_alone_at_least": len(first) - 1}
    if measured["same_again"] < 1.0 or measured["first_token_same_alone"] < len(first) - 1:
        return failed(
            "the same prompts gave different tokens (greedy)",
            "its kernels are wrong on this card, or not deterministic: another release",
            measured,
            expected,
        )
    return passed(measured, expected)


def trtllm_offline(argument: dict[str, Any]) -> dict[str, Any]:
    """In the fresh process: the PyTorch backend, which needs no engine build."""
    import tensorrt_llm
    from tensorrt_llm import LLM, SamplingParams
    from tensorrt_llm.llmapi import KvCacheConfig

    engine = LLM(
        model=argument["model"],
        skip_tokenizer_init=True,
        dtype="float16",
        max_seq_len=256,
        max_batch_size=8,
        kv_cache_config=KvCacheConfig(free_gpu_memory_fraction=0.1),
    )
    try:
        sampling = SamplingParams(temperature=0.0, max_tokens=12, end_id=-1, detokenize=False)

        def ask(tokens: list[list[int]]) -> list[list[int]]:
            return [list(o.outputs[0].token_ids) for o in engine.generate(tokens, sampling, use_tqdm=False)]

        asked = argument["prompts"]
        return {
            "tensorrt_llm": tensorrt_llm.__version__,
            "batch": ask(asked),
            "again": ask(asked),
            "single": [ask([p])[0] for p in asked],
        }
    finally:
        engine.shutdown()
