"""What the webhooks refuse and fill in (v1beta1). What they refuse is upstream's, as read on 2026-11-30; the words are ours unless a public report had them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .facts import NV, Thing, main_container, nodes
from .multinode import EXECUTOR

VERSIONED = re.compile(r"v?\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?")
CHOICES = {
    EXECUTOR: ("mp", "ray"), f"{NV}/dynamo-kube-discovery-mode": ("pod", "container"), f"{NV}/grove-update-strategy": ("RollingRecreate", "OnDelete"),
}  # fmt: skip
ORIGIN = f"{NV}/dynamo-operator-origin-version"
NO_GROVE = "requires the Grove workload provider, which is not enabled"


class World(NamedTuple):
    """What of the cluster and the request decides."""

    groups: frozenset[str] = frozenset()
    own: tuple[str, ...] = ()  # user names that may scale what a scaling adapter owns, beside the planners'


def fill_in(graph: Thing, version: str) -> list[Thing]:
    """As a JSON patch: which operator an object came from."""
    notes = graph["metadata"].get("annotations")
    if notes and ORIGIN in notes:
        return []
    first = [] if notes else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
    return [*first, {"op": "add", "path": "/metadata/annotations/" + ORIGIN.replace("/", "~1"), "value": version}]


def of_create(graph: Thing, world: World) -> list[str]:
    spec, notes = graph["spec"], graph["metadata"].get("annotations") or {}
    components: list[Thing] = spec.get("components") or []
    if not components:
        return ["spec.components must have at least one component"]
    found = [f"metadata.annotations[{name}]: {notes[name]!r} is not one of {', '.join(known)}" for name, known in CHOICES.items() if notes.get(name, known[0]) not in known]
    found += without_grove(spec)
    for at, component in enumerate(components):
        found += [f"spec.components[{at}] ({component['name']}): {why}" for why in of_component(component, world)]
    order = ((spec.get("restart") or {}).get("strategy") or {}).get("order")
    if order and sorted(order) != sorted(c["name"] for c in components):
        found.append("spec.restart.strategy.order must list each component exactly once")
    return found


def without_grove(spec: Thing) -> list[str]:
    policy = (spec.get("experimental") or {}).get("kvTransferPolicy") or {}
    given = {
        "spec.priorityClassName": spec.get("priorityClassName"), "spec.topologyConstraint": spec.get("topologyConstraint"),
        "spec.experimental.kvTransferPolicy.clusterTopologyName": policy.get("clusterTopologyName"), "spec.providerOverride": spec.get("providerOverride"),
    }  # fmt: skip
    return [f"{name} {NO_GROVE}" for name, value in given.items() if value]


def of_component(component: Thing, world: World) -> list[str]:
    experimental = component.get("experimental") or {}
    found = image(component)
    grove = {
        "minAvailable": component.get("minAvailable"), "providerOverride": component.get("providerOverride"), "topologyConstraint": component.get("topologyConstraint"),
        "experimental.grove.forceScalingGroup": (experimental.get("grove") or {}).get("forceScalingGroup"),
        "experimental.gpuMemoryService.mode InterPod": (experimental.get("gpuMemoryService") or {}).get("mode") == "InterPod",
        **{f"multinode.{rank}.providerOverride": ((component.get("multinode") or {}).get(rank) or {}).get("providerOverride") for rank in ("leader", "worker")},
    }  # fmt: skip
    found += [f"{name} {NO_GROVE}" for name, value in grove.items() if value]
    if component.get("type") == "epp":
        if "inference.networking.k8s.io" not in world.groups:
            found.append("type epp requires the InferencePool API (inference.networking.k8s.io), which is not served")
        if component.get("replicas", 1) != 1 or nodes(component) > 1:
            found.append("type epp must have exactly one replica on one node")
    if str(component.get("sharedMemorySize", "")).startswith("-"):
        found.append("sharedMemorySize must not be negative")
    sidecar = component.get("frontendSidecar")
    names = [c["name"] for c in ((component.get("podTemplate") or {}).get("spec") or {}).get("containers") or []]
    if sidecar and sidecar not in names:
        found.append(f"frontendSidecar {sidecar!r} matches no container of the pod template")
    if (experimental.get("checkpoint") or {}).get("enabled"):
        found.append("experimental.checkpoint requires the checkpoint feature, which is not enabled in the operator")
    main = main_container(component)
    if "--enable-elastic-ep" in (main.get("args") or []) and not main.get("command"):
        found.append("elastic expert parallelism requires an explicit command")
    return found


def image(component: Thing) -> list[str]:
    """The operator learns the runtime's version from the tag."""
    named = main_container(component).get("image")
    if not named:
        return ["the main container must have an image"]
    if component.get("runtimeVersionOverride") or VERSIONED.fullmatch(tag(named)):
        return []
    return [f"the tag of main image {named!r} is no semantic version; set runtimeVersionOverride"]


