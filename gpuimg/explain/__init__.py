"""What an error message or log means: causes, ranked, each with its fix, its source and how sure it is."""

from gpuimg.explain.matching import explain

__all__ = ["explain"]
