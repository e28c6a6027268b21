"""The pod template of a component: defaults of its type, what the user wrote over them, what is always injected."""

from __future__ import annotations

import copy

from . import facts
from .facts import NV, SELECTOR, Thing, dynamo_namespace, env, field, is_worker, kind_of, nodes

SHM = "shared-memory"


def template(graph: Thing, component: Thing, mark: str, name: str, pull_secrets: dict[str, str]) -> Thing:
    """`mark` is the workers' hash ("" for other components), `name` the object's; `pull_secrets` says which Secret a registry's host has."""
    given = copy.deepcopy(component.get("podTemplate") or {})
    meta, pod = given.get("metadata") or {}, given.get("spec") or {}
    others = [c for c in pod.get("containers") or [] if c.get("name") != "main"]
    main = container(graph, component, facts.main_container(component), mark)
    pod["containers"] = [main, *others]
    pod.setdefault("terminationGracePeriodSeconds", 60)
    pod.setdefault("restartPolicy", "Always")
    pod.setdefault("securityContext", {"fsGroup": 1000})
    account = "planner-serviceaccount" if kind_of(component) == "planner" else f"{graph['metadata']['name']}-k8s-service-discovery"
    pod.setdefault("serviceAccountName", account)
    shared_memory(component, pod, main)
    volumes(component, pod, main)
    if (meta.get("annotations") or {}).get(f"{NV}/disable-image-pull-secret-discovery") != "true":
        secrets(pod, pull_secrets)
    pod_labels = {**(graph["spec"].get("labels") or {}), **(meta.get("labels") or {}), **labels(graph, component, mark)}
    if nodes(component) == 1:
        pod_labels[SELECTOR] = name
    annotations = {**(graph["spec"].get("annotations") or {}), **(meta.get("annotations") or {})}
    return {"metadata": {"labels": pod_labels, **({"annotations": annotations} if annotations else {})}, "spec": pod}


def container(graph: Thing, component: Thing, given: Thing, mark: str) -> Thing:
    kind = kind_of(component)
    base = {"frontend": facts.FRONTEND, "planner": facts.PLANNER, **dict.fromkeys(facts.WORKERS, facts.WORKER)}.get(kind, {})
    found = copy.deepcopy(base) | copy.deepcopy(given) | {"name": "main"}
    found["env"] = merge_env(injected(graph, component, mark), graph["spec"].get("env") or [], given.get("env") or [])
    return found


def injected(graph: Thing, component: Thing, mark: str) -> list[Thing]:
    meta, kind = graph["metadata"], kind_of(component)
    found = [
        *env(DYN_NAMESPACE=dynamo_namespace(graph, component), DYN_COMPONENT=kind or component["name"], DYN_DISCOVERY_BACKEND=discovery(graph)),
        *env(DYN_PARENT_DGD_K8S_NAME=meta["name"], DYN_PARENT_DGD_K8S_NAMESPACE=meta["namespace"]),
        field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"), field("POD_UID", "metadata.uid"),
    ]  # fmt: skip
    if kind == "frontend":
        found += env(DYNAMO_PORT="8000", DYN_HTTP_PORT="8000", DYN_NAMESPACE_PREFIX=dynamo_namespace(graph, component))
    elif is_worker(component):
        found += facts.WORKER_ENV + env(DYN_NAMESPACE_WORKER_SUFFIX=mark)
    elif kind == "planner":
        found += env(PLANNER_PROMETHEUS_PORT="9085", DYN_SYSTEM_PORT="9090")
    return found


def discovery(graph: Thing) -> str:
    return (graph["metadata"].get("annotations") or {}).get(f"{NV}/dynamo-discovery-backend", "kubernetes")


def merge_env(*layers: list[Thing]) -> list[Thing]:
    """By name; a later layer wins."""
    found: dict[str, Thing] = {}
    for layer in layers:
        found |= {one["name"]: one for one in layer}
    return list(found.values())


def labels(graph: Thing, component: Thing, mark: str) -> dict[str, str]:
    """Of pods, and of what makes them."""
    found = {
        facts.GRAPH_LABEL: graph["metadata"]["name"], f"{NV}/dynamo-component": component["name"],
        f"{NV}/dynamo-namespace": dynamo_namespace(graph, component), f"{NV}/metrics-enabled": "true",
    }  # fmt: skip
    if kind := kind_of(component):
        found[f"{NV}/dynamo-component-type"] = kind
    if mark:
        found[facts.HASH_LABEL] = mark
    if discovery(graph) == "kubernetes":
        found |= {f"{NV}/dynamo-discovery-backend": "kubernetes", f"{NV}/dynamo-discovery-enabled": "true"}
    if (graph["metadata"].get("annotations") or {}).get(f"{NV}/enable-metrics") == "false":
        del found[f"{NV}/metrics-enabled"]
    return found


def shared_memory(component: Thing, pod: Thing, main: Thing) -> None:
    size = component.get("sharedMemorySize", "8Gi")
    if str(size) == "0":
        return
    mounts = [m for m in main.get("volumeMounts", []) if m["mountPath"] != "/dev/shm"]
    main["volumeMounts"] = [*mounts, {"name": SHM, "mountPath": "/dev/shm"}]
    kept = [v for v in pod.get("volumes", []) if v["name"] != SHM]
    pod["volumes"] = [*kept, {"name": SHM, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}]


def volumes(component: Thing, pod: Thing, main: Thing) -> None:
    """A mount without a volume of its name is of the PVC of that name."""
    if cache := component.get("compilationCache"):
        mount = {"name": cache["pvcName"], "mountPath": cache.get("mountPath") or "/root/.cache/vllm"}
        main.setdefault("volumeMounts", []).append(mount)
    known = {v["name"] for v in pod.get("volumes", [])}
    for one in [*(pod.get("initContainers") or []), *pod["containers"]]:
        for mount in one.get("volumeMounts", []):
            if mount["name"] not in known:
                known.add(mount["name"])
                pod.setdefault("volumes", []).append({"name": mount["name"], "persistentVolumeClaim": {"claimName": mount["name"]}})


def secrets(pod: Thing, known: dict[str, str]) -> None:
    hosts = {c["image"].split("/")[0] for c in [*(pod.get("initContainers") or []), *pod["containers"]] if c.get("image")}
    have = {s.get("name") for s in pod.get("imagePullSecrets") or []}
    found = sorted({known[host] for host in hosts if host in known} - have)
    if found:
        pod["imagePullSecrets"] = [*(pod.get("imagePullSecrets") or []), *({"name": name} for name in found)]
