"""The parts and their command lines. Everything that is not the cluster's own listens at 10.0.0.1 or behind it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from .paths import ACCESS_KEY, ACCOUNT, BIN, CACHE, CHARTS, ECR, EKS_IMAGES, INSIDE, NAMES, NODE_KEY, NODE_SECRET, REGION, REGISTRIES, REPO, SANDBOX, SECRET_KEY, Wrong, World
from .processes import Part, answers, listens

ADDRESS = "10.0.0.1"  # of everything that has a name
API = "10.0.0.3:6443"  # where the API server really listens; 10.0.0.1:6443 is open only while a cluster exists
PUSH = {"upstream": 18096, "ecr": 18097, "tokens": 18095}
CONTROL = 5006  # the world's own port on loopback: sign-in, mounts


@dataclass(frozen=True)
class Options:
    """What `up` was told, and what setup has made."""

    speed: float = 10.0
    aiperf: str = "installed"  # what new file systems hold: installed, wheels, none
    faults: str = ""
    pythons: dict[str, str] = field(default_factory=dict)  # part -> its interpreter
    store: str = ""  # storage of the upstream registry: images, charts, and which host has what
    kube: str = ""  # the binary of all cluster parts
    wheels: str = ""  # folder of aiperf's wheels and of its installation


def output(*command: str, cwd: Path = SANDBOX) -> str:
    """Last line of what a part's own setup prints. scripts/setup has made it all before, so that this is quick."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        raise Wrong(f"{' '.join(command)} failed:\n{done.stderr.strip()[-2000:]}\nRun scripts/setup to see it at length.")
    return done.stdout.strip().splitlines()[-1]


def found() -> dict[str, object]:
    """What setup has made, for Options."""
    pythons = {name: output(str(SANDBOX / "venv.sh"), name, f"{name}/requirements.txt") + "/bin/python" for name in ("images", "hub")}
    pythons["aws"] = output(str(SANDBOX / "aws" / "setup.sh")) + "/bin/python"
    lock = hashlib.sha256((REPO / "configs" / "aiperf-0.13.0.lock").read_bytes()).hexdigest()
    kube = BIN / f"sandbox-kube-{output(str(SANDBOX / 'kube' / 'hash.sh'))}"
    if not kube.exists():
        raise Wrong(f"{kube} is missing. Run scripts/setup")
    return {
        "kube": str(kube),
        "pythons": pythons,
        "store": output(pythons["images"], "-m", "images", "store", cwd=SANDBOX / "images"),
        "wheels": str(CACHE / "aiperf" / lock[:12]),
    }


def write_settings(world: World, options: Options) -> None:
    """Files that the parts read: names, the front's hosts, the emulator's keys, the nodes' registries."""
    world.write("hosts.json", {name: ADDRESS for name in NAMES})
    (world.folder / "pods").mkdir(parents=True, exist_ok=True)  # what the sandbox's programs in pods are told (../../dynamo/engine/world.py)
    (world.folder / "pods" / "speed").write_text(str(options.speed))
    hosts: dict[str, list[str]] = json.loads(Path(options.store, "hosts.json").read_text())
    front: dict[str, object] = {ECR: {"proxy": f"http://{ADDRESS}:5005"}}
    tokens = {path: f"http://127.0.0.1:{PUSH['tokens']}" for path in ("/token", "/auth/token", "/proxy_auth")}
    for name in (*REGISTRIES, EKS_IMAGES):
        known = hosts.get("docker.io" if name.endswith("docker.io") else name, [])
        front[name] = {"proxy": f"http://127.0.0.1:{PUSH['upstream']}", "paths": tokens, "only": known}
    for name in CHARTS:
        front[name] = {"files": f"{options.store}/charts"}
    world.write("front.json", front)
    (world.folder / "keys.toml").write_text(
        f'[{ACCESS_KEY}]\nsecret = "{SECRET_KEY}"\narn = "arn:aws:iam::{ACCOUNT}:user/sandbox"\n'
        f'[{NODE_KEY}]\nsecret = "{NODE_SECRET}"\narn = "arn:aws:sts::{ACCOUNT}:assumed-role/sandbox-nodes/i-0123456789abcdef0"\n'
    )


