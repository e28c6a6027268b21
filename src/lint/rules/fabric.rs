//! Devices and networks: EFA, NCCL, Gloo, memory that RDMA pins, memory that ranks share.

use crate::config::{Figure, Instance};
use crate::lint::finding::Severity;
use crate::lint::known::{efa_of, gpus_of};
use crate::lint::path;
use crate::lint::rule::{Check, Found, Rule, Seen};
use crate::lint::workload::{Container, EFA, GPU, list};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        id: "N16",
        title: "/dev/infiniband of the host beside EFA devices",
        severity: Severity::Error,
        cause: "The host folder also shows devices that are no EFA (a B200 node has two of Mellanox's); libfabric's EFA provider then gives up, `fi_info -p efa` says -61, and NCCL goes on over TCP while everything looks well.",
        fix: "Take the hostPath and its mount out: the device plug-in gives the container its EFA devices.",
        check: Check::Pod(host_devices),
    },
    Rule {
        id: "N17",
        title: "a part of a node for an engine of several nodes",
        severity: Severity::Error,
        cause: "With a part of the network adapters EFA does not start in the pod and NCCL falls back to sockets without a word; with a part of the GPUs the first collective between nodes hangs.",
        fix: "Ask for the whole node: all its GPUs and all its EFA adapters.",
        check: Check::Pod(whole_nodes),
    },
    Rule {
        id: "N18",
        title: "more or fewer EFA adapters than the instance type has",
        severity: Severity::Error,
        cause: "The number per GPU differs by instance type (p5 and p5e 4, p5en 2, p6-b200 1): more than the node has and the pod stays Pending, fewer and a part of the network is idle.",
        fix: "Ask for what the node advertises: kubectl get node NODE -o jsonpath='{.status.allocatable}'.",
        check: Check::Pod(efa_count),
    },
    Rule {
        id: "N24",
        title: "NCCL may pick the interface of EKS Pod Identity",
        severity: Severity::Error,
        cause: "When NCCL falls back to sockets it takes the first interface that it is not told to leave alone; that of EKS Pod Identity (pod-id-link0) leads nowhere: `connect to 169.254.170.23 refused`.",
        fix: "Exclude it: NCCL_SOCKET_IFNAME=^lo,docker,veth,eni,pod-id-link0. And find out why there are sockets at all: EFA has failed before.",
        check: Check::Container(nccl_interfaces),
    },
    Rule {
        id: "N25",
        title: "Gloo is given no interface that other nodes can reach",
        severity: Severity::Error,
        cause: "GLOO_SOCKET_IFNAME takes names of interfaces; it does not know NCCL's ^list, and then falls back to loopback: `Gloo connectFullMesh failed … 127.0.0.1`.",
        fix: "Give the one interface of the pod's default route, such as eth0, or leave the variable away.",
        check: Check::Container(gloo_interface),
    },
    Rule {
        id: "N27",
        title: "NCCL may fall back to sockets without an error",
        severity: Severity::Warning,
        cause: "When the OFI plug-in does not load, NCCL takes its built-in sockets and the numbers are just low.",
        fix: "Pin the network: NCCL_NET=Libfabric (aws-ofi-nccl up to 1.11 calls it \"AWS Libfabric\"), so that a plug-in that does not load is an error.",
        check: Check::Pod(pinned_network),
    },
    Rule {
        id: "ipc-lock",
        title: "EFA without the right to pin memory",
        severity: Severity::Error,
        cause: "RDMA pins the memory that it reads and writes; without IPC_LOCK the limit of locked memory stands in its way and registration fails.",
        fix: "securityContext: {capabilities: {add: [\"IPC_LOCK\"]}} on the container that asks for EFA.",
        check: Check::Container(ipc_lock),
    },
    Rule {
        id: "gpu-request",
        title: "an engine that asks for no GPU",
        severity: Severity::Error,
        cause: "Without nvidia.com/gpu the device plug-in gives the container none, and the engine ends with `Failed to infer device type`; what took the request away (a patch, a template) took it from the scheduler, too.",
        fix: "resources: {limits: {nvidia.com/gpu: \"8\"}}, as many as its ranks are.",
        check: Check::Pod(gpu_request),
    },
    Rule {
        id: "shared-memory",
        title: "ranks of one engine without shared memory",
        severity: Severity::Error,
        cause: "The processes of an engine talk through /dev/shm, and a container gets 64 MiB of it: the engine ends with `No space left on device` or a bus error.",
        fix: "Mount a volume emptyDir {medium: Memory} at /dev/shm, of some GiB for each GPU.",
        check: Check::Pod(shared_memory),
    },
];

