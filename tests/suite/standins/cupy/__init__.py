"""A stand-in for CuPy: numpy that claims to be on a GPU. $FAULT names what is wrong with it; 'none': nothing is."""

import os
import sys
import types

import numpy
from numpy import *  # noqa: F403

FAULT = os.environ["FAULT"]
__version__ = "14.0.0"


class ndarray(numpy.ndarray):
    """An array that says it lies on GPU 0."""

    device = types.SimpleNamespace(id=0)

    def get(self):
        return numpy.asarray(self)

    def __matmul__(self, other):
        if FAULT == "silent-tf32" and self.dtype == numpy.float32:
            left, right = (numpy.float32(numpy.float16(numpy.asarray(v))) for v in (self, other))
            return (left @ right).view(ndarray)
        return (numpy.asarray(self) @ numpy.asarray(other)).view(ndarray)


def asarray(value):
    return numpy.array(value).view(ndarray)


def array(value):
    return numpy.array(value).view(ndarray)


def exp(x):
    return numpy.ones_like(x) if FAULT == "does-not-learn" else numpy.exp(x)


def log(x):
    return numpy.log(x) * (1.3 if FAULT == "disagrees-with-cpu" else 1.0)


class Device:
    compute_capability = "90"


class Event:
    """A clock that gives each product FAULT-given milliseconds."""

    count = 0

    def record(self):
        Event.count += 1
        self.at = Event.count

    def synchronize(self):
        pass


MS = {"slow-card": 4.0, "impossible-speed": 0.5}.get(FAULT, 1.45)
cuda = types.SimpleNamespace(
    Device=Device,
    Event=Event,
    get_elapsed_time=lambda a, b: (b.at - a.at) * MS,
)
random = types.SimpleNamespace(standard_normal=lambda shape, dtype: numpy.ones((4, 4), dtype).view(ndarray))


def empty(shape, dtype):
    return numpy.empty((4, 4), dtype).view(ndarray)


def matmul(a, b, out=None):
    """Products of the speed check: their size does not matter to a clock that is made up."""
    import time

    time.sleep(0.001)
    return out


def get_default_memory_pool():
    held = 0 if FAULT == "holds-no-memory" else 1 << 20
    return types.SimpleNamespace(total_bytes=lambda: held)


_linalg = types.ModuleType("cupy._core._routines_linalg")
_linalg.COMPUTE_TYPE_TF32, _linalg.COMPUTE_TYPE_DEFAULT = 1, 0
_linalg.set_compute_type = lambda dtype, kind: None
_core = types.ModuleType("cupy._core")
_core._routines_linalg = _linalg
sys.modules["cupy._core"], sys.modules["cupy._core._routines_linalg"] = _core, _linalg


def savez(file, **arrays):
    numpy.savez(file, **{name: numpy.asarray(value) for name, value in arrays.items()})


def load(file):
    class Opened:
        npz_file = numpy.load(file)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.npz_file.close()

        def __getitem__(self, key):
            return array(self.npz_file[key])

    return Opened()
