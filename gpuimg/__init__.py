"""gpuimg: GPU container images that are known to run."""

__version__ = "0.1.0"
