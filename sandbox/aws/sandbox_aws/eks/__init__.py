"""EKS: clusters, node groups, add-ons, access entries and pod identities that take their time and say no where AWS does."""

from __future__ import annotations

import uuid
from typing import Any

from moto.eks import models, urls

from .. import clock
from ..config import SETTINGS
from ..hooks import HOOKS
from . import states
from .access import AccessCalls
from .addons import AddonCalls
from .clusters import ClusterCalls
from .nodegroups import NodegroupCalls
from .tags import TagCalls


class Eks(ClusterCalls, NodegroupCalls, AddonCalls, AccessCalls, TagCalls):
    """moto's EKS with what it lacks."""


def auto_mode_pool(body: dict[str, Any]) -> dict[str, Any]:
    """`POST /_sandbox/auto-mode`: a pool wants nodes (whoever watches Pending pods says so); they start after the pool's latency."""
    world = clock.world()
    backend = models.eks_backends[SETTINGS.account][body.get("region", SETTINGS.region)]
    cluster = backend.clusters[body["cluster"]]
    if not (getattr(cluster, "compute_config", None) or {}).get("enabled"):
        raise ValueError("the cluster is not in Auto Mode")
    ident = f"{cluster.arn}/{body['pool']}/{uuid.uuid4().hex[:6]}"
    life = world.begin("eks", "AutoModePool", ident, "PENDING", "READY")
    payload = {
        "action": "start",
        "kind": "auto-mode",
        "id": ident,
        "cluster": cluster.name,
        "group": body["pool"],
        "launchTemplate": {},
        "labels": {},
        "taints": [],
        "endpoint": cluster.endpoint,
        "count": 1,
        **body,
    }
    if SETTINGS.hook_nodes_start and life.outcome != "stuck":
        life.gated = True
        world.agenda.at(
            life.due, lambda: HOOKS.start(payload, lambda good, nodes, issue: life.succeed() if good else life.fail(issue.get("message", "")))
        )
    return {"id": ident}


def install(admin: Any) -> None:
    states.install()
    handler = Eks()
    for path in list(urls.url_paths):
        urls.url_paths[path] = handler.dispatch
    for path in ("/cluster-versions", "/addons/supported-versions", "/clusters/(?P<name>[^/]+)/(?P<rest>.+)"):
        urls.url_paths["{0}" + path + "$"] = handler.dispatch

    def pool(query: dict[str, str], body: Any) -> Any:
        with clock.world().lock:
            return auto_mode_pool(body)

    def endpoint(query: dict[str, str], body: Any) -> Any:
        """What DescribeCluster answers from now on: a proxy before the API server, say."""
        SETTINGS.eks_endpoint = body["eks"]
        return {"eks": SETTINGS.eks_endpoint}

    admin.route("POST", "/auto-mode", pool)
    admin.route("POST", "/endpoint", endpoint)
