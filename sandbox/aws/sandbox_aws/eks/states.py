"""What clusters and node groups show while their time passes."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from moto.eks import models

from ..config import SETTINGS


def _status(self: Any) -> str:
    life, updating = self.__dict__.get("life"), self.__dict__.get("updating")
    state = life.state() if life else "ACTIVE"
    return "UPDATING" if state == "ACTIVE" and updating and not updating.finished() else state


def _ignore(self: Any, value: Any) -> None:
    self.__dict__["_status"] = value


def _endpoint(self: Any) -> str | None:
    if self.status == "CREATING":
        return None
    return SETTINGS.eks_endpoint or self.__dict__.get("_endpoint")


def _set_endpoint(self: Any, value: str) -> None:
    self.__dict__["_endpoint"] = value.rstrip("/")


def _authority(self: Any) -> dict[str, str]:
    if self.status == "CREATING":
        return {}
    pem = Path(SETTINGS.eks_ca).read_bytes() if SETTINGS.eks_ca else b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
    return {"data": base64.b64encode(pem).decode()}


def _health(self: Any) -> dict[str, Any]:
    life = self.__dict__.get("life")
    if life and life.finished() and life.outcome == "failed":
        issue = self.__dict__.get("issue") or {
            "code": "NodeCreationFailure",
            "message": life.reason or "Instances failed to join the kubernetes cluster",
        }
        return {"issues": [{**issue, "resourceIds": []}]}
    return {"issues": []}


def _cluster_health(self: Any) -> dict[str, Any]:
    life = self.__dict__.get("life")
    if life and life.finished() and life.outcome == "failed":
        return {"issues": [{"code": "Other", "message": life.reason, "resourceIds": []}]}
    return {"issues": []}


def install() -> None:
    models.Cluster.status = property(_status, _ignore)  # type: ignore[assignment,attr-defined]
    models.Cluster.endpoint = property(_endpoint, _set_endpoint)  # type: ignore[assignment,attr-defined]
    models.Cluster.certificate_authority = property(_authority, lambda self, value: None)  # type: ignore[assignment,attr-defined]
    models.Cluster.health = property(_cluster_health)  # type: ignore[attr-defined]
    models.Nodegroup.status = property(_status, _ignore)  # type: ignore[assignment,attr-defined]
    models.Nodegroup.health = property(_health, lambda self, value: None)  # type: ignore[assignment,attr-defined]
