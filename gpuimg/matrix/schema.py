"""What may stand in a matrix file. Unknown keys are refused; ``json_schema`` is for editors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

SCHEMA = "gpuimg/v1"
PROFILES = ("smoke", "base", "training", "inference", "llm", "multi-gpu", "full")
FRAMEWORKS = (
    "torch", "tensorflow", "jax", "paddlepaddle", "mindspore", "onnxruntime", "cupy", "vllm", "tensorrt-llm",
)  # fmt: skip


def _text(value: Any) -> Any:
    # YAML reads 12.4 as a number; 12.10 would lose its zero, so numbers are refused with advice
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f'write versions in quotes: "{value}"')
    return value


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Text = Annotated[str, BeforeValidator(_text)]
Texts = Annotated[list[Text], BeforeValidator(_listed), Field(min_length=1)]
Profile = Literal["smoke", "base", "training", "inference", "llm", "multi-gpu", "full"]
Framework = Literal[
    "torch", "tensorflow", "jax", "paddlepaddle", "mindspore", "onnxruntime", "cupy", "vllm", "tensorrt-llm"
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Defaults(_Strict):
    """Values for images that do not say otherwise."""

    os: Text = "ubuntu22.04"
    python: Text | None = Field(None, description="'3.11'; None: the base system's own")
    profile: Profile = "base"
    device: Literal["cuda", "cpu"] = "cuda"
    packages: list[Text] = []


class Target(_Strict):
    """A server the images must run on; cells that could not are refused before anything is built."""

    gpu: Text
    driver: Text | None = Field(None, description="Driver version or branch: '550', '570.86.10'")


class Image(_Strict):
    """One row: lists are multiplied out."""

    framework: Framework
    version: Texts = Field(description="'2.6.0', a list of versions, or 'latest': the newest that fits the targets")
    cuda: Texts = Field(["auto"], description="wheel_cuda; 'auto' is the newest the version has")
    cudnn: Text = "auto"
    python: Texts | None = None
    os: Texts | None = None
    device: Literal["cuda", "cpu"] | None = None
    profile: Profile | None = None
    packages: list[Text] = []
    only_with: Literal["gpu"] | None = Field(
        None, description="'gpu': built only where the engine reaches a GPU, for that server's card and driver"
    )

    @model_validator(mode="after")
    def _no_cuda_for_a_cpu(self) -> Image:
        if self.device == "cpu" and "cuda" in self.model_fields_set and self.cuda != ["auto"]:
            raise ValueError("device: cpu and cuda: exclude each other")
        if self.device == "cpu" and self.only_with == "gpu":
            raise ValueError("device: cpu and only_with: gpu exclude each other")
        return self


class Exclude(_Strict):
    """Cells that are not to be built, and why."""

    when: dict[Literal["framework", "version", "cuda", "cudnn", "python", "os", "device"], Text]
    reason: str = Field(min_length=1)


class Mirrors(_Strict):
    """Where packages and base images come from instead of their public homes. Used for building, never baked in."""

    pypi: str | None = None
    apt: str | None = None
    docker: str | None = None


class Matrix(_Strict):
    """A matrix file."""

    schema_: Literal["gpuimg/v1"] = Field(alias="schema")
    registry: str = "127.0.0.1:5000/gpuimg"
    defaults: Defaults = Field(default_factory=lambda: Defaults.model_validate({}))
    targets: list[Target] = []
    images: list[Image] = Field(min_length=1)
    exclude: list[Exclude] = []
    mirrors: Mirrors = Mirrors()


def json_schema() -> dict[str, Any]:
    """JSON Schema of matrix files, for editors (YAML language servers read it)."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Matrix.model_json_schema(by_alias=True)}
