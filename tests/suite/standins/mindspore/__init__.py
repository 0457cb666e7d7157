"""A stand-in for MindSpore over numpy: products, checkpoints and the data loader. $FAULT names what is wrong."""

import os
import sys
import types

import numpy

FAULT = os.environ["FAULT"]
float16, float32 = numpy.float16, numpy.float32
PYNATIVE_MODE = 1
__version__ = "2.10.0"
_target = "CPU"


def set_device(target):
    global _target
    _target = "CPU" if FAULT == "cpu-fallback" else target


def set_context(mode):
    pass


def get_context(name):
    return _target


class Tensor:
    def __init__(self, value):
        self.value = numpy.asarray(value)

    def astype(self, kind):
        return Tensor(self.value.astype(kind))

    def asnumpy(self):
        return self.value

    def __add__(self, other):
        if FAULT == "numpy-abi":
            # the first lines of what mindspore 2.10.0 prints with NumPy 2 before it goes on as if nothing had happened
            sys.stderr.write(
                "A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.4.6 as it may crash.\n"
                'Traceback (most recent call last):  File "<string>", line 3, in <module>\n'
            )
        return Tensor(self.value + getattr(other, "value", other))


ops = types.SimpleNamespace(matmul=lambda a, b: Tensor(a.value @ b.value))


def save_checkpoint(rows, path):
    with open(path, "wb") as file:
        numpy.savez(file, **{row["name"]: row["data"].value for row in rows})


def load_checkpoint(path):
    with numpy.load(path) as found:
        out = {name: Tensor(found[name].copy()) for name in found.files}
    if FAULT == "checkpoint-bit":
        out["w2"].value.view(numpy.uint32).reshape(-1)[5] ^= 1  # one flipped bit
    if FAULT == "checkpoint-half":
        out["w0"] = Tensor(numpy.float32(out["w0"].value.astype(float16)))
    return out


class GeneratorDataset:
    def __init__(self, source, names, shuffle, num_parallel_workers, python_multiprocessing, max_rowsize):
        self.source, self.forked = source, python_multiprocessing

    def batch(self, size):
        self.size = size
        return self

    def create_tuple_iterator(self, output_numpy, num_epochs):
        if self.forked and FAULT == "fork-unsafe":
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, ...")
        if self.forked and FAULT == "worker-bus-error":
            raise RuntimeError(
                "worker killed by signal: Bus error. It is possible that dataloader's workers are out of"
            )
        if self.forked and FAULT == "fork-deadlock":
            __import__("time").sleep(600)
        rows = list(range(len(self.source)))
        if self.forked and FAULT == "lost-samples":
            del rows[40:44]
        if self.forked and FAULT == "doubled-samples":
            rows[9] = rows[10]
        for at in range(0, len(rows), self.size):
            picked = [self.source[i] for i in rows[at : at + self.size]]
            x = numpy.stack([row[0] for row in picked])
            y = numpy.array([row[1] for row in picked])
            if self.forked and FAULT == "swapped-samples":
                x = x[::-1]
            yield x, y


dataset = types.SimpleNamespace(GeneratorDataset=GeneratorDataset)