def outer_parts(world: World, options: Options) -> list[Part]:
    """All but the cluster, in the order in which they start."""
    inside, logs = INSIDE, world.logs
    hook = str(SANDBOX / "world" / "hook")
    registry = {"OTEL_TRACES_EXPORTER": "none", "REGISTRY_LOG_ACCESSLOG_DISABLED": "true"}
    aws = Part(
        "aws",
        [
            options.pythons["aws"], "-m", "sandbox_aws", "--host", ADDRESS, "--port", "5005", "--factor", str(options.speed), "--account", ACCOUNT,
            "--keys", f"{inside}/keys.toml", "--verify", "true", "--eks-endpoint", f"https://{ADDRESS}:6443", "--eks-ca", f"{inside}/ca.crt",
            "--hook-timeout", "180", "--hook-nodes-start", hook, "--hook-nodes-stop", hook, "--hook-addon", hook, "--hook-cluster", hook,
            "--registry", ECR, "--registry-backend", f"http://127.0.0.1:{PUSH['ecr']}", "--journal", f"{inside}/journal.jsonl",
            *(["--faults", options.faults] if options.faults else []),
        ],
        logs, {"SANDBOX_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true"}, SANDBOX / "aws",
        answers(f"http://{ADDRESS}:5005/_sandbox/health"),
    )  # fmt: skip
    hub = Part(
        "hub",
        [options.pythons["hub"], "-m", "hub", "--state", str(CACHE / "hub"), "--host", ADDRESS, "--cdn-origin", "http://cdn.hub.sandbox:18091", "--factor", str(options.speed)],
        logs, {}, SANDBOX / "hub", listens(ADDRESS, 18090),
    )  # fmt: skip
    tokens = Part(
        "tokens", [options.pythons["images"], "-m", "images.token_server", "images.toml", "--state", f"{inside}/tokens"], logs, {}, SANDBOX / "images",
        listens("127.0.0.1", PUSH["tokens"]),
    )  # fmt: skip
    upstream = Part(
        "upstream", ["docker-registry", "serve", str(SANDBOX / "images" / "upstream.yml")], logs,
        {**registry, "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": f"{options.store}/registry", "REGISTRY_AUTH_TOKEN_ROOTCERTBUNDLE": f"{inside}/tokens/token.crt"},
        None, listens("127.0.0.1", PUSH["upstream"]),
    )  # fmt: skip
    ecr = Part(
        "ecr", ["docker-registry", "serve", str(SANDBOX / "world" / "ecr.yml")], logs,
        {**registry, "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": f"{inside}/ecr"}, None, listens("127.0.0.1", PUSH["ecr"]),
    )  # fmt: skip
    front = Part(
        "front", [options.kube, "front", "-listen", f"{ADDRESS}:443", "-dns", "10.0.0.2:53", "-names", f"{inside}/hosts.json", "-config", f"{inside}/front.json", "-ca", f"{inside}/ca"],
        logs, {}, None, listens(ADDRESS, 443),
    )  # fmt: skip
    return [aws, hub, tokens, upstream, ecr, front]


def way_in(world: World, name: str, port: int) -> Part:
    """A unix socket in the sandbox's folder that leads to one port of the world."""
    return Part(f"in-{name}", ["socat", f"UNIX-LISTEN:{INSIDE}/{name}.sock,fork,unlink-early", f"TCP:{ADDRESS}:{port}"], world.logs)


def control_plane(world: World, options: Options) -> list[Part]:
    """etcd, API server, controllers, scheduler and cluster network, in the order in which they need each other."""
    inside, logs, url = INSIDE, world.logs, "http://127.0.0.1:12379"
    ca, api = f"{inside}/ca.crt", f"{inside}/api"
    aggregator = [f"--requestheader-client-ca-file={ca}", f"--proxy-client-cert-file={inside}/admin.crt", f"--proxy-client-key-file={inside}/admin.key", "--requestheader-allowed-names=admin"]
    etcd = Part(
        "etcd",
        [options.kube, "etcd", "--data-dir", f"{inside}/etcd", "--listen-client-urls", url, "--advertise-client-urls", url,
         "--listen-peer-urls", "http://127.0.0.1:12380", "--unsafe-no-fsync", "--log-level", "warn"],
        logs, {}, None, answers(f"{url}/health"),
    )  # fmt: skip
    host, port = API.split(":")
    server = Part(
        "kube-apiserver",
        [options.kube, "kube-apiserver", f"--etcd-servers={url}", f"--secure-port={port}", f"--bind-address={host}", f"--advertise-address={ADDRESS}",
         "--service-cluster-ip-range=10.100.0.0/16", "--authorization-mode=RBAC", f"--client-ca-file={ca}", "--enable-aggregator-routing=true",
         f"--tls-cert-file={api}.crt", f"--tls-private-key-file={api}.key", f"--service-account-key-file={inside}/sa.key", f"--service-account-signing-key-file={inside}/sa.key",
         "--service-account-issuer=https://kubernetes.default.svc", "--allow-privileged", "--kubelet-preferred-address-types=InternalIP", *aggregator,
         f"--authentication-token-webhook-config-file={inside}/signin.yaml", "--authentication-token-webhook-version=v1", "--authentication-token-webhook-cache-ttl=2s",
         f"--audit-policy-file={SANDBOX}/world/audit.yaml", f"--audit-log-path={inside}/audit.log"],
        logs,
    )  # fmt: skip
    controllers = Part(
        "kube-controller-manager",
        [options.kube, "kube-controller-manager", f"--kubeconfig={inside}/kubeconfig", "--bind-address=127.0.0.1", f"--service-account-private-key-file={inside}/sa.key",
         f"--root-ca-file={ca}", "--use-service-account-credentials", "--leader-elect=false", "--pvclaimbinder-sync-period=1s", "--node-monitor-grace-period=5m",
         "--controllers=*,-nodeipam,-cloud-node-lifecycle"],
        logs, {}, None, listens("127.0.0.1", 10257),
    )  # fmt: skip
    scheduler = Part(
        "kube-scheduler", [options.kube, "kube-scheduler", f"--kubeconfig={inside}/kubeconfig", "--bind-address=127.0.0.1", "--leader-elect=false"],
        logs, {}, None, listens("127.0.0.1", 10259),
    )  # fmt: skip
    net = Part(
        "net", [options.kube, "net", "-hosts", f"{inside}/hosts.json", "-gate", "kube-system/kube-dns", "-aws", f"http://{ADDRESS}:5005"], logs, {"KUBECONFIG": f"{inside}/kubeconfig"}, None,
        listens("10.100.0.10", 53),
    )  # fmt: skip
    return [etcd, server, controllers, scheduler, net]
