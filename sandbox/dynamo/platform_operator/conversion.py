"""v1alpha1 ↔ v1beta1 of DynamoGraphDeployment and DynamoComponentDeployment, as a conversion webhook has to do it: nothing may be lost on the way.

The two versions do not hold the same. What an object said in the version that it was written in is kept beside it in an annotation, and given back
as long as it still means the same; that is simpler than upstream's many annotations, whose prefix it shares.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from .facts import NV, Thing

OLD, NEW = f"{NV}/v1alpha1", f"{NV}/v1beta1"
KEPT = {OLD: f"{NV}/dgd-v1alpha1-spec", NEW: f"{NV}/dgd-v1beta1-spec"}
SAME_IN_GRAPH = ("annotations", "labels", "backendFramework", "priorityClassName", "restart", "experimental", "providerOverride")
SAME_IN_COMPONENT = ("replicas", "minAvailable", "modelRef", "multinode", "globalDynamoNamespace", "runtimeVersionOverride", "topologyConstraint", "eppConfig", "providerOverride")
SIDECAR = "frontend-sidecar"
MODES = {"intraPod": "IntraPod", "interPod": "InterPod"}
PREFILL_DECODE = ("prefill", "decode")


def convert(thing: Thing, to: str) -> Thing:
    """A whole object; kinds that are the same in both versions only change their name."""
    came, found = thing["apiVersion"], copy.deepcopy(thing)
    found["apiVersion"] = to
    both = CONVERTERS.get(thing["kind"])
    if came == to or both is None:
        return found
    forth, back = (both["up"], both["down"]) if to == NEW else (both["down"], both["up"])
    spec = thing.get("spec") or {}
    notes = found.setdefault("metadata", {}).get("annotations") or {}
    made, kept = forth(spec), json.loads(notes.pop(KEPT[to], "null"))
    if kept is not None and back(kept) == spec:
        made = kept
    if back(made) != spec:
        notes[KEPT[came]] = json.dumps(spec, sort_keys=True)
    found["spec"] = made
    found["metadata"]["annotations"] = notes
    if not notes:
        del found["metadata"]["annotations"]
    if thing.get("status"):
        found["status"] = (both["status_up"] if to == NEW else both["status_down"])(thing["status"])
    return found


def some(source: Thing, names: tuple[str, ...]) -> Thing:
    return {name: copy.deepcopy(source[name]) for name in names if name in source}


def graph_up(spec: Thing) -> Thing:
    found = some(spec, SAME_IN_GRAPH)
    if "envs" in spec:
        found["env"] = spec["envs"]
    if topology := spec.get("topologyConstraint"):
        found["topologyConstraint"] = {("clusterTopologyName" if k == "topologyProfile" else k): v for k, v in topology.items()}
    if "services" in spec:
        found["components"] = [{"name": name, **component_up(service)} for name, service in sorted(spec["services"].items())]
    return found


def graph_down(spec: Thing) -> Thing:
    found = some(spec, SAME_IN_GRAPH)
    if "env" in spec:
        found["envs"] = spec["env"]
    if topology := spec.get("topologyConstraint"):
        found["topologyConstraint"] = {("topologyProfile" if k == "clusterTopologyName" else k): v for k, v in topology.items()}
    if "components" in spec:
        found["services"] = {component["name"]: component_down(component) for component in spec["components"]}
    return found


def component_up(old: Thing) -> Thing:
    found = some(old, SAME_IN_COMPONENT)
    kind, sub = old.get("componentType"), old.get("subComponentType")
    if kind:
        found["type"] = sub if sub in PREFILL_DECODE else kind
    if (old.get("scalingAdapter") or {}).get("enabled"):
        found["scalingAdapter"] = {}
    if shared := old.get("sharedMemory"):
        found["sharedMemorySize"] = "0" if shared.get("disabled") else shared.get("size", "8Gi")
    for mount in old.get("volumeMounts") or []:
        if mount.get("useAsCompilationCache"):
            found["compilationCache"] = {"pvcName": mount["name"], **({"mountPath": mount["mountPoint"]} if mount.get("mountPoint") else {})}
    if experimental := experimental_up(old):
        found["experimental"] = experimental
    if template := template_up(old):
        found["podTemplate"] = template
    if old.get("frontendSidecar"):
        found["frontendSidecar"] = SIDECAR
    return found


def experimental_up(old: Thing) -> Thing:
    found: Thing = {}
    for name in ("gpuMemoryService", "failover"):
        if (old.get(name) or {}).get("enabled"):
            found[name] = {k: MODES.get(v, v) if k == "mode" else v for k, v in old[name].items() if k != "enabled"}
    if "checkpoint" in old:
        found["checkpoint"] = {"enabled": False, **copy.deepcopy(old["checkpoint"])}
    return found


def template_up(old: Thing) -> Thing:
    pod = copy.deepcopy(old.get("extraPodSpec") or {})
    main = main_up(old, pod.pop("mainContainer", None) or {})
    others = pod.pop("containers", None) or []
    if sidecar := old.get("frontendSidecar"):
        others.append(container_of(SIDECAR, sidecar))
    meta: Thing = {}
    extra = old.get("extraPodMetadata") or {}
    for name in ("labels", "annotations"):
        if words := {**(old.get(name) or {}), **(extra.get(name) or {})}:
            meta[name] = words
    if not (main or others or pod or meta):
        return {}
    return {**({"metadata": meta} if meta else {}), "spec": {**pod, "containers": [{"name": "main", **main}, *others]}}


def main_up(old: Thing, main: Thing) -> Thing:
    main = {k: v for k, v in main.items() if k != "name"}
    if envs := old.get("envs"):
        own = {e["name"] for e in main.get("env") or []}
        main["env"] = [*(e for e in envs if e["name"] not in own), *(main.get("env") or [])]
    if secret := old.get("envFromSecret"):
        main["envFrom"] = [*(main.get("envFrom") or []), {"secretRef": {"name": secret}}]
    if resources := old.get("resources"):
        merged = copy.deepcopy(main.get("resources") or {})
        for where in ("limits", "requests"):
            if named := plain(resources.get(where) or {}):
                merged[where] = {**named, **(merged.get(where) or {})}
        if "claims" in resources:
            merged.setdefault("claims", resources["claims"])
        main["resources"] = merged
    for name in ("livenessProbe", "readinessProbe"):
        if name in old:
            main.setdefault(name, old[name])
    mounts = [{"name": m["name"], "mountPath": m.get("mountPoint", "")} for m in old.get("volumeMounts") or [] if not m.get("useAsCompilationCache")]
    if mounts:
        main["volumeMounts"] = [*mounts, *(main.get("volumeMounts") or [])]
    return main


def plain(resources: Thing) -> Thing:
    """`gpu` and `custom` under the names that Kubernetes has for them."""
    found = {k: v for k, v in resources.items() if k in ("cpu", "memory")}
    if "gpu" in resources:
        found[resources.get("gpuType") or f"{NV}/gpu"] = resources["gpu"]
    return {**found, **(resources.get("custom") or {})}


def container_of(name: str, sidecar: Thing) -> Thing:
    found: Thing = {"name": name, "image": sidecar["image"]}
    if "args" in sidecar:
        found["args"] = sidecar["args"]
    if "envs" in sidecar:
        found["env"] = sidecar["envs"]
    if "envFromSecret" in sidecar:
        found["envFrom"] = [{"secretRef": {"name": sidecar["envFromSecret"]}}]
    return found


def component_down(new: Thing) -> Thing:
    found = some(new, SAME_IN_COMPONENT)
    if kind := new.get("type"):
        found |= {"componentType": "worker", "subComponentType": kind} if kind in PREFILL_DECODE else {"componentType": kind}
    if "scalingAdapter" in new:
        found["scalingAdapter"] = {"enabled": True}
    if "sharedMemorySize" in new:
        found["sharedMemory"] = {"disabled": True} if str(new["sharedMemorySize"]) == "0" else {"size": new["sharedMemorySize"]}
    if cache := new.get("compilationCache"):
        found["volumeMounts"] = [{"name": cache["pvcName"], "useAsCompilationCache": True, **({"mountPoint": cache["mountPath"]} if cache.get("mountPath") else {})}]
    experimental = new.get("experimental") or {}
    words = {new_: old for old, new_ in MODES.items()}
    for name in ("gpuMemoryService", "failover"):
        if name in experimental:
            found[name] = {"enabled": True, **{k: words.get(v, v) if k == "mode" else v for k, v in experimental[name].items()}}
    if "checkpoint" in experimental:
        found["checkpoint"] = copy.deepcopy(experimental["checkpoint"])
    template = new.get("podTemplate") or {}
    pod = copy.deepcopy(template.get("spec") or {})
    containers = pod.pop("containers", [])
    if main := next((c for c in containers if c["name"] == "main"), None):
        pod["mainContainer"] = main
    if others := [c for c in containers if c["name"] != "main"]:
        pod["containers"] = others
    if pod:
        found["extraPodSpec"] = pod
    if meta := {k: v for k, v in (template.get("metadata") or {}).items() if k in ("labels", "annotations")}:
        found["extraPodMetadata"] = meta
    return found


def renamed(status: Thing, names: dict[str, str]) -> Thing:
    return {names.get(k, k): copy.deepcopy(v) for k, v in status.items()}


def counts_down(counts: Thing) -> Thing:
    return {**counts, "componentName": (counts.get("componentNames") or [""])[0]}


def counts_up(counts: Thing) -> Thing:
    names = counts.get("componentNames") or [counts.get("componentName", "")]
    return {**{k: v for k, v in counts.items() if k != "componentName"}, "componentNames": names}


def graph_status_down(status: Thing) -> Thing:
    found = renamed(status, {"components": "services"})
    if "services" in found:
        found["services"] = {name: counts_down(c) for name, c in found["services"].items()}
    if "rollingUpdate" in found:
        found["rollingUpdate"] = renamed(found["rollingUpdate"], {"updatedComponents": "updatedServices"})
    return found


def graph_status_up(status: Thing) -> Thing:
    found = renamed(status, {"services": "components"})
    if "components" in found:
        found["components"] = {name: counts_up(c) for name, c in found["components"].items()}
    if "rollingUpdate" in found:
        found["rollingUpdate"] = renamed(found["rollingUpdate"], {"updatedServices": "updatedComponents"})
    return found


def single_status_down(status: Thing) -> Thing:
    found = {"conditions": [], **renamed(status, {"component": "service"})}
    return {**found, "service": counts_down(found["service"])} if "service" in found else found


def single_status_up(status: Thing) -> Thing:
    found = renamed({k: v for k, v in status.items() if k != "podSelector"}, {"service": "component"})
    return {**found, "component": counts_up(found["component"])} if "component" in found else found


def single_up(spec: Thing) -> Thing:
    return some(spec, ("backendFramework",)) | component_up(spec)


def single_down(spec: Thing) -> Thing:
    return some(spec, ("backendFramework",)) | component_down(spec)


CONVERTERS: dict[str, dict[str, Any]] = {
    "DynamoGraphDeployment": {"up": graph_up, "down": graph_down, "status_up": graph_status_up, "status_down": graph_status_down},
    "DynamoComponentDeployment": {"up": single_up, "down": single_down, "status_up": single_status_up, "status_down": single_status_down},
}


def review(asked: Thing) -> Thing:
    """Answers a ConversionReview."""
    request = asked["request"]
    try:
        made = [convert(thing, request["desiredAPIVersion"]) for thing in request["objects"]]
        result: Thing = {"uid": request["uid"], "convertedObjects": made, "result": {"status": "Success"}}
    except (KeyError, TypeError, ValueError) as wrong:
        result = {"uid": request["uid"], "result": {"status": "Failure", "message": f"cannot convert to {request['desiredAPIVersion']}: {wrong!r}"}}
    return {"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": result}