fn host_devices(seen: &Seen<'_>, found: &mut Found<'_>) {
    let pod = seen.pod;
    if pod.efa() == 0 {
        return;
    }
    for (index, volume) in list(&pod.spec["volumes"]).enumerate() {
        if let Some(host) = volume["hostPath"]["path"].as_str().filter(|host| host.starts_with("/dev/infiniband")) {
            let at = path::field(&path::item(&path::field(&pod.path, "volumes"), index), "hostPath");
            found.add(path::field(&at, "path"), host, format!("no such volume: {EFA} gives the devices"));
        }
    }
}

/// Does the engine reach over several nodes?
fn several_nodes(seen: &Seen<'_>) -> bool {
    let of_flags = |container: &Container<'_>| container.line.number(&["--nnodes"]).unwrap_or(1);
    seen.pod.nodes > 1 || seen.pod.containers.iter().any(|container| of_flags(container) > 1)
}

fn whole_nodes(seen: &Seen<'_>, found: &mut Found<'_>) {
    let pod = seen.pod;
    if !several_nodes(seen) || pod.gpus() == 0 {
        return;
    }
    let named = !pod.instance_types().is_empty();
    let types = found.known.instances_of(pod);
    // A type that the catalogue does not have, or not for sure, says nothing; no type at all, and eight GPUs are what every node for this has.
    if (types.is_empty() && named) || unsure(&types) {
        return;
    }
    let whole = types.iter().map(|instance| gpus_of(instance)).min().unwrap_or(8);
    for container in pod.containers.iter().filter(|container| container.gpus() > 0 && container.gpus() < whole) {
        found.add(container.at(GPU), format!("{} GPUs on each of several nodes", container.gpus()), whole.to_string());
    }
    let adapters = types.iter().map(|instance| efa_of(instance)).min().unwrap_or(0);
    for container in pod.containers.iter().filter(|container| container.gpus() == whole && container.efa() < adapters) {
        found.add(container.at(EFA), format!("{} EFA adapters on each of several nodes", container.efa()), adapters.to_string());
    }
}

/// Has nobody read at a source how many adapters one of the types has?
fn unsure(types: &[&Instance]) -> bool {
    types.iter().any(|instance| instance.efa.as_ref().is_some_and(Figure::unverified))
}

fn efa_count(seen: &Seen<'_>, found: &mut Found<'_>) {
    let pod = seen.pod;
    let types = found.known.instances_of(pod);
    if unsure(&types) {
        return;
    }
    let named = !pod.instance_types().is_empty();
    // One that is told to use EFA and gets no adapter does not even start to serve.
    let wants = |container: &&Container<'_>| container.gpus() > 0 && (container.efa() > 0 || container.var("FI_PROVIDER") == Some("efa"));
    for container in pod.containers.iter().filter(wants) {
        // A part of the GPUs has the same part of the adapters.
        let share = |instance: &&Instance| efa_of(instance).saturating_mul(container.gpus()).div_ceil(gpus_of(instance).max(1));
        let rights: Vec<u64> = types.iter().map(share).collect();
        let (asked, names) = (container.efa(), types.iter().map(|instance| instance.type_name.as_str()).collect::<Vec<_>>().join(", "));
        let Some(most) = rights.iter().max().copied() else { continue };
        if rights.contains(&asked) {
            continue;
        }
        if named || asked > most {
            let right = rights.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ");
            let of = format!("{asked} EFA adapters for {} GPUs", container.gpus());
            // Fewer than the node has is slow, and fits.
            if asked > 0 && asked < most && !several_nodes(seen) {
                found.warn(container.at(EFA), of, format!("{right} ({names})"))
            } else {
                found.add(container.at(EFA), of, format!("{right} ({names})"))
            };
        }
    }
}

