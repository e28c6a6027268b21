"""What the calls of EKS have in common."""

from __future__ import annotations

from typing import Any

from moto.eks import responses
from moto.eks.exceptions import InvalidRequestException, ResourceInUseException, ResourceNotFoundException


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
