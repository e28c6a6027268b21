"""What is added to a vLLM command line when one engine spans nodes. Sizes are read as the real operator reads them: from `args`, long form, two words."""

from __future__ import annotations

import shlex
from typing import Any

from .facts import FRAMEWORKS, NV, Thing, field, main_container, nodes

LEADER = "$(LWS_LEADER_ADDRESS)"
MASTER_PORT, RAY_PORT, RPC_PORT = 29500, 6379, 13445
EXECUTOR = f"{NV}/vllm-distributed-executor-backend"
# Waits until the leader's engine listens: a worker that comes first would give up on a name that is not there yet.
WAIT_SCRIPT = """import socket, sys, time

address, port = sys.argv[1], int(sys.argv[2])
while True:
    try:
        socket.create_connection((address, port), timeout=2).close()
        print(f"leader {address}:{port} answers", flush=True)
        break
    except OSError as error:
        print(f"waiting for leader {address}:{port}: {error}", flush=True)
        time.sleep(1)
"""


class Wrong(Exception):
    """The deployment cannot be made as it is written."""


def framework(graph: Thing, component: Thing) -> str:
    main = main_container(component)
    words = " ".join([*main.get("command", []), *main.get("args", [])])
    seen = next((name for name, module in FRAMEWORKS.items() if module in words), "")
    said: str = graph["spec"].get("backendFramework") or ""
    if said and seen and said != seen:
        raise Wrong(f"component {component['name']}: backendFramework is {said}, but its command runs {FRAMEWORKS[seen]}")
    return said or seen


def size(args: list[str], flag: str) -> int:
    words = [word for arg in args for word in arg.split()]
    for at, word in enumerate(words[:-1]):
        if word == flag and words[at + 1].isdigit():
            return int(words[at + 1])
    return 1


def gpus(container: Thing) -> int:
    resources = container.get("resources") or {}
    for where in ("limits", "requests"):
        if found := (resources.get(where) or {}).get(f"{NV}/gpu"):
            return int(found)
    return 0


def stretch(graph: Thing, component: Thing, pod: Thing, rank: str) -> None:
    """Changes the pod of a leader or a worker in place."""
    main = next(c for c in pod["containers"] if c["name"] == "main")
    if not main.get("command") or not main.get("args"):
        raise Wrong(f"component {component['name']}: a LeaderWorkerSet's pods need both command and args")
    if rank == "worker":
        for name in ("livenessProbe", "readinessProbe", "startupProbe"):
            main.pop(name, None)
    if framework(graph, component) != "vllm":
        return
    args = main["args"]
    tp, pp, dp = (size(args, f"--{name}-size") for name in ("tensor-parallel", "pipeline-parallel", "data-parallel"))
    here = gpus(main)
    if tp * pp > here:
        if (graph["metadata"].get("annotations") or {}).get(EXECUTOR) == "ray":
            _ray(main, rank)
        else:
            _mp(graph, component, pod, main, rank)
    elif tp * pp * dp > here:
        _data_parallel(main, rank, here // (tp * pp))


def _mp(graph: Thing, component: Thing, pod: Thing, main: Thing, rank: str) -> None:
    number = "0" if rank == "leader" else "$(LWS_WORKER_INDEX)"
    more = ["--distributed-executor-backend", "mp", "--nnodes", str(nodes(component)), "--master-addr", LEADER, "--master-port", str(MASTER_PORT), "--node-rank", number]
    _append(main, more + (["--headless"] if rank == "worker" else []))
    main["env"] = [e for e in main["env"] if e["name"] != "VLLM_NIXL_SIDE_CHANNEL_HOST"] + [field("VLLM_NIXL_SIDE_CHANNEL_HOST", "status.podIP")]
    if rank == "worker":
        script = f"{graph['metadata']['name']}-wait-leader-script"
        pod.setdefault("volumes", []).append({"name": "wait-leader-script", "configMap": {"name": script}})
        pod.setdefault("initContainers", []).append({
            "name": "wait-for-leader-mp", "image": main["image"], "command": ["python3", "/scripts/wait-for-leader.py"], "args": [LEADER, str(MASTER_PORT)],
            "volumeMounts": [{"name": "wait-leader-script", "mountPath": "/scripts"}],
        })  # fmt: skip


def _ray(main: Thing, rank: str) -> None:
    if rank == "leader":
        command = shlex.join([*main["command"], *main["args"]]) if not _shell(main) else main["args"][0]
        words = f"ray start --head --port={RAY_PORT} && {command} --distributed-executor-backend ray"
    else:
        words = f"ray start --address={LEADER}:{RAY_PORT} --block"
    main["command"], main["args"] = ["/bin/sh", "-c"], [words]


def _data_parallel(main: Thing, rank: str, local: int) -> None:
    # The first rank of a node is a product, which only a shell can make of the pod's number.
    start = "0" if rank == "leader" else f"$(({local} * $LWS_WORKER_INDEX))"
    more = ["--data-parallel-hybrid-lb", "--data-parallel-size-local", str(local), "--data-parallel-start-rank", start,
            "--data-parallel-address", "$LWS_LEADER_ADDRESS", "--data-parallel-rpc-port", str(RPC_PORT)]  # fmt: skip
    command = main["args"][0] if _shell(main) else shlex.join([*main["command"], *main["args"]])
    main["command"], main["args"] = ["/bin/sh", "-c"], [f"exec {command} {' '.join(more)}"]


def _shell(main: Thing) -> bool:
    return main["command"][-1:] == ["-c"]


def _append(main: Thing, words: list[str]) -> None:
    args: list[Any] = main["args"]
    main["args"] = [f"{args[0]} {' '.join(words)}", *args[1:]] if _shell(main) else [*args, *words]
