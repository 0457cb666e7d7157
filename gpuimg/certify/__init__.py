"""Evidence → verdict → certificate → signature → check.

The flow, as the pipeline and the commands use it::

    policy = load_policy()
    verdict = judge(evidence, policy)
    certificate = make_certificate(evidence, verdict, policy, image=name, issued=now, salt=secrets.token_hex(16))
    certificate = sign(certificate, open_signer())
    repository.attach(manifest, bundle_of(certificate), artifact_type=BUNDLE_TYPE,
                      annotations=bundle_annotations(certificate), title_suffix=BUNDLE_SUFFIX)
    read_certificate(content); check_certificate(certificate, digest=…, keys=[…], now=…, host=…)
"""

from __future__ import annotations

from gpuimg.certify.certificate import PREDICATE_TYPE, make_certificate
from gpuimg.certify.check import CheckAnswer, check_certificate
from gpuimg.certify.judge import judge
from gpuimg.certify.policy import Policy, load_policy
from gpuimg.certify.signing import (
    BUNDLE_SUFFIX,
    BUNDLE_TYPE,
    PublicKey,
    Signer,
    bundle_annotations,
    bundle_of,
    load_public,
    open_signer,
    read_certificate,
    sign,
)

__all__ = [
    "BUNDLE_SUFFIX",
    "BUNDLE_TYPE",
    "PREDICATE_TYPE",
    "CheckAnswer",
    "Policy",
    "PublicKey",
    "Signer",
    "bundle_annotations",
    "bundle_of",
    "check_certificate",
    "judge",
    "load_policy",
    "load_public",
    "make_certificate",
    "open_signer",
    "read_certificate",
    "sign",
]
