"""Node groups: each node is a real kubelet in a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
import time
import tomllib
from typing import Any

from . import devices, hardware, kube, parts
from .paths import BIN, CACHE, INSIDE, REGION, REPO, SANDBOX, Wrong, World
from .processes import Part, at_once, discard

EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
# What has to run on a node before it shows a device or mounts a file system, by the program that brings it.
DEVICES = {"nvidia.com/gpu": "program:nvidia-device-plugin", "vpc.amazonaws.com/efa": "program:efa-k8s-device-plugin"}
DRIVERS = {"fsx.csi.aws.com": "program:aws-fsx-csi-driver"}
PULL_RATE = 200e6  # bytes a second that a node pulls and unpacks; assumed, before the sandbox's speed
NETWORK = "program:aws-vpc-cni"
LONGEST = 240  # nodes in one sandbox: one 10.42.N.0/24 each


class Nodes:
    def __init__(self, world: World, options: parts.Options) -> None:
        self.world, self.options = world, options
        self.groups: dict[str, dict[str, Part]] = {}  # group's id -> node's name -> its process
        self.numbers: dict[str, int] = {}
        self.lock = threading.Lock()

    @property
    def parts(self) -> list[Part]:
        with self.lock:
            return [part for group in self.groups.values() for part in group.values()]

    def start(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Make the group as large as asked (also smaller), and wait until its nodes are Ready."""
        capacity = hardware.of(ask["instanceType"])
        with self.lock:
            group = self.groups.setdefault(ask["id"], {})
            surplus = sorted(group, key=lambda name: self.numbers[name])[ask["count"] :]
            fresh = []
            for _ in range(ask["count"] - len(group)):
                part = self._part(ask, len(group), capacity)
                group[part.name] = part
                fresh.append(part)
        if surplus:
            self._remove(ask["id"], surplus)
        for part in fresh:
            part.start()
        at_once(*(lambda part=part: part.wait_ready(600) for part in fresh))
        return {"joined": list(group)}

    def _part(self, ask: dict[str, Any], index: int, hardware_: tuple[dict[str, str], dict[str, str]]) -> Part:
        number = next(n for n in range(1, LONGEST) if n not in self.numbers.values())
        instance = machine(ask, index, number)
        name, zone = f"ip-{instance['address'].replace('.', '-')}.{REGION}.compute.internal", instance["zone"]
        self.numbers[name] = number
        capacity, allocatable = hardware_
        if gpu := hardware.types()[ask["instanceType"]].get("gpu"):
            counts = (int(capacity["nvidia.com/gpu"]), int(capacity.get("vpc.amazonaws.com/efa", 0)))
            devices.lay(INSIDE / "n" / str(number) / "host" / "sys", *counts, gpu["name"], gpu["memory_mib"])
        labels = {
            **{key: str(value) for key, value in (ask.get("labels") or {}).items()},
            "node.kubernetes.io/instance-type": ask["instanceType"],
            "topology.kubernetes.io/region": REGION,
            "topology.kubernetes.io/zone": zone,
            "eks.amazonaws.com/nodegroup": ask["group"],
            "eks.amazonaws.com/capacityType": ask.get("capacityType") or "ON_DEMAND",
        }
        taints = [{**taint, "effect": EFFECTS.get(taint["effect"], taint["effect"])} for taint in ask.get("taints") or []]
        gates = {resource: gate for resource, gate in DEVICES.items() if resource in capacity}
        # Containers of images that name a program see where the sandbox's programs and their libraries lie, and nothing else of the machine.
        binds = [str(path) for path in (SANDBOX, REPO / "configs" / "engine-flags.tsv", BIN, CACHE / "venv", INSIDE / "pods") if path.exists()]
        ask_mount = f"http://127.0.0.1:{parts.CONTROL}/mount"
        flags = {
            "name": name, "ip": instance["address"], "pods": f"10.42.{number}", "root": f"{INSIDE}/n/{number}", "shared": f"{INSIDE}/shared",
            "image-cache": f"{INSIDE}/images", "registries": f"{INSIDE}/registries.json", "resolv-conf": f"{INSIDE}/resolv.conf",
            "clock": str(self.options.speed), "provider-id": f"aws:///{zone}/{instance['id']}",
            "labels": json.dumps(labels), "taints": json.dumps(taints), "capacity": json.dumps(capacity), "allocatable": json.dumps(allocatable),
            "device-gate": json.dumps(gates), "csi": json.dumps(DRIVERS), "mount-ask": ask_mount, "cni": NETWORK, "pull-rate": str(PULL_RATE * self.options.speed), "byte-factor": str(byte_factor()), "binds": json.dumps(binds),
            "programs": json.dumps([str(path) for path in sorted(SANDBOX.glob("*/programs"))] + [str(BIN)]),
        }  # fmt: skip
        argv = [self.options.kube, "node", *(word for key, value in flags.items() for word in (f"-{key}", value))]
        return Part(name, argv, self.world.logs, {"KUBECONFIG": f"{INSIDE}/kubeconfig"}, None, lambda: ready(name))

    def stop(self, ask: dict[str, Any]) -> dict[str, Any]:
        self._remove(ask["id"], list(self.groups.get(ask["id"], {})))
        with self.lock:
            self.groups.pop(ask["id"], None)
        return {}

    def _remove(self, group: str, names: list[str]) -> None:
        at_once(*(lambda name=name: drain(name) for name in names))
        for name in names:
            self._end(self.groups[group][name], patience=2)
            kube.delete(f"/api/v1/nodes/{name}")
            with self.lock:
                self.groups[group].pop(name, None)
                self.numbers.pop(name, None)

    def _end(self, part: Part, patience: float) -> None:
        """The process with its pods; what they leave behind in the world's network too."""
        part.stop(patience)
        root = INSIDE / "n" / str(self.numbers[part.name])
        for sandbox in (root / "c" / "sandboxes").glob("*"):
            subprocess.run(["ip", "netns", "del", f"p{sandbox.name[:12]}"], capture_output=True)
        unmount_below(str(root))
        discard(root)

    def kill(self) -> None:
        """All of them, at once, without a word to the cluster."""
        with self.lock:
            gone = [part for group in self.groups.values() for part in group.values()]
            at_once(*(lambda part=part: self._end(part, 0) for part in gone))
            self.groups.clear()
            self.numbers.clear()


