"""Matrix files: what to build. ``schema`` says what may stand in one, ``load`` reads it, ``expand`` makes cells."""

from gpuimg.matrix.expand import expand
from gpuimg.matrix.load import load_matrix
from gpuimg.matrix.schema import Matrix

__all__ = ["Matrix", "expand", "load_matrix"]
