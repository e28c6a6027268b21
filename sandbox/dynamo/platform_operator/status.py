"""What a DynamoGraphDeployment's status says of the objects that it became."""

from __future__ import annotations

import time
from typing import Any

from .facts import Thing, dynamo_namespace, is_worker, nodes
from .workloads import object_name

def of(graph: Thing, mark: str, live: dict[tuple[str, str], Thing], rolling: bool) -> Thing:
    """`live` has the workloads by kind and name; `rolling` says that workers of an older hash are still there."""
    components, waiting = {}, []
    for component in graph["spec"].get("components") or []:
        many = nodes(component) > 1
        kind, name = ("LeaderWorkerSet", f"{object_name(graph, component, mark)}-0") if many else ("Deployment", object_name(graph, component, mark))
        workload = live.get((kind, name)) or {}
        found = counts(workload, kind, name, component.get("replicas", 1))
        if is_worker(component):
            found["runtimeNamespace"] = f"{dynamo_namespace(graph, component)}-{mark}"
        components[component["name"]] = found
        if why := lacking(workload, kind, name, found, component.get("replicas", 1)):
            waiting.append(why)
    meta = graph["metadata"]
    if rolling:
        ready, reason, text = "False", "rolling_update_in_progress", "workers of the older generation are still there"
    elif waiting:
        ready, reason, text = "False", "some_resources_are_not_ready", "Resources not ready: " + "; ".join(waiting)
    else:
        ready, reason, text = "True", "all_resources_are_ready", "All resources are ready"
    return {
        "state": "successful" if ready == "True" else "pending", "observedGeneration": meta["generation"], "components": components,
        "conditions": conditions(graph, ready, reason, text), **rollout(graph, rolling),
    }  # fmt: skip


def rollout(graph: Thing, rolling: bool) -> Thing:
    """Only where there ever was one."""
    before = (graph.get("status") or {}).get("rollingUpdate")
    if rolling:
        begun = before if before and before["phase"] == "InProgress" else {"phase": "InProgress", "startTime": now()}
        return {"rollingUpdate": begun}
    if before and before["phase"] == "InProgress":
        workers = sorted(c["name"] for c in graph["spec"]["components"] if is_worker(c))
        return {"rollingUpdate": {**before, "phase": "Completed", "endTime": now(), "updatedComponents": workers}}
    return {"rollingUpdate": before} if before else {}


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def failed(graph: Thing, reason: str, text: str) -> Thing:
    """Does not move `observedGeneration`: it is tried again."""
    before = graph.get("status") or {}
    kept = {key: before[key] for key in ("observedGeneration", "components", "rollingUpdate") if key in before}
    return {"state": "failed", **kept, "conditions": conditions(graph, "False", reason, text)}


def conditions(graph: Thing, ready: str, reason: str, text: str) -> list[Thing]:
    before: list[Thing] = (graph.get("status") or {}).get("conditions") or []
    others = [c for c in before if c["type"] != "Ready"]
    was = next((c for c in before if c["type"] == "Ready"), {})
    since = was["lastTransitionTime"] if was.get("status") == ready else now()
    one = {"type": "Ready", "status": ready, "reason": reason, "message": text, "lastTransitionTime": since, "observedGeneration": graph["metadata"]["generation"]}
    return [*others, one]


def counts(workload: Thing, kind: str, name: str, wanted: int) -> dict[str, Any]:
    said = workload.get("status") or {}
    found = {
        "componentKind": kind, "componentNames": [name], "replicas": said.get("replicas", 0),
        "updatedReplicas": said.get("updatedReplicas", 0), "readyReplicas": said.get("readyReplicas", 0),
    }  # fmt: skip
    if kind == "Deployment":
        found["availableReplicas"] = said.get("availableReplicas", 0)
    return found


def lacking(workload: Thing, kind: str, name: str, found: dict[str, Any], wanted: int) -> str:
    """Why it is not ready; nothing if it is."""
    if not workload:
        return f"{kind} {name}: not found"
    if (workload.get("status") or {}).get("observedGeneration", workload["metadata"]["generation"]) < workload["metadata"]["generation"]:
        return f"{kind} {name}: spec not yet processed"
    if found["updatedReplicas"] < wanted:
        return f"{kind} {name}: {found['updatedReplicas']} of {wanted} replicas are updated"
    if found["readyReplicas"] < wanted:
        return f"{kind} {name}: {found['readyReplicas']} of {wanted} replicas are ready"
    if found["replicas"] > wanted:
        return f"{kind} {name}: {found['replicas'] - wanted} replicas of an older template are still there"
    return ""
