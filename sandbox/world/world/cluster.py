"""The cluster's life. The control plane is started beforehand, unseen; CreateCluster opens its public address, DeleteCluster
closes it, throws the data away and starts an empty one for the next."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from typing import Any

from . import kube, parts
from .paths import INSIDE, REGION, Wrong, World
from .processes import Part, at_once, discard

AWS = f"http://{parts.ADDRESS}:5005/_sandbox"


class Cluster:
    def __init__(self, world: World, options: parts.Options) -> None:
        self.world = world
        self.etcd, self.server, self.controllers, self.scheduler, self.net = parts.control_plane(world, options)
        self.server.ready = kube.alive
        self.public = Part(
            "api", [options.kube, "forward", "-listen", f"{parts.ADDRESS}:6443", "-to", parts.API], world.logs, {}, None, parts.listens(parts.ADDRESS, 6443)
        )
        self.owner = ""  # the EKS cluster that this control plane belongs to
        self.warm = threading.Event()
        self.failure: Wrong | None = None
        self.lock = threading.Lock()

    @property
    def parts(self) -> list[Part]:
        return [self.etcd, self.server, self.controllers, self.scheduler, self.net, *([self.public] if self.owner else [])]

    def start(self) -> None:
        """Until the API server is ready and the rest runs."""
        self.warm.clear()
        self.failure = None
        try:
            (INSIDE / "audit.log").touch()
            self.etcd.start()
            self.server.start()  # waits for etcd by itself
            self.etcd.wait_ready()
            self.server.wait_ready(120)
            for one in (self.controllers, self.scheduler, self.net):
                one.start()
            at_once(*(one.wait_ready for one in (self.controllers, self.scheduler, self.net)))
        except Wrong as problem:
            self.failure = problem
        self.warm.set()

    def open(self, name: str) -> None:
        """CreateCluster's latency is over."""
        with self.lock:
            if self.owner and self.owner != name:
                raise Wrong(f"the sandbox has one control plane, and it belongs to cluster {self.owner}")
            self.warm.wait(180)
            if self.failure:
                raise self.failure
            if not self.owner:
                self.owner = name
                self.public.start()
                self.public.wait_ready()

    def wipe(self) -> None:
        with self.lock:
            self.public.stop()
            self.owner = ""
            self.warm.wait(180)
            at_once(*(one.stop for one in (self.net, self.scheduler, self.controllers, self.server, self.etcd)))
            discard(INSIDE / "etcd")
            self.warm.clear()
            threading.Thread(target=self.start, daemon=True, name="control plane").start()

    def sign_in(self, review: dict[str, Any]) -> dict[str, Any]:
        """The API server's webhook: the emulator judges the token, for the cluster that this control plane belongs to."""
        if not self.owner:
            return {"apiVersion": review.get("apiVersion"), "kind": "TokenReview", "status": {"authenticated": False, "error": "no cluster"}}
        ask = urllib.request.Request(f"{AWS}/signin/{REGION}/{self.owner}", json.dumps(review).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(ask, timeout=10) as answer:
            return json.load(answer)

    def wait_for(self, what: str, ready: Any, limit: float) -> None:
        end = time.monotonic() + limit
        while not ready():
            if time.monotonic() > end:
                raise Wrong(f"{what}: not after {limit:.0f} s")
            time.sleep(0.2)
