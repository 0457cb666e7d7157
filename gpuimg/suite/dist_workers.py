"""One rank of a process group, in each framework that has one. Runs in a fresh process; see :mod:`.checks_dist`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

COUNT = 1024
"""Elements of the exact tests: small integers, so every order of summation gives the same fp32."""


def contribution(rank: int) -> list[float]:
    """What a rank brings: element i is (rank + 1) * (i % 7 + 1)."""
    return [float((rank + 1) * (i % 7 + 1)) for i in range(COUNT)]


def digest(values: list[float]) -> str:
    """Short fingerprint of exact values."""
    import hashlib

    return hashlib.sha256(",".join(str(int(v)) if v == int(v) else repr(v) for v in values).encode()).hexdigest()[:16]


def wanted(world: int) -> dict[str, str]:
    """Right answers of the exact task, worked out without any framework."""
    total = [float(sum(range(1, world + 1)) * (i % 7 + 1)) for i in range(COUNT)]
    everyone = [value for rank in range(world) for value in contribution(rank)]
    return {"all_reduce": digest(total), "broadcast": digest(contribution(0)), "all_gather": digest(everyone)}


def compare(world: int, got: dict[str, list[float]]) -> dict[str, Any]:
    """``{operation: {got, want}}`` as fingerprints; NaN never equals anything."""
    want = wanted(world)
    out = {}
    for name, values in got.items():
        try:
            out[name] = {"got": digest(values), "want": want[name]}
        except (ValueError, OverflowError):
            out[name] = {"got": "not a number", "want": want[name]}
    return out


def visible(gpu: int) -> str:
    """CUDA_VISIBLE_DEVICES that leaves one of the GPUs visible now."""
    outer = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return outer[gpu] if gpu < len(outer) else str(gpu)


def torch(job: dict[str, Any]) -> dict[str, Any]:
    """A rank of torch.distributed."""
    from datetime import timedelta

    import torch as t
    import torch.distributed as dist

    rank, world, gpu = job["rank"], job["world"], job["gpu"]
    device = t.device("cpu") if gpu is None else t.device("cuda", gpu)
    if gpu is not None:
        t.cuda.set_device(device)
    address, port = job["rendezvous"].rsplit(":", 1)
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=port)
    limit = timedelta(seconds=max(10.0, float(job["timeout_s"]) - 2))
    dist.init_process_group(job["backend"], rank=rank, world_size=world, timeout=limit)
    try:
        answer: dict[str, Any] = {"backend": dist.get_backend(), "rank": rank, "device": str(device)}
        if job["task"] == "exact":
            mine = t.tensor(contribution(rank), dtype=t.float32, device=device)
            total = mine.clone()
            dist.all_reduce(total)
            first = mine.clone()
            dist.broadcast(first, src=0)
            parts = [t.empty_like(mine) for _ in range(world)]
            dist.all_gather(parts, mine)
            got = {
                "all_reduce": total.cpu().tolist(),
                "broadcast": first.cpu().tolist(),
                "all_gather": t.cat(parts).cpu().tolist(),
            }
            answer["results"] = compare(world, got)
            if gpu is not None:
                answer["nccl"] = ".".join(str(n) for n in t.cuda.nccl.version())
        elif job["task"] == "sweep":
            answer["times"] = {str(s): _time_torch(t, dist, s, job["iterations"], device, None) for s in job["sizes"]}
        elif job["task"] == "load":
            answer.update(_load_torch(t, dist, device, float(job["seconds"])))
        else:
            pairs: dict[str, list[float]] = {}
            for a in range(world):
                for b in range(a + 1, world):
                    group = dist.new_group([a, b])
                    if rank in (a, b):
                        seconds = _time_torch(t, dist, job["sizes"][0], job["iterations"], device, group)
                        pairs[f"{a}-{b}"] = seconds
                    dist.barrier()
            gathered: list[Any] = [None] * world
            dist.all_gather_object(gathered, pairs)
            answer["pairs"] = {name: values for part in gathered for name, values in part.items()}
        return answer
    finally:
        dist.destroy_process_group()


def _load_torch(t: Any, dist: Any, device: Any, seconds: float) -> dict[str, Any]:
    """Multiply matrices for ``seconds`` from a common start: TFLOP/s and the wall-clock stretch."""
    dtype = t.bfloat16 if t.cuda.get_device_capability(device)[0] >= 8 else t.float16
    n = 8192
    a, b = (t.randn(n, n, device=device, dtype=t.float32).to(dtype) for _ in range(2))
    for _ in range(3):
        a @ b
    t.cuda.synchronize()
    dist.barrier()
    started, clock, count = time.time(), time.perf_counter(), 0
    while time.perf_counter() - clock < seconds:
        for _ in range(20):
            a @ b
        t.cuda.synchronize()
        count += 20
    spent = time.perf_counter() - clock
    return {"tflops": 2.0 * n**3 * count / spent / 1e12, "window": [started, time.time()]}


def _time_torch(t: Any, dist: Any, size: int, iterations: int, device: Any, group: Any) -> list[float]:
    """Seconds of each all_reduce of ``size`` bytes, by events on the GPU, after five that are not counted."""
    data = t.rand(size // 4, dtype=t.float32, device=device)
    for _ in range(5):
        dist.all_reduce(data, group=group)
        data.mul_(0.5)
    times = []
    if device.type == "cpu":
        for _ in range(iterations):
            dist.barrier(group=group)
            clock = time.perf_counter()
            dist.all_reduce(data, group=group)
            times.append(time.perf_counter() - clock)
            data.mul_(0.25)
        return times
    t.cuda.synchronize()
    for _ in range(iterations):
        start, end = t.cuda.Event(enable_timing=True), t.cuda.Event(enable_timing=True)
        dist.barrier(group=group)
        start.record()
        dist.all_reduce(data, group=group)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
        data.mul_(0.25)
    return times


def jax(job: dict[str, Any]) -> dict[str, Any]:
    """A rank of jax.distributed; one process per GPU, or per CPU with its gloo collectives."""
    if job["gpu"] is None:
        os.environ["JAX_PLATFORMS"] = "cpu"
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible(job["gpu"])
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax as j
    import jax.numpy as jnp

    if job["gpu"] is None:
        j.config.update("jax_cpu_collectives_implementation", "gloo")
    rank, world = job["rank"], job["world"]
    j.distributed.initialize(job["rendezvous"], world, rank)
    try:
        import numpy
        from jax.experimental import multihost_utils
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        devices = j.devices()
        mesh = Mesh(numpy.array(devices), ("x",))
        split = NamedSharding(mesh, PartitionSpec("x"))
        whole = NamedSharding(mesh, PartitionSpec())

        def spread(count: int) -> Any:
            local = numpy.array(contribution(rank)[:count], dtype=numpy.float32).reshape(1, count)
            return j.make_array_from_process_local_data(split, local, (world, count))

        answer: dict[str, Any] = {"backend": j.default_backend(), "rank": rank, "devices": len(devices)}
        if job["task"] == "exact":
            data = spread(COUNT)
            total = j.jit(lambda x: jnp.sum(x, axis=0), out_shardings=whole)(data)
            everyone = j.jit(lambda x: x, out_shardings=whole)(data)
            first = multihost_utils.broadcast_one_to_all(numpy.array(contribution(rank), dtype=numpy.float32))
            answer["results"] = compare(
                world,
                {
                    "all_reduce": numpy.asarray(total.addressable_data(0)).tolist(),
                    "all_gather": numpy.asarray(everyone.addressable_data(0)).reshape(-1).tolist(),
                    "broadcast": numpy.asarray(first).tolist(),
                },
            )
        elif job["task"] == "sweep":
            answer["times"] = {}
            for size in job["sizes"]:
                make = j.jit(lambda n=size: jnp.ones((world, n // 4), jnp.float32), out_shardings=split)
                reduce = j.jit(lambda x: jnp.sum(x, axis=0), out_shardings=whole)
                data = make()
                for _ in range(3):
                    reduce(data).block_until_ready()
                times = []
                for _ in range(job["iterations"]):
                    start = time.perf_counter()
                    reduce(data).block_until_ready()
                    times.append(time.perf_counter() - start)
                answer["times"][str(size)] = times
        else:
            answer["pairs"] = {}
        return answer
    finally:
        j.distributed.shutdown()


def paddlepaddle(job: dict[str, Any]) -> dict[str, Any]:
    """A rank of paddle.distributed."""
    rank, world, gpu = job["rank"], job["world"], job["gpu"]
    if world == 1:
        return {"unavailable": "paddle.distributed forms no group of one"}
    host, port = job["rendezvous"].rsplit(":", 1)
    points = [f"{host}:{int(port) + i}" for i in range(world)]
    os.environ.update(
        PADDLE_TRAINER_ID=str(rank),
        PADDLE_TRAINERS_NUM=str(world),
        PADDLE_TRAINER_ENDPOINTS=",".join(points),
        PADDLE_CURRENT_ENDPOINT=points[rank],
        PADDLE_MASTER=job["rendezvous"],
        PADDLE_DISTRI_BACKEND="nccl" if gpu is not None else "gloo",
        FLAGS_selected_gpus=str(gpu if gpu is not None else 0),
    )
    import paddle
    import paddle.distributed as dist

    paddle.set_device(f"gpu:{gpu}" if gpu is not None else "cpu")
    dist.init_parallel_env()
    answer: dict[str, Any] = {"backend": job["backend"], "rank": rank}
    mine = paddle.to_tensor(contribution(rank), dtype="float32")
    if job["task"] == "exact":
        total = mine.clone()
        dist.all_reduce(total)
        first = mine.clone()
        dist.broadcast(first, src=0)
        parts: list[Any] = []
        dist.all_gather(parts, mine)
        answer["results"] = compare(
            world,
            {
                "all_reduce": total.numpy().tolist(),
                "broadcast": first.numpy().tolist(),
                "all_gather": [v for part in parts for v in part.numpy().tolist()],
            },
        )
    elif job["task"] == "sweep":
        settle = paddle.device.synchronize if gpu is not None else (lambda: None)
        answer["times"] = {}
        for size in job["sizes"]:
            data = paddle.ones([size // 4], dtype="float32")
            for _ in range(3):
                dist.all_reduce(data)
            settle()
            times = []
            for _ in range(job["iterations"]):
                start = time.perf_counter()
                dist.all_reduce(data)
                settle()
                times.append(time.perf_counter() - start)
            answer["times"][str(size)] = times
    else:
        answer["pairs"] = {}
    return answer


def tensorflow(job: dict[str, Any]) -> dict[str, Any]:
    """A worker of tf.distribute.MultiWorkerMirroredStrategy (one GPU each; on the CPU its ring over gRPC)."""
    import json

    rank, world, gpu = job["rank"], job["world"], job["gpu"]
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1" if gpu is None else visible(gpu)
    workers = [f"127.0.0.1:{port}" for port in job["ports"]]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
    import tensorflow as tf

    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(implementation=kinds.RING if gpu is None else kinds.NCCL)
    for device in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(device, True)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    # tensors are made inside the replica: only there they have a device that the collective can aim at
    def reduce(values: list[float]) -> Any:
        x = tf.constant(values, tf.float32)
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, x)

    def gather(values: list[float]) -> Any:
        x = tf.constant(values, tf.float32)
        return tf.distribute.get_replica_context().all_gather(x, axis=0)

    def reduce_ones(count: int) -> Any:
        x = tf.ones([count], tf.float32)
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, x)

    answer: dict[str, Any] = {"backend": job["backend"], "rank": rank, "replicas": strategy.num_replicas_in_sync}
    if job["task"] == "exact":
        mine = contribution(rank)
        total = tf.function(lambda: strategy.run(reduce, args=(mine,)))()
        everyone = tf.function(lambda: strategy.run(gather, args=(mine,)))()
        got = {"all_reduce": total.numpy().tolist(), "all_gather": everyone.numpy().tolist()}
        answer["results"] = compare(world, got)
    elif job["task"] == "sweep":
        answer["times"] = {}
        for size in job["sizes"]:
            step = tf.function(lambda n=size // 4: strategy.run(reduce_ones, args=(n,)))
            for _ in range(3):
                float(step()[0])
            times = []
            for _ in range(job["iterations"]):
                clock = time.perf_counter()
                float(step()[0])
                times.append(time.perf_counter() - clock)
            answer["times"][str(size)] = times
    else:
        answer["pairs"] = {}
    return answer


def cupy(job: dict[str, Any]) -> dict[str, Any]:
    """A rank of cupyx.distributed (NCCL; it has no CPU side)."""
    rank, world, gpu = job["rank"], job["world"], job["gpu"]
    if gpu is None:
        return {"unavailable": "cupyx.distributed works on GPUs only"}
    import cupy as cp
    from cupy.cuda import nccl

    if not nccl.available:
        return {"unavailable": "this CuPy has no NCCL"}
    # cupyx.distributed imports mpi4py where it finds it, and that starts MPI, which a locked-down container refuses
    sys.modules.setdefault("mpi4py", None)  # type: ignore[arg-type]
    from cupyx.distributed import init_process_group  # type: ignore[import-not-found,unused-ignore]

    host, port = job["rendezvous"].rsplit(":", 1)
    cp.cuda.Device(gpu).use()
    group = init_process_group(world, rank, host=host, port=int(port))
    answer: dict[str, Any] = {"backend": "nccl", "rank": rank, "nccl": nccl.get_version()}
    mine = cp.asarray(contribution(rank), dtype=cp.float32)
    if job["task"] == "exact":
        total, everyone, first = cp.zeros_like(mine), cp.zeros((world, COUNT), cp.float32), mine.copy()
        group.all_reduce(mine, total)
        group.all_gather(mine, everyone, COUNT)
        group.broadcast(first, 0)
        cp.cuda.Device().synchronize()
        answer["results"] = compare(
            world,
            {
                "all_reduce": total.tolist(),
                "all_gather": everyone.reshape(-1).tolist(),
                "broadcast": first.tolist(),
            },
        )
    elif job["task"] == "sweep":
        answer["times"] = {}
        for size in job["sizes"]:
            data, out = cp.ones(size // 4, cp.float32), cp.zeros(size // 4, cp.float32)
            for _ in range(5):
                group.all_reduce(data, out)
            cp.cuda.Device().synchronize()
            times = []
            for _ in range(job["iterations"]):
                start, end = cp.cuda.Event(), cp.cuda.Event()
                start.record()
                group.all_reduce(data, out)
                end.record()
                end.synchronize()
                times.append(cp.cuda.get_elapsed_time(start, end) / 1e3)
            answer["times"][str(size)] = times
    else:
        answer["pairs"] = {}
    group.stop()
    return answer


WORKERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "torch": torch,
    "jax": jax,
    "tensorflow": tensorflow,
    "paddlepaddle": paddlepaddle,
    "cupy": cupy,
}
"""Adapter name → its rank."""