def tag(named: str) -> str:
    return named.split("@")[0].rpartition("/")[2].partition(":")[2]


def of_update(old: Thing, new: Thing, user: str, world: World) -> list[str]:
    if new["metadata"].get("deletionTimestamp"):
        return []  # finalizers have to come off whatever the object looks like
    before = {c["name"]: c for c in old["spec"].get("components") or []}
    after = {c["name"]: c for c in new["spec"].get("components") or []}
    found = []
    if added := sorted(after.keys() - before.keys()):
        found.append(f"spec.components: components cannot be added after creation: {', '.join(added)}")
    if removed := sorted(before.keys() - after.keys()):
        found.append(f"spec.components: components cannot be removed after creation: {', '.join(removed)}")
    for path in ("backendFramework", "topologyConstraint", "experimental.kvTransferPolicy", "providerOverride.apiVersion"):
        if at(old["spec"], path) != at(new["spec"], path):
            found.append(f"spec.{path} is immutable")
    for name in sorted(before.keys() & after.keys()):
        found += [f"component {name}: {why}" for why in of_component_update(before[name], after[name], user, world)]
    return found


def of_component_update(old: Thing, new: Thing, user: str, world: World) -> list[str]:
    found = []
    if (nodes(old) > 1) != (nodes(new) > 1):
        found.append("cannot change between single-node and multinode after creation")
    for path in ("topologyConstraint", "experimental.failover", "experimental.grove.forceScalingGroup", "experimental.gpuMemoryService.mode"):
        if at(old, path) != at(new, path):
            found.append(f"{path} is immutable")
    if "scalingAdapter" in old and old.get("replicas") != new.get("replicas") and user not in world.own and not user.endswith(":planner-serviceaccount"):
        found.append("replicas is owned by the scaling adapter: scale that instead")
    if main_container(old).get("image") != main_container(new).get("image"):
        found += image(new)
    return found


def of_v1alpha1(graph: Thing) -> list[str]:
    """What only the older version can say wrong."""
    found = []
    services = graph["spec"].get("services") or {}
    if not services:
        return ["spec.services must have at least one service"]
    for name, service in services.items():
        for mount in service.get("volumeMounts") or []:
            if not mount.get("mountPoint") and not mount.get("useAsCompilationCache"):
                found.append(f"spec.services[{name}].volumeMounts[{mount['name']}]: mountPoint is required")
        ingress = service.get("ingress") or {}
        if ingress.get("enabled") and not (ingress.get("host") or ingress.get("hostPrefix")):
            found.append(f"spec.services[{name}].ingress.host is required when ingress is enabled")
    return found


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = (value or {}).get(part)
    return value


def review(asked: Thing, path: str, version: str, world: World) -> Thing:
    """Answers an AdmissionReview for one of the paths of the webhook configurations."""
    request = asked["request"]
    answer: Thing = {"uid": request["uid"], "allowed": True}
    thing = request.get("object") or {}
    if path.startswith("/mutate"):
        if request["operation"] == "CREATE" and (patch := fill_in(thing, version)):
            answer |= {"patchType": "JSONPatch", "patch": patch}
    elif why := refusals(request, path, world):
        answer |= {"allowed": False, "status": {"code": 403, "reason": "Forbidden", "message": "; ".join(why)}}
    else:
        answer["warnings"] = warnings(path)
    return {"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": answer}


def refusals(request: Thing, path: str, world: World) -> list[str]:
    thing = request.get("object") or {}
    if request["operation"] == "DELETE":
        return []
    if "v1alpha1" in path:
        return [] if thing["metadata"].get("deletionTimestamp") else of_v1alpha1(thing)
    if request["operation"] == "CREATE":
        return of_create(thing, world)
    return of_update(request["oldObject"], thing, request["userInfo"]["username"], world)


def warnings(path: str) -> list[str]:
    return ["nvidia.com/v1alpha1 DynamoGraphDeployment is deprecated; use nvidia.com/v1beta1"] if "v1alpha1" in path else []