fn nccl_interfaces(seen: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    const RIGHT: &str = "^lo,docker,veth,eni,pod-id-link0";
    if container.efa() == 0 {
        return;
    }
    let Some(variable) = container.env.get("NCCL_SOCKET_IFNAME") else {
        if several_nodes(seen) {
            found.warn(&container.path, "NCCL_SOCKET_IFNAME is not set", RIGHT);
        }
        return;
    };
    let Some(value) = variable.value else { return };
    let left_out = |value: &str| value.split(',').any(|name| !name.is_empty() && "pod-id-link0".starts_with(name));
    match value.strip_prefix('^') {
        Some(names) if !left_out(names.trim_start_matches('=')) => {
            found.add(&variable.path, value, format!("{value},pod-id-link0")).replace(value, format!("{value},pod-id-link0"))
        }
        None if left_out(value.trim_start_matches('=')) => found.add(&variable.path, value, RIGHT).replace(value, RIGHT),
        _ => {}
    }
}

fn gloo_interface(_: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    let Some((variable, value)) = container.env.get("GLOO_SOCKET_IFNAME").and_then(|variable| Some((variable, variable.value?))) else { return };
    if value.starts_with('^') || value.split(',').any(|name| name == "lo") || value.is_empty() {
        found.add(&variable.path, format!("{value:?}"), "the interface of the pod's default route, such as eth0");
    }
}

fn pinned_network(seen: &Seen<'_>, found: &mut Found<'_>) {
    for container in &seen.pod.containers {
        let validates = container.line.all.iter().any(|word| word.text.contains("_perf") || word.text.contains("nccl-tests"));
        if container.efa() == 0 || !(several_nodes(seen) || validates) {
            continue;
        }
        match container.env.get("NCCL_NET").map(|variable| (&variable.path, variable.value)) {
            None => {
                found.add(&container.path, "NCCL_NET is not set", "Libfabric");
            }
            Some((path, Some(value))) if ["socket", "ib"].contains(&value.to_lowercase().as_str()) => found.add(path, value, "Libfabric").replace(value, "Libfabric"),
            Some(_) => {}
        }
    }
}

fn ipc_lock(_: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    let security = &container.value["securityContext"];
    let added = list(&security["capabilities"]["add"]).any(|name| ["IPC_LOCK", "ALL", "SYS_ADMIN"].iter().any(|right| name == right));
    if container.efa() > 0 && !added && security["privileged"] != true {
        found.add(path::field(&container.path, "securityContext"), "no IPC_LOCK", "capabilities: {add: [\"IPC_LOCK\"]}");
    }
}

fn gpu_request(seen: &Seen<'_>, found: &mut Found<'_>) {
    let pod = seen.pod;
    // A claim of dynamic resource allocation gives devices, too.
    if list(&pod.spec["resourceClaims"]).next().is_some() {
        return;
    }
    let without = |container: &&Container<'_>| container.line.engine() && container.gpus() == 0 && container.var("NVIDIA_VISIBLE_DEVICES").is_none();
    for container in pod.containers.iter().filter(without) {
        let ranks = container.line.number(&["--tensor-parallel-size", "-tp"]).unwrap_or(1);
        // vLLM for CPUs has one rank as a rule, and asks for no node of GPUs.
        if ranks > 1 || container.efa() > 0 || !pod.instance_types().is_empty() {
            found.add(path::field(&container.path, "resources"), "an engine without a GPU", format!("{GPU}: {ranks}"));
        }
    }
}

fn shared_memory(seen: &Seen<'_>, found: &mut Found<'_>) {
    let pod = seen.pod;
    let none = pod.shared_memory.as_deref() == Some("0");
    if pod.operated && !none {
        return;
    }
    let in_memory = |name: &str| list(&pod.spec["volumes"]).any(|volume| volume["name"] == name && (volume["emptyDir"]["medium"] == "Memory" || volume.get("hostPath").is_some()));
    for container in pod.containers.iter().filter(|container| container.gpus() > 1) {
        let mounted = list(&container.value["volumeMounts"]).any(|mount| mount["mountPath"] == "/dev/shm" && mount["name"].as_str().is_some_and(in_memory));
        if !mounted && pod.spec["hostIPC"] != true {
            found.add(path::field(&container.path, "volumeMounts"), "nothing in memory at /dev/shm", "a volume emptyDir {medium: Memory} at /dev/shm");
        }
    }
}
