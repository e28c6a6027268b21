"""Makes of each DynamoGraphDeployment what it stands for, again whenever something that it looks at has changed."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
import urllib.error

from . import facts, status, workloads
from .api import MANAGER, MERGE, Api, Refused, collection, place
from .facts import FINALIZER, GRAPH_LABEL, HASH_LABEL, HASH_NOTE, Thing
from .multinode import Wrong

GRAPH, COMPONENT = "DynamoGraphDeployment", "DynamoComponentDeployment"
RETRY = 5.0  # seconds until a failed one is tried again
TROUBLE = (Refused, OSError, http.client.HTTPException, ValueError)


class Controller:
    def __init__(self, api: Api, groups: set[str]) -> None:
        self.api = api
        # Resolved once, at the start, as the real one does: what is installed later needs a restart. LWS without Volcano counts as no LWS.
        self.multinode = {"leaderworkerset.x-k8s.io", "scheduling.volcano.sh"} <= groups
        self.groups = groups
        self.changed, self.done = threading.Event(), threading.Event()
        self.applied: dict[str, tuple[str, int]] = {}  # place → digest of what was wanted, generation that the server made of it

    def run(self) -> None:
        for path in self._watched():
            threading.Thread(target=self._watch, args=(path,), daemon=True).start()
        while not self.done.is_set():
            self.changed.wait(RETRY)
            self.changed.clear()
            try:
                self.everything()
            except TROUBLE as trouble:
                print(f"ERROR reconcile: {trouble}", flush=True)
                self.done.wait(1)
            self.done.wait(0.2)  # changes come in bursts

    def stop(self) -> None:
        self.done.set()
        self.changed.set()

    def _watched(self) -> list[str]:
        kinds = [GRAPH, COMPONENT, "Deployment", *(["LeaderWorkerSet"] if "leaderworkerset.x-k8s.io" in self.groups else [])]
        return [collection(kind) + ("" if kind in (GRAPH, COMPONENT) else f"?labelSelector={GRAPH_LABEL}") for kind in kinds]

    def _watch(self, path: str) -> None:
        """Only that something has changed matters; what, is looked up."""
        mark = "&" if "?" in path else "?"
        while not self.done.is_set():
            try:
                version = self.api.ask("GET", f"{path}{mark}limit=1")["metadata"]["resourceVersion"]
                self.changed.set()
                with self.api.open("GET", f"{path}{mark}watch=1&timeoutSeconds=300&resourceVersion={version}", timeout=330) as lines:
                    for _ in lines:
                        self.changed.set()
            except (*TROUBLE, urllib.error.URLError):
                self.done.wait(1)

    def everything(self) -> None:
        for component in self.api.ask("GET", collection(COMPONENT))["items"]:
            if component["metadata"].get("deletionTimestamp"):
                self._let_go({**component, "kind": COMPONENT})
        for graph in self.api.ask("GET", collection(GRAPH))["items"]:
            graph["kind"] = GRAPH
            if "ephemeral" in graph["metadata"]["namespace"]:
                continue  # ignored without a word, as by the real one
            if graph["metadata"].get("deletionTimestamp"):
                self._let_go(graph)
            else:
                self._one(graph)

    def _let_go(self, thing: Thing) -> None:
        left = [f for f in thing["metadata"].get("finalizers") or [] if f != FINALIZER]
        if len(left) < len(thing["metadata"].get("finalizers") or []):
            self._patch(place(thing), {"metadata": {"finalizers": left}})

    def _patch(self, path: str, body: Thing) -> None:
        try:
            self.api.ask("PATCH", f"{path}?fieldManager={MANAGER}", body, MERGE)
        except Refused as refused:
            if refused.status != 404:
                raise

    def _one(self, graph: Thing) -> None:
        try:
            if not self.multinode and any(facts.nodes(c) > 1 for c in graph["spec"].get("components") or []):
                said = status.failed(graph, "no_multinode_orchestrator_available", "no multinode orchestrator (Grove, or LeaderWorkerSet with Volcano) is available")
            else:
                mark = self._mark(graph)
                live = self._make(graph, mark)
                said = status.of(graph, mark, live, self._retire(graph, mark, live))
        except (Wrong, Refused) as wrong:
            said = status.failed(graph, "failed_to_reconcile_the_resources", str(wrong))
        if said != (graph.get("status") or {}):
            self._patch(place(graph) + "/status", {"status": {**dict.fromkeys(graph.get("status") or {}), **said}})

    def _mark(self, graph: Thing) -> str:
        """The workers' hash, kept on the object together with the finalizer. Workers that span nodes are updated in place, under the first one."""
        meta = graph["metadata"]
        had = (meta.get("annotations") or {}).get(HASH_NOTE, "")
        in_place = had and any(facts.nodes(c) > 1 for c in graph["spec"].get("components") or [])
        mark = had if in_place else facts.worker_hash(graph)
        finalizers = meta.get("finalizers") or []
        if had != mark or FINALIZER not in finalizers:
            self._patch(place(graph), {"metadata": {"annotations": {HASH_NOTE: mark}, "finalizers": sorted({*finalizers, FINALIZER})}})
        return mark

    def _make(self, graph: Thing, mark: str) -> dict[tuple[str, str], Thing]:
        """All that the graph becomes, as it is now, by kind and name."""
        namespace = graph["metadata"]["namespace"]
        self._common(graph)
        owners: dict[str, Thing] = {}  # their uids, which cleaning up by the server needs, are known once they are made
        live: dict[tuple[str, str], Thing] = {}
        for thing in workloads.of(graph, mark, self._pull_secrets(namespace)):
            owner = owners.get(thing.pop("owner", ""), graph)
            thing["metadata"]["ownerReferences"] = [{
                "apiVersion": "nvidia.com/v1beta1", "kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
                "controller": True, "blockOwnerDeletion": True,
            }]  # fmt: skip
            made = live[thing["kind"], thing["metadata"]["name"]] = self._apply(thing)
            if thing["kind"] == COMPONENT:
                owners[thing["metadata"]["name"]] = made
        return live

    def _apply(self, thing: Thing) -> Thing:
        """Written again only if something else is wanted, or somebody has changed it."""
        where, wanted = place(thing), facts.digest(thing)
        was, live = self.applied.get(where), self.api.find(where)
        if live and was == (wanted, live["metadata"].get("generation", 0)):
            return live
        made = self.api.apply(thing)
        self.applied[where] = (wanted, made["metadata"].get("generation", 0))
        return made

    def _common(self, graph: Thing) -> None:
        """What is left in the namespace when the graph goes: nobody owns it."""
        namespace = graph["metadata"]["namespace"]
        self._once({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "planner-serviceaccount", "namespace": namespace}})
        if any(facts.nodes(c) > 1 for c in graph["spec"].get("components") or []):
            key = {"private.key": base64.b64encode(b"no key: nothing in the sandbox uses ssh\n").decode()}
            self._once({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mpi-run-ssh-secret", "namespace": namespace}, "data": key})

    def _once(self, thing: Thing) -> None:
        if self.api.find(place(thing)) is None:
            self.api.apply(thing)

    def _pull_secrets(self, namespace: str) -> dict[str, str]:
        found: dict[str, str] = {}
        listed = self.api.ask("GET", collection("Secret", namespace) + "?fieldSelector=type%3Dkubernetes.io/dockerconfigjson")["items"]
        for secret in sorted(listed, key=lambda s: str(s["metadata"]["name"])):
            try:
                hosts = json.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))["auths"]
            except (KeyError, ValueError, TypeError):
                continue
            for host in hosts:
                found.setdefault(host.removeprefix("https://").split("/")[0], secret["metadata"]["name"])
        return found

    def _retire(self, graph: Thing, mark: str, live: dict[tuple[str, str], Thing]) -> bool:
        """Workers of older hashes go once the new ones are ready, or at once where the pod template says Recreate. True while some are left."""
        meta = graph["metadata"]
        selector = f"?labelSelector={GRAPH_LABEL}%3D{meta['name']}"
        listed = self.api.ask("GET", collection(COMPONENT, meta["namespace"]) + selector)["items"]
        old = [c for c in listed if c["metadata"]["labels"].get(HASH_LABEL, mark) != mark and not c["metadata"].get("deletionTimestamp")]
        new_ready = status.of(graph, mark, live, False)["state"] == "successful"
        for component in old:
            notes = (component["spec"].get("podTemplate") or {}).get("metadata", {}).get("annotations") or {}
            if new_ready or notes.get(f"{facts.NV}/deployment-strategy") == "Recreate":
                self.api.delete(COMPONENT, meta["namespace"], component["metadata"]["name"])
        return bool(old)
