"""Plan → Dockerfile and bake file. Pure: text in, text out."""

from gpuimg.dockerfile.render import Layer, Rendered, bake_file, render_cell

__all__ = ["Layer", "Rendered", "bake_file", "render_cell"]
