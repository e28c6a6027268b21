"""What the operator puts into every pod of a component, and by what it is known (read 2026-11-30 in the upstream source, 1.4 to 1.5-dev)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

NV = "nvidia.com"
FINALIZER = f"{NV}/finalizer"
GRAPH_LABEL, HASH_LABEL, SELECTOR = f"{NV}/dynamo-graph-deployment-name", f"{NV}/dynamo-worker-hash", f"{NV}/selector"
HASH_NOTE = f"{NV}/current-worker-hash"
WORKERS = ("worker", "prefill", "decode")
FRAMEWORKS = {"vllm": "dynamo.vllm", "sglang": "dynamo.sglang", "trtllm": "dynamo.trtllm"}

Thing = dict[str, Any]


def port(name: str, number: int) -> Thing:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def probe(path: str, port_: str, first: int, period: int, failures: int, timeout: int = 4) -> Thing:
    found = {"httpGet": {"path": path, "port": port_}, "periodSeconds": period, "failureThreshold": failures, "timeoutSeconds": timeout}
    return found | ({"initialDelaySeconds": first} if first else {})


def env(**values: str) -> list[Thing]:
    return [{"name": name, "value": value} for name, value in values.items()]


def field(name: str, path: str) -> Thing:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


# How long a probe may take is known for a worker's liveness only; the others are assumed to be alike.
FRONTEND: Thing = {
    "command": ["python3"], "args": ["-m", "dynamo.frontend"], "ports": [port("http", 8000)],
    "livenessProbe": probe("/live", "http", 15, 10, 3), "readinessProbe": probe("/health", "http", 10, 10, 3),
}  # fmt: skip
WORKER: Thing = {
    "command": ["/bin/sh", "-c"], "ports": [port("system", 9090), port("nixl", 19090)],
    "livenessProbe": probe("/live", "system", 0, 5, 1), "readinessProbe": probe("/health", "system", 0, 10, 3), "startupProbe": probe("/live", "system", 0, 10, 720),
}  # fmt: skip
PLANNER: Thing = {**WORKER, "ports": [port("metrics", 9085), port("system", 9090)]}
WORKER_ENV = env(
    DYN_SYSTEM_ENABLED="true", DYN_SYSTEM_PORT="9090", DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS='["generate"]', DYN_HEALTH_CHECK_ENABLED="false",
    NIXL_TELEMETRY_ENABLE="n", NIXL_TELEMETRY_EXPORTER="prometheus", NIXL_TELEMETRY_PROMETHEUS_PORT="19090", DYN_FORWARDPASS_METRIC_PORT="20380",
)  # fmt: skip
SERVICE_PORTS = {"frontend": ("http", 8000), "epp": ("grpc", 9002)}


def kind_of(component: Thing) -> str:
    """A component without a type is a plain program; the one called Frontend is the frontend."""
    return component.get("type") or ("frontend" if component["name"].lower() == "frontend" else "")


def is_worker(component: Thing) -> bool:
    return kind_of(component) in WORKERS


def nodes(component: Thing) -> int:
    return int(component["multinode"].get("nodeCount", 2)) if component.get("multinode") is not None else 1


def main_container(component: Thing) -> Thing:
    containers = ((component.get("podTemplate") or {}).get("spec") or {}).get("containers") or []
    return next((c for c in containers if c.get("name") == "main"), {})


def dynamo_namespace(graph: Thing, component: Thing | None = None) -> str:
    if component and component.get("globalDynamoNamespace"):
        return "dynamo"
    return f"{graph['metadata']['namespace']}-{graph['metadata']['name']}".replace(".", "-")


def worker_hash(graph: Thing) -> str:
    """One for all the workers of a graph. How many there are is no part of it."""
    scale = ("replicas", "minAvailable", "scalingAdapter")
    workers = [{k: v for k, v in c.items() if k not in scale} for c in graph["spec"].get("components", []) if is_worker(c)]
    return digest([workers, graph["spec"].get("env"), graph["spec"].get("backendFramework")])


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]