def machine(ask: dict[str, Any], index: int, number: int) -> dict[str, str]:
    """The EC2 instance that a node is; one of our own invention where a group was made larger and the emulator has none for it."""
    if index < len(ask.get("instances") or []):
        return ask["instances"][index]
    zones = ask.get("zones") or [ask["zone"]]
    ident = "i-" + hashlib.sha256(f"{ask['id']} {number}".encode()).hexdigest()[:17]
    return {"id": ident, "zone": zones[index % len(zones)], "address": f"10.0.1.{number}"}


def byte_factor() -> float:
    """By how much the images of the list are smaller than true ones."""
    return tomllib.loads((SANDBOX / "images" / "images.toml").read_text())["byte_factor"]


def ready(name: str) -> bool:
    try:
        node = kube.get(f"/api/v1/nodes/{name}")
    except (OSError, kube.Refused):
        return False
    return any(c["type"] == "Ready" and c["status"] == "True" for c in ((node or {}).get("status") or {}).get("conditions", []))


def drain(name: str, limit: float = 60) -> None:
    """Cordon, then evict all but DaemonSet pods, as EKS does; pods that a budget protects are waited for up to the limit."""
    node = kube.get(f"/api/v1/nodes/{name}")
    if node is None:
        return
    kube.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}, "application/merge-patch+json")
    end = time.monotonic() + limit
    while time.monotonic() < end:
        pods = kube.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={name}")["items"]
        left = [p for p in pods if not any(o["kind"] in ("DaemonSet", "Node") for o in p["metadata"].get("ownerReferences", []))]
        if not left:
            return
        for pod in left:
            if pod["metadata"].get("deletionTimestamp"):
                continue
            meta = pod["metadata"]
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": meta["name"], "namespace": meta["namespace"]}}
            try:
                kube.call("POST", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction", eviction)
            except kube.Refused as no:
                if no.status not in (404, 409, 429):
                    raise Wrong(f"node {name}: cannot evict {meta['name']}: {no}") from no
        time.sleep(0.3)


def unmount_below(root: str) -> None:
    """Volumes that a kubelet had mounted."""
    with open("/proc/self/mounts") as table:
        points = [line.split()[1] for line in table if line.split()[1].startswith(root + os.sep)]
    for point in sorted(points, reverse=True):
        subprocess.run(["umount", "-l", point], capture_output=True)
