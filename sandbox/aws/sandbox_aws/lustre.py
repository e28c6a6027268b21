"""Whether a node can mount a file system: `GET /_sandbox/fsx-mount`, asked by the node's CSI driver.

Query: `volume` (fs-…), `dnsname`, `mountname`, `zone` of the node, `cluster`, and where known `nodegroup` and `target`. Answer: {"ok": true,
"path_id": fs-…, "warning"?} or {"error": what aws-fsx-csi-driver and mount.lustre say}. Texts: FSx guide "Troubleshooting file system
mount issues", Lustre's mount_lustre.c, and public reports (bottlerocket issue 3459 for closed ports).
"""

from __future__ import annotations

from typing import Any

from moto.eks.models import eks_backends
from moto.fsx.models import fsx_backends

from . import clock, ec2, launch
from .config import SETTINGS
from .eks.nodegroups import wanted_of

PORTS = (988, 1018, 1019, 1020, 1021, 1022, 1023)


def _said(source: str, target: str, status: int, output: str) -> dict[str, str]:
    return {
        "error": f'Could not mount "{source}" at "{target}": mount failed: exit status {status}\nMounting command: mount\n'
        f"Mounting arguments: -t lustre -o flock {source} {target}\nOutput: {output}"
    }


def judge(query: dict[str, str]) -> dict[str, Any]:
    region = query.get("region", SETTINGS.region)
    source, target = f"{query.get('dnsname', '')}@tcp:/{query.get('mountname', '')}", query.get("target", "TARGET")
    system = fsx_backends[SETTINGS.account][region].file_systems.get(query.get("volume", ""))
    helper = "This mount helper should only be invoked via the mount (8) command,\ne.g. mount -t lustre dev dir"
    cannot_resolve = _said(source, target, 22, f"mount.lustre: Can't parse NID '{source}'\n\n{helper}")
    failed = f"mount.lustre: mount {source} at {target} failed: "
    silent = _said(source, target, 5, failed + "Input/output error\nIs the MGS running?")
    if system is None or query.get("dnsname") != system.dns_name or not _resolves(region, system.vpc_id):
        return cannot_resolve
    cluster = eks_backends[SETTINGS.account][region].clusters.get(query.get("cluster", ""))
    if cluster is not None and (cluster.resources_vpc_config or {}).get("vpcId") != system.vpc_id:
        return cannot_resolve  # another VPC does not know the private name
    if system.life.operation == "CreateFileSystem" and system.life.state() != "AVAILABLE" or system.life.state() == "DELETING":
        return silent
    if cluster is not None and not _reachable(region, system, cluster, query):
        return silent
    if query.get("mountname") != system.mount_name:
        text = "No such file or directory\nIs the MGS specification correct?\nIs the filesystem name correct?\n"
        return _said(source, target, 2, failed + text + "If upgrading, is the copied client log valid? (see upgrade docs)")
    zone = ec2.subnets(region)[system.subnet_ids[0]].availability_zone
    answer = {"ok": True, "path_id": system.file_system_id}
    if query.get("zone") and query["zone"] != zone:
        answer["warning"] = f"the file system is in {zone}: it mounts, but every byte crosses zones"
    return answer


def _resolves(region: str, vpc_id: str) -> bool:
    vpc = ec2.backend(region).vpcs.get(vpc_id)
    return vpc is not None and all(str(getattr(vpc, name)).lower() == "true" for name in ("enable_dns_support", "enable_dns_hostnames"))


def _reachable(region: str, system: Any, cluster: Any, query: dict[str, str]) -> bool:
    """Every Lustre port is open for at least one of the node's security groups, or for its subnet."""
    groups, addresses = [], []
    for group in cluster.nodegroups.values():
        if query.get("nodegroup") in (None, "", group.nodegroup_name):
            wanted = wanted_of(region, cluster, group)
            usable = launch.usable_subnets(wanted)
            groups += wanted.groups
            addresses += [ec2.first_address(region, subnet) for subnet in usable]
    known = ec2.backend(region).groups.get(system.vpc_id, {})
    rules = [rule for ident in system.security_group_ids if ident in known for rule in known[ident].ingress_rules]
    return all(any(ec2.allows(rule, port, groups, addresses) for rule in rules) for port in PORTS)


def install(admin: Any) -> None:
    def mount(query: dict[str, str], body: Any) -> Any:
        with clock.world().lock:
            clock.world().agenda.run()
            return judge(query)

    admin.route("GET", "/fsx-mount", mount)
