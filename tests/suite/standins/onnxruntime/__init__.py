"""The real ONNX Runtime with one fault planted in it: $FAULT names which.

This package stands in front of the real one on the path, loads it, and changes what its sessions answer.
"""

import importlib
import os
import sys

_here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.remove(_here)
del sys.modules["onnxruntime"]
FAULT = os.environ["FAULT"]

if FAULT == "missing-library":
    import ctypes

    ctypes.CDLL("libcudnn_engines_precompiled.so.9")
if FAULT == "memory":
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))

real = importlib.import_module("onnxruntime")
sys.path.insert(0, _here)
numpy = importlib.import_module("numpy")


class Session(real.InferenceSession):  # type: ignore[misc]
    calls = 0

    def __init__(self, model, *arguments, **options):
        self.model = model if isinstance(model, bytes) else b""
        super().__init__(model, *arguments, **options)

    def run(self, names, feeds, *rest):
        out = [value.copy() for value in super().run(names, feeds, *rest)]
        Session.calls += 1
        first = out[0]
        if FAULT == "nan":
            first.reshape(-1)[first.size // 3] = numpy.nan
        elif FAULT == "wrong-row" and first.shape == (512, 512):
            first[7] = 0
        elif FAULT == "low-precision":
            out[0] = numpy.float32(first.astype(numpy.float16))
        elif FAULT == "off-by-one" and first.shape == (48, 48):
            first[3, 3] += 1
        elif FAULT == "conv" and b"Conv" in self.model:
            first *= 1.01
        elif FAULT == "attention" and b"Softmax" in self.model:
            out[0] = first[:, :, ::-1].copy()
        elif FAULT == "int8-garbage" and b"DequantizeLinear" in self.model:
            out[0] = first[:, ::-1].copy()
        elif FAULT == "not-deterministic" and first.ndim == 2:
            out[0] = first + numpy.float32(1e-5 * Session.calls)
        elif FAULT == "cache" and b"Concat" in self.model:
            out[0] = first[:, ::-1].copy()
        elif FAULT == "batch" and first.shape == (40, 96):
            out[0] = first[::-1].copy()
        elif FAULT == "segfault":
            importlib.import_module("ctypes").string_at(8)
        elif FAULT == "abort":
            os.abort()
        elif FAULT == "hang":
            importlib.import_module("time").sleep(600)
        elif FAULT == "memory":
            numpy.ones(2 << 30, numpy.uint8)
        elif FAULT == "exit-0":
            print("all tests passed", flush=True)
            os._exit(0)
        elif FAULT == "no-kernel":
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
        elif FAULT == "mixed-cudnn":
            raise RuntimeError("CUDNN failure 1002: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH ; GPU=0")
        elif FAULT == "zombie" and os.fork() == 0:
            importlib.import_module("time").sleep(600)
        return out


real.InferenceSession = Session
