"""A DynamoGraphDeployment (v1beta1) → the objects that it becomes on the component path."""

from __future__ import annotations

import copy

from . import multinode, pods
from .facts import FINALIZER, GRAPH_LABEL, HASH_LABEL, NV, SELECTOR, SERVICE_PORTS, Thing, is_worker, kind_of, nodes

# What a component keeps as a DynamoComponentDeployment.
KEPT = ("name", "type", "replicas", "minAvailable", "podTemplate", "compilationCache", "eppConfig", "frontendSidecar", "globalDynamoNamespace", "modelRef",
        "runtimeVersionOverride", "scalingAdapter", "sharedMemorySize", "topologyConstraint", "experimental")  # fmt: skip
ROLE_RULES = [
    {"apiGroups": [""], "resources": ["endpoints", "pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [NV], "resources": ["dynamoworkermetadatas"], "verbs": ["create", "get", "list", "watch", "update", "patch", "delete"]},
]


def of(graph: Thing, mark: str, pull_secrets: dict[str, str]) -> list[Thing]:
    """In the order in which they are made. Those of a component come after its DCD and name it in `owner`, for its uid is not known yet."""
    found = discovery(graph) if pods.discovery(graph) == "kubernetes" else []
    components = graph["spec"].get("components") or []
    if any(nodes(c) > 1 for c in components):
        found.append(_thing("v1", "ConfigMap", graph, f"{graph['metadata']['name']}-wait-leader-script", data={"wait-for-leader.py": multinode.WAIT_SCRIPT}))
    for component in components:
        own = mark if is_worker(component) else ""
        name = object_name(graph, component, mark)
        found.append(component_deployment(graph, component, own, name))
        made = [group(graph, component, own, name, pull_secrets) if nodes(component) > 1 else deployment(graph, component, own, name, pull_secrets)]
        if kind_of(component) == "frontend" or pods.discovery(graph) == "kubernetes":
            made.append(service(graph, component, own, name))
        found += [{**thing, "owner": name} for thing in made]
    return found


def object_name(graph: Thing, component: Thing, mark: str) -> str:
    base = f"{graph['metadata']['name']}-{component['name'].lower()}"
    return f"{base}-{mark}" if is_worker(component) else base


def _thing(api: str, kind: str, graph: Thing, name: str, labels: dict[str, str] | None = None, **rest: object) -> Thing:
    meta = {"name": name, "namespace": graph["metadata"]["namespace"], "labels": labels or {GRAPH_LABEL: graph["metadata"]["name"]}}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **rest}


def discovery(graph: Thing) -> list[Thing]:
    account, rbac = f"{graph['metadata']['name']}-k8s-service-discovery", "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": account, "namespace": graph["metadata"]["namespace"]}
    return [
        _thing("v1", "ServiceAccount", graph, account),
        _thing(f"{rbac}/v1", "Role", graph, f"{account}-role", rules=ROLE_RULES),
        _thing(f"{rbac}/v1", "RoleBinding", graph, f"{account}-binding", roleRef={"apiGroup": rbac, "kind": "Role", "name": f"{account}-role"}, subjects=[subject]),
    ]


def component_deployment(graph: Thing, component: Thing, mark: str, name: str) -> Thing:
    spec = {key: copy.deepcopy(component[key]) for key in KEPT if component.get(key) is not None}
    if backend := graph["spec"].get("backendFramework"):
        spec["backendFramework"] = backend
    if nodes(component) > 1:
        spec["multinode"] = {"nodeCount": nodes(component)}
    thing = _thing("nvidia.com/v1beta1", "DynamoComponentDeployment", graph, name, pods.labels(graph, component, mark), spec=spec)
    thing["metadata"]["finalizers"] = [FINALIZER]
    return thing


def deployment(graph: Thing, component: Thing, mark: str, name: str, pull_secrets: dict[str, str]) -> Thing:
    template = pods.template(graph, component, mark, name, pull_secrets)
    notes = template["metadata"].get("annotations") or {}
    if notes.get(f"{NV}/deployment-strategy") == "Recreate":
        strategy: Thing = {"type": "Recreate"}
    else:
        bounds = {"maxSurge": f"{NV}/deployment-rolling-update-max-surge", "maxUnavailable": f"{NV}/deployment-rolling-update-max-unavailable"}
        strategy = {"type": "RollingUpdate", "rollingUpdate": {key: _bound(notes.get(note, "25%")) for key, note in bounds.items()}}
    spec = {"replicas": component.get("replicas", 1), "strategy": strategy, "selector": {"matchLabels": {SELECTOR: name}}, "template": template}
    return _thing("apps/v1", "Deployment", graph, name, pods.labels(graph, component, mark), spec=spec)


def _bound(text: str) -> str | int:
    return int(text) if text.isdigit() else text


def group(graph: Thing, component: Thing, mark: str, name: str, pull_secrets: dict[str, str]) -> Thing:
    """The LeaderWorkerSet of a component that spans nodes."""
    templates = {}
    for rank in ("leader", "worker"):
        template = pods.template(graph, component, mark, name, pull_secrets)
        template["metadata"]["labels"]["role"] = rank
        multinode.stretch(graph, component, template["spec"], rank)
        templates[f"{rank}Template"] = template
    spec = {
        "replicas": component.get("replicas", 1), "startupPolicy": "LeaderCreated",
        "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0}},
        "leaderWorkerTemplate": {"size": nodes(component), **templates},
    }  # fmt: skip
    return _thing("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", graph, f"{name}-0", pods.labels(graph, component, mark), spec=spec)


def service(graph: Thing, component: Thing, mark: str, name: str) -> Thing:
    labels = pods.labels(graph, component, mark)
    selector = {SELECTOR: name}
    if nodes(component) > 1:  # these pods have no selector label, and only the leader answers
        selector = {GRAPH_LABEL: graph["metadata"]["name"], f"{NV}/dynamo-component": component["name"], "role": "leader"}
        selector |= {HASH_LABEL: mark} if mark else {}
    port, number = SERVICE_PORTS.get(kind_of(component), ("system", 9090))
    spec = {"type": "ClusterIP", "selector": selector, "ports": [{"name": port, "port": number, "targetPort": port, "protocol": "TCP"}]}
    return _thing("v1", "Service", graph, name, labels, spec=spec)
