"""What a certificate demands, as data: required checks per profile and device, validity, what may not be missing.

The shipped policy is ``policies/default.json``; a site can give its own file of the same shape. Floors of the
checks are the suite profile's (their sources are in docs/checks.md); the policy says which checks must have passed.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpuimg.certify.canonical import digest
from gpuimg.errors import BadInput

Device = Literal["cpu", "cuda"]


class Demand(BaseModel):
    """Checks that must have passed. ``required`` yields to "has no meaning for this framework"; ``always`` does not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    required: tuple[str, ...] = ()
    always: tuple[str, ...] = ()


class ProfileDemand(BaseModel):
    """What one profile demands on each device."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu: Demand = Demand()
    cuda: Demand = Demand()


class Policy(BaseModel):
    """A policy file. Everything here is part of :attr:`digest`, which every certificate names."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    format: Literal["gpuimg/policy/v1"] = Field(alias="schema")
    name: str
    description: str = ""
    floors_source: str
    """Where the thresholds of the checks come from."""
    validity_days: int = Field(ge=1, le=366)
    watch: Literal["required", "when-possible"] = "when-possible"
    """Must the host have seen the GPU work from outside (NVML)? 'when-possible': only where it can look."""
    challenges: Literal["required", "when-present"] = "required"
    """Must a random challenge, recomputed on the host, have been answered on the device that is certified?"""
    profiles: dict[str, ProfileDemand]

    @property
    def digest(self) -> str:
        return digest(self.model_dump(mode="json", by_alias=True))

    def demand(self, profile: str, device: Device) -> Demand:
        """The demand of a profile; ``full`` of the default policy stands in for profiles a user wrote.

        Raises:
            BadInput: neither that profile nor 'custom' is in the policy.
        """
        found = self.profiles.get(profile) or self.profiles.get("custom")
        if found is None:
            raise BadInput.at(
                f"policy {self.name}", None, f"no profile {profile!r}", allowed=sorted(self.profiles), value=profile
            )
        return found.cuda if device == "cuda" else found.cpu


def load_policy(path: Path | None = None) -> Policy:
    """The shipped policy, or one from a file.

    Raises:
        BadInput: not readable, not JSON, unknown or missing keys (with the place).
    """
    name = str(path) if path is not None else "policies/default.json"
    try:
        if path is None:
            text = (resources.files("gpuimg.certify") / "policies" / "default.json").read_text("utf-8")
        else:
            text = path.read_text("utf-8")
        return Policy.model_validate(json.loads(text))
    except OSError as error:
        raise BadInput(f"{name}: cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise BadInput.at(name, error.lineno, f"not JSON: {error.msg}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(p) for p in first["loc"])
        raise BadInput(f"{name}: {place}: {first['msg']}") from error
