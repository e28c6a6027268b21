"""What the calls of EKS have in common."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from moto.eks import responses
from moto.eks.exceptions import InvalidParameterException, InvalidRequestException, ResourceInUseException, ResourceNotFoundException


class Base(responses.EKSResponse):
    """moto's EKS with what it lacks. Names of the methods are the API's."""

    def _cluster(self, name: str | None = None) -> Any:
        name = name or self._get_param("name") or self._get_param("clusterName")
        cluster = self.eks_backend.clusters.get(name)
        if not cluster:
            raise ResourceNotFoundException(clusterName=name, message=f"No cluster found for name: {name}.")
        for store in ("addons", "entries", "identities", "updates"):
            cluster.__dict__.setdefault(store, {})
        return cluster

    def _ready_cluster(self) -> Any:
        cluster = self._cluster()
        if cluster.status == "CREATING":
            raise ResourceInUseException(clusterName=cluster.name, message=f"Cluster '{cluster.name}' is not in ACTIVE status")
        if cluster.status in ("DELETING", "FAILED"):
            raise InvalidRequestException(clusterName=cluster.name, message=f"Cluster '{cluster.name}' is in {cluster.status} status")
        return cluster

    # ---- a call made twice is made once ----------------------------------------------------------------------------------------

    def _asked(self) -> tuple[str, str]:
        """The request's token and what it asked for."""
        body = json.loads(self.body or "{}")
        token = str(body.pop("clientRequestToken", ""))
        return token, hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()

    def _same_call(self, known: Any) -> bool:
        """Whether a thing was made by this very call. The same token with other wishes is refused (the words are assumed)."""
        before = known.get("_asked") if isinstance(known, dict) else known.__dict__.get("asked") if known is not None else None
        token, wishes = self._asked()
        if before is None or not token or before[0] != token:
            return False
        if before[1] != wishes:
            raise InvalidParameterException(message="The client request token was already used with different parameters.")
        return True
