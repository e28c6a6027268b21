"""The calls of ECR's API that moto lacks or is too kind about."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult
from moto.ecr import models, responses

from .. import sts
from ..config import SETTINGS
from .behind import moves_immutable, registry, size_of, sync
from .front import front
from .tokens import expire, good, issue

RULES: dict[str, dict[str, Any]] = {}  # pull-through cache rules
ORIGINAL: dict[str, Any] = {}


class Refused(ServiceException):
    """An ECR error; moto finds its model by the module name."""


Refused.__module__ = "moto.ecr.exceptions"


def get_authorization_token(self: Any) -> ActionResult:
    rows = []
    for account in self._get_param("registryIds") or [self.current_account]:
        password, expires = issue(sts.principal(self.get_access_key()))
        real = f"{account}.dkr.ecr.{self.region}.amazonaws.com"
        address = f"http://{SETTINGS.registry}" if SETTINGS.registry not in ("", real) else f"https://{real}"
        rows.append(
            {
                "authorizationToken": base64.b64encode(f"AWS:{password}".encode()).decode(),
                "expiresAt": datetime.fromtimestamp(expires, UTC),
                "proxyEndpoint": address,
            }
        )
    return ActionResult({"authorizationData": rows})


def put_image(self: Any) -> ActionResult:
    repository = self.ecr_backend._get_repository(self._get_param("repositoryName"), self._get_param("registryId"))
    text, tag = self._get_param("imageManifest"), self._get_param("imageTag")
    digest, manifest = "sha256:" + hashlib.sha256(text.encode()).hexdigest(), json.loads(text)
    sync(repository)
    if moves_immutable(repository, tag, digest):
        raise Refused(
            "ImageTagAlreadyExistsException",
            f"The image tag '{tag}' already exists in the '{repository.name}' repository and cannot be overwritten because the tag is immutable.",
        )
    needed = [layer["digest"] for layer in [*manifest.get("layers", []), *([manifest["config"]] if "config" in manifest else [])]]
    missing = [
        layer
        for layer in needed
        if not (registry("HEAD", f"/v2/{repository.name}/blobs/{layer}")[0] == 200 if SETTINGS.registry_backend else layer in repository.layers)
    ]
    if missing:
        raise Refused(
            "LayersNotFoundException",
            f"Layers with digests '[{', '.join(missing)}]' required for pushing image into repository with name '{repository.name}' "
            f"in the registry with id '{self.current_account}' do not exist",
        )
    if SETTINGS.registry_backend:
        kind = self._get_param("imageManifestMediaType") or manifest.get("mediaType") or "application/vnd.docker.distribution.manifest.v2+json"
        status, _, answer = registry("PUT", f"/v2/{repository.name}/manifests/{tag or digest}", text.encode(), {"Content-Type": kind})
        if status >= 300:
            raise Refused("InvalidParameterException", f"the registry refused the manifest: {answer.decode(errors='replace')[:200]}")
        repository.__dict__.setdefault("pushed", set()).add(digest)
    return ORIGINAL["put_image"](self)


def complete_layer_upload(self: Any) -> Any:
    repository = self.ecr_backend._get_repository(self._get_param("repositoryName"), self._get_param("registryId"))
    upload = repository.uploads.get(self._get_param("uploadId"))
    data = bytes(upload.layer_parts) if upload else b""
    answer = ORIGINAL["complete_layer_upload"](self)
    if SETTINGS.registry_backend and upload:
        _, headers, _ = registry("POST", f"/v2/{repository.name}/blobs/uploads/", b"")
        place = headers["location"]
        target = place.split(SETTINGS.registry_backend.rstrip("/"), 1)[-1] if place.startswith("http") else place
        target = urlsplit(target).path + "?" + urlsplit(target).query if target.startswith("http") else target
        registry("PUT", f"{target}&digest=sha256:{hashlib.sha256(data).hexdigest()}", data, {"Content-Type": "application/octet-stream"})
    return answer


def _synced(name: str) -> Callable[[Any], Any]:
    def call(self: Any) -> Any:
        sync(self.ecr_backend._get_repository(self._get_param("repositoryName"), self._get_param("registryId")))
        return ORIGINAL[name](self)

    call.__name__ = name
    return call


def batch_delete_image(self: Any) -> Any:
    repository = self.ecr_backend._get_repository(self._get_param("repositoryName"), self._get_param("registryId"))
    sync(repository)
    before = {image.get_image_digest(): set(image.image_tags) for image in repository.images}
    answer = ORIGINAL["batch_delete_image"](self)
    if SETTINGS.registry_backend:
        left = {image.get_image_digest(): set(image.image_tags) for image in repository.images}
        for digest, tags in before.items():
            for tag in tags - left.get(digest, set()) if digest in left else set():
                registry("DELETE", f"/v2/{repository.name}/manifests/{tag}")  # not in registry 2.8: then the tag stays
            if digest not in left:
                registry("DELETE", f"/v2/{repository.name}/manifests/{digest}")
                repository.__dict__.setdefault("pushed", set()).discard(digest)
    return answer


def delete_repository(self: Any) -> Any:
    repository = self.ecr_backend.repositories.get(self._get_param("repositoryName"))
    if repository is not None:
        sync(repository)
        digests = [image.get_image_digest() for image in repository.images]
        answer = ORIGINAL["delete_repository"](self)
        for digest in digests if SETTINGS.registry_backend else []:
            registry("DELETE", f"/v2/{repository.name}/manifests/{digest}")
        return answer
    return ORIGINAL["delete_repository"](self)


def create_pull_through_cache_rule(self: Any) -> ActionResult:
    prefix = self._get_param("ecrRepositoryPrefix")
    if prefix in RULES:
        raise Refused("PullThroughCacheRuleAlreadyExistsException", f"The pull through cache rule with prefix '{prefix}' already exists")
    RULES[prefix] = {
        key: self._get_param(key)
        for key in ("ecrRepositoryPrefix", "upstreamRegistryUrl", "upstreamRegistry", "credentialArn")
        if self._get_param(key)
    }
    RULES[prefix].update(registryId=self.current_account, createdAt=datetime.now(UTC))
    return ActionResult(RULES[prefix])


def describe_pull_through_cache_rules(self: Any) -> ActionResult:
    wanted = self._get_param("ecrRepositoryPrefixes")
    return ActionResult({"pullThroughCacheRules": [rule for prefix, rule in RULES.items() if not wanted or prefix in wanted]})


def delete_pull_through_cache_rule(self: Any) -> ActionResult:
    rule = RULES.pop(self._get_param("ecrRepositoryPrefix"), None)
    if rule is None:
        raise Refused("PullThroughCacheRuleNotFoundException", "The pull through cache rule does not exist")
    return ActionResult(rule)


def install(application: Any, admin: Any) -> None:
    original = models.Repository.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if SETTINGS.registry:
            self.uri = f"{SETTINGS.registry}/{self.name}"

    models.Repository.__init__ = init  # type: ignore[method-assign]
    models.Image._create_digest = lambda self: setattr(self, "_image_digest", "sha256:" + hashlib.sha256(self.image_manifest.encode()).hexdigest())  # type: ignore[method-assign,assignment]
    models.Image.get_image_size_in_bytes = size_of  # type: ignore[method-assign,assignment]
    handler = responses.ECRResponse
    for name in (
        "put_image",
        "complete_layer_upload",
        "batch_delete_image",
        "delete_repository",
        "describe_images",
        "list_images",
        "batch_get_image",
    ):
        ORIGINAL[name] = getattr(handler, name)
    for function in (
        get_authorization_token,
        put_image,
        complete_layer_upload,
        batch_delete_image,
        delete_repository,
        create_pull_through_cache_rule,
        describe_pull_through_cache_rules,
        delete_pull_through_cache_rule,
        _synced("describe_images"),
        _synced("list_images"),
        _synced("batch_get_image"),
    ):
        setattr(handler, function.__name__, function)
    if SETTINGS.registry_backend:
        application.registry = lambda environ, start_response: front(environ, start_response, application)
    admin.route(
        "GET", "/registry-token", lambda query, body: (200, {"good": True}) if good(query.get("_authorization", "")) else (401, {"good": False})
    )
    expire()
