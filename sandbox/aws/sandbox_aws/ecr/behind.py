"""The real registry behind the API, and the records that have to agree with it."""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from typing import Any

from moto.ecr import models

from ..config import SETTINGS

ACCEPT = ", ".join(
    [
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    ]
)


def registry(method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    """One request to the registry behind."""
    request = urllib.request.Request(SETTINGS.registry_backend.rstrip("/") + path, data=body, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, {key.lower(): value for key, value in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as problem:
        return problem.code, {key.lower(): value for key, value in problem.headers.items()}, problem.read()


def tags_of(name: str) -> list[str]:
    status, _, body = registry("GET", f"/v2/{name}/tags/list")
    return (json.loads(body).get("tags") or []) if status == 200 else []


def manifest_of(name: str, reference: str) -> tuple[str, str, bytes] | None:
    """(digest, media type, bytes) or None."""
    status, headers, body = registry("GET", f"/v2/{name}/manifests/{reference}", headers={"Accept": ACCEPT})
    return ("sha256:" + hashlib.sha256(body).hexdigest(), headers.get("content-type", ""), body) if status == 200 else None


def sync(repository: Any) -> None:
    """Make the record agree with the registry: every tag, and every manifest that is known by digest and still there."""
    if not SETTINGS.registry_backend:
        return
    found: dict[str, tuple[str, bytes, list[str]]] = {}
    for tag in tags_of(repository.name):
        got = manifest_of(repository.name, tag)
        if got:
            found.setdefault(got[0], (got[1], got[2], []))[2].append(tag)
    known = {image.get_image_digest(): image for image in repository.images}
    for digest in list(known) + sorted(repository.__dict__.get("pushed", set())):
        if digest not in found:
            got = manifest_of(repository.name, digest)
            if got:
                found[digest] = (got[1], got[2], [])
    images = []
    for digest, (kind, body, tags) in found.items():
        image = known.get(digest)
        if image is None:
            image = models.Image(SETTINGS.account, tags[0] if tags else None, body.decode(), repository.name, kind, digest)  # type: ignore[arg-type]
        image.image_tags, image.image_tag = list(tags), tags[0] if tags else None  # type: ignore[assignment]
        images.append(image)
    repository.images = images


def size_of(image: Any) -> int:
    """Config and layers; of an index, its members where they can be read."""
    manifest = json.loads(image.image_manifest)
    if "layers" in manifest:
        return int(manifest.get("config", {}).get("size", 0)) + sum(int(layer.get("size", 0)) for layer in manifest["layers"])
    total = 0
    for member in manifest.get("manifests", []):
        got = manifest_of(image.repository_name, member["digest"]) if SETTINGS.registry_backend else None
        inner = json.loads(got[2]) if got else {}
        total += int(inner.get("config", {}).get("size", 0)) + sum(int(layer.get("size", 0)) for layer in inner.get("layers", []))
    return total


def find(name: str) -> Any:
    """The repository record of any region."""
    for backend in models.ecr_backends[SETTINGS.account].values():
        if name in backend.repositories:
            return backend.repositories[name]
    return None


def moves_immutable(repository: Any, tag: str, digest: str) -> bool:
    """Whether putting this digest under this tag would overwrite an immutable tag."""
    if not repository.is_tag_immutable() or not tag or tag.startswith("sha256:"):
        return False
    if SETTINGS.registry_backend:
        got = manifest_of(repository.name, tag)
        return got is not None and got[0] != digest
    return any(tag in image.image_tags and image.get_image_digest() != digest for image in repository.images)
