"""What keeps the world: starts its parts, answers the hooks of the emulator and the command line, empties it, names what died."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from . import addons, filesystems, parts, signing
from .cluster import Cluster
from .nodes import Nodes
from .paths import ECR, EKS_IMAGES, INSIDE, PORTS, REGISTRIES, Wrong, World
from .processes import Part, at_once, discard

TOKEN_AGE = 6 * 3600  # seconds after which the nodes' ECR token is fetched anew; it lives twelve hours


class Keeper:
    def __init__(self, world: World, options: parts.Options) -> None:
        self.world, self.options = world, options
        self.others = parts.outer_parts(world, options)
        self.ways = [parts.way_in(world, name, port) for name, port in PORTS.items()]
        self.cluster, self.nodes = Cluster(world, options), Nodes(world, options)
        self.born = time.time()

    # ---- starting ------------------------------------------------------------------------------------------------------------

    def start(self, say: Any) -> None:
        """Until everything that exists before there is a cluster is ready; the control plane warms up meanwhile."""
        by_name = {part.name: part for part in self.others}
        threading.Thread(target=self.cluster.start, daemon=True, name="control plane").start()

        def bring(part: Part, after: Part | None = None) -> None:
            began = time.monotonic()
            if after is not None:
                after.start()
                after.wait_ready()
            part.start()
            part.wait_ready()
            say(f"{part.name} ready after {time.monotonic() - began:.1f} s")

        single = [part for part in self.others if part.name not in ("tokens", "upstream")]
        at_once(*(lambda part=part: bring(part) for part in single), lambda: bring(by_name["upstream"], by_name["tokens"]))
        for way in self.ways:
            way.start()
            way.wait_ready()
        self.node_registries()
        threading.Thread(target=self._renew, daemon=True, name="ECR token").start()

    def node_registries(self) -> None:
        """How nodes reach registries: ECR with the token of their role, the others as anybody."""
        hosts: dict[str, dict[str, str]] = {host: {"url": f"https://{host}"} for host in (*REGISTRIES, EKS_IMAGES) if host != "auth.docker.io"}
        hosts["docker.io"] = {"url": "https://registry-1.docker.io"}
        hosts[ECR] = {"url": f"https://{ECR}", "username": "AWS", "password": signing.ecr_password()}
        self.world.write("registries.json", hosts)

    def _renew(self) -> None:
        while True:
            time.sleep(TOKEN_AGE)
            self.node_registries()

    # ---- what the emulator asks ------------------------------------------------------------------------------------------------

    def hook(self, ask: dict[str, Any]) -> dict[str, Any]:
        match ask["action"]:
            case "cluster-start":
                self.cluster.open(ask["cluster"])
                addons.access_policies()
                if ask.get("bootstrapSelfManagedAddons", True):
                    for name in addons.BOOTSTRAP:
                        addons.install(name, self.image_version(name))
                return {}
            case "cluster-stop":
                if ask["cluster"] == self.cluster.owner:
                    self.nodes.kill()
                    self.cluster.wipe()
                return {}
            case "start" | "scale":
                self._mine(ask["cluster"])
                return self.nodes.start(ask)
            case "stop":
                return self.nodes.stop(ask)
            case "addon":
                self._mine(ask["cluster"])
                return addons.health(ask["addon"], ask["version"])
            case "addon-delete":
                if ask["cluster"] == self.cluster.owner:
                    addons.remove(ask["addon"])
                return {}
        raise Wrong(f"the world knows no action {ask['action']}")

    def _mine(self, cluster: str) -> None:
        if not self.cluster.owner:
            self.cluster.open(cluster)
        if cluster != self.cluster.owner:
            raise Wrong(f"the sandbox has one control plane, and it belongs to cluster {self.cluster.owner}, not {cluster}")

    def image_version(self, addon: str) -> str:
        """The version of an add-on's image that EKS's registry has."""
        folder = Path(self.options.store) / "registry" / "docker/registry/v2/repositories" / addons.ADDONS[addon].image / "_manifests" / "tags"
        return sorted(one.name for one in folder.iterdir())[-1]

    def mount(self, query: dict[str, str]) -> dict[str, Any]:
        return filesystems.mount(self.world, query, self.cluster.owner, self.options)

    # ---- what the command line asks --------------------------------------------------------------------------------------------

    def all_parts(self) -> list[Part]:
        return [*self.others, *self.ways, *self.cluster.parts, *self.nodes.parts]

    def status(self) -> dict[str, Any]:
        return {
            "name": self.world.name, "speed": self.options.speed, "cluster": self.cluster.owner, "seconds": round(time.time() - self.born),
            "parts": {part.name: part.state() for part in self.all_parts() if part.wanted},
        }  # fmt: skip

    def reset(self) -> dict[str, Any]:
        """An account in which nothing was ever made. What the upstream registries hold stays."""
        self.nodes.kill()
        again = [part for part in self.others if part.name in ("aws", "hub", "ecr")]
        at_once(self.cluster.wipe, *(part.stop for part in again))
        for folder in ("ecr", "shared"):
            discard(INSIDE / folder)
            (INSIDE / folder).mkdir()
        for name in ("journal.jsonl", "audit.log"):
            (INSIDE / name).unlink(missing_ok=True)
        for part in again:
            part.start()
        at_once(*(part.wait_ready for part in again))
        self.node_registries()
        return {}


def settings(world: World) -> parts.Options:
    return parts.Options(**json.loads((world.folder / "options.json").read_text()))
