"""Signing statements: DSSE envelopes in Sigstore bundles v0.3, which cosign reads.

ECDSA P-256 by default (what ``cosign generate-key-pair`` makes), Ed25519 as well. Formats:
https://github.com/secure-systems-lab/dsse/blob/master/protocol.md,
https://github.com/sigstore/protobuf-specs/blob/main/protos/sigstore_bundle.proto.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuimg.certify.canonical import canonical
from gpuimg.certify.certificate import PREDICATE_TYPE
from gpuimg.errors import BadInput, EnvironmentFault
from gpuimg.nouns import Certificate

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    Private = EllipticCurvePrivateKey | Ed25519PrivateKey
    Public = EllipticCurvePublicKey | Ed25519PublicKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
BUNDLE_SUFFIX = ".sigstore.json"
"""Of the file name that the layer is given, after cosign."""


@dataclass(frozen=True)
class PublicKey:
    """A key to check signatures with. ``name`` is for people: the file it came from."""

    key: Public
    name: str

    @property
    def id(self) -> str:
        """Base64 SHA-256 of the DER form: the hint cosign puts into bundles."""
        return base64.b64encode(hashlib.sha256(_der(self.key)).digest()).decode()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        try:
            if isinstance(self.key, ec.EllipticCurvePublicKey):
                self.key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
            else:
                self.key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def pem(self) -> bytes:
        from cryptography.hazmat.primitives import serialization as s

        return self.key.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True)
class Signer:
    """A private key and where it came from."""

    key: Private
    origin: str

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.key.public_key(), self.origin)

    def sign(self, message: bytes) -> bytes:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            return self.key.sign(message, ec.ECDSA(hashes.SHA256()))
        return self.key.sign(message)


def default_key_path() -> Path:
    """Where the key that is made on first use lives, per user."""
    from platformdirs import user_data_path

    return user_data_path("gpuimg") / "keys" / "signing.pem"


def open_signer(path: Path | None = None) -> Signer:
    """The key of ``path``, else of ``GPUIMG_KEY`` (a file), else the user's own, made on first use (mode 0600).

    Raises:
        BadInput: the file is no unencrypted P-256 or Ed25519 private key, or it is missing though it was named.
        EnvironmentFault: the own key cannot be written.
    """
    named = path or (Path(os.environ["GPUIMG_KEY"]) if os.environ.get("GPUIMG_KEY") else None)
    place = named or default_key_path()
    if not place.exists():
        if named is not None:
            raise BadInput(f"no signing key {named}", hint="leave it out, and gpuimg makes one on first use")
        _create(place)
    return Signer(_load_private(place), str(place))


def load_public(path: Path) -> PublicKey:
    """A public key from a PEM file (a private one serves too).

    Raises:
        BadInput: not readable as such.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    if b"PRIVATE KEY" in content:
        return PublicKey(_load_private(path).public_key(), str(path))
    try:
        key = s.load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadInput(f"{path}: not a PEM public key") from error
    if not isinstance(key, (ec.EllipticCurvePublicKey, ed25519.Ed25519PublicKey)):
        raise BadInput(f"{path}: ECDSA P-256 or Ed25519 keys only")
    return PublicKey(key, str(path))


def pre_authentication(payload_type: str, payload: bytes) -> bytes:
    """DSSE's PAE: what is signed, so that the type is signed along with the content."""
    kind = payload_type.encode()
    return b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])


def sign(certificate: Certificate, signer: Signer) -> Certificate:
    """The certificate with its DSSE envelope."""
    payload = canonical(certificate.statement)
    signature = signer.sign(pre_authentication(PAYLOAD_TYPE, payload))
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": signer.public.id}],
    }
    return Certificate(certificate.statement, envelope)


def bundle_of(certificate: Certificate) -> bytes:
    """A Sigstore bundle v0.3 around the envelope, as it is stored in the registry.

    Raises:
        BadInput: the certificate is not signed.
    """
    if certificate.envelope is None:
        raise BadInput("a certificate must be signed before it is published")
    hint = certificate.envelope["signatures"][0]["keyid"]
    document = {
        "mediaType": BUNDLE_TYPE,
        "verificationMaterial": {"publicKey": {"hint": hint}, "tlogEntries": []},
        # The bundle's envelope holds exactly one signature, and the hint stands for the key id.
        "dsseEnvelope": {
            **{k: certificate.envelope[k] for k in ("payload", "payloadType")},
            "signatures": [{"sig": s["sig"]} for s in certificate.envelope["signatures"]],
        },
    }
    return json.dumps(document, indent=1).encode()


def bundle_annotations(certificate: Certificate) -> dict[str, str]:
    """Annotations of the referrer, after cosign's BUNDLE_SPEC."""
    return {
        "dev.sigstore.bundle.content": "dsse-envelope",
        "dev.sigstore.bundle.predicateType": PREDICATE_TYPE,
        "org.opencontainers.image.created": str(certificate.statement["predicate"]["issued"]),
    }


def read_certificate(content: bytes, name: str = "certificate") -> Certificate:
    """A bundle, a bare DSSE envelope or a bare statement (then unsigned); nothing is verified here.

    Raises:
        BadInput: none of the three.
    """
    try:
        document = json.loads(content)
        if not isinstance(document, dict):
            raise ValueError("no JSON object")
        if "_type" in document:
            return Certificate(document)
        envelope = document.get("dsseEnvelope", document)
        statement = json.loads(base64.b64decode(envelope["payload"], validate=True))
        if envelope["payloadType"] != PAYLOAD_TYPE or not isinstance(statement, dict):
            raise ValueError(f"payload type {envelope['payloadType']!r}")
        [base64.b64decode(s["sig"], validate=True) for s in envelope["signatures"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{name}: not a certificate (Sigstore bundle, DSSE envelope or statement): {error}") from error
    return Certificate(statement, envelope)


def signed_by(certificate: Certificate, keys: list[PublicKey]) -> PublicKey | None:
    """The first key whose signature over exactly these bytes holds; None when there is none."""
    if certificate.envelope is None:
        return None
    payload = base64.b64decode(certificate.envelope["payload"])
    if json.loads(payload) != certificate.statement:
        return None
    message = pre_authentication(str(certificate.envelope["payloadType"]), payload)
    for entry in certificate.envelope["signatures"]:
        for key in keys:
            if key.verifies(base64.b64decode(entry["sig"]), message):
                return key
    return None


def _create(place: Path) -> None:
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = place.with_name(f".{place.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(pem)
        try:
            os.link(draft, place)  # unlike a rename this loses to a key that another run made meanwhile
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        public = PublicKey(_load_private(place).public_key(), str(place))
        place.with_suffix(".pub").write_bytes(public.pem())
    except OSError as error:
        raise EnvironmentFault(
            f"cannot write the signing key {place}: {error.strerror}", hint="give one with --key or GPUIMG_KEY"
        ) from error


def _load_private(path: Path) -> Private:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    try:
        key = s.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadInput(
            f"{path}: not an unencrypted PEM private key",
            hint="cosign keys are encrypted; make one: openssl ecparam -name prime256v1 -genkey -noout",
        ) from error
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise BadInput(f"{path}: ECDSA P-256 or Ed25519 keys only")


def _der(key: Public) -> bytes:
    from cryptography.hazmat.primitives import serialization as s

    return key.public_bytes(s.Encoding.DER, s.PublicFormat.SubjectPublicKeyInfo)
