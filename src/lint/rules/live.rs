//! Stories that no manifest shows: `nemo explain` knows them by what the cluster says.

use crate::lint::finding::Severity;
use crate::lint::rule::{Check, Rule};

/// A rule without a look at manifests.
const fn live(id: &'static str, severity: Severity, title: &'static str, cause: &'static str, fix: &'static str) -> Rule {
    Rule { id, title, severity, cause, fix, check: Check::Live }
}

use Severity::{Error, Warning};

pub(in crate::lint) const RULES: &[Rule] = &[
    live(
        "N12",
        Error,
        "no node advertises enough EFA adapters",
        "The device plug-in for EFA does not run on the node, is not told of its instance type, or the pod asks for more adapters than there are.",
        "kubectl -n kube-system get daemonset aws-efa-k8s-device-plugin; kubectl get node NODE -o jsonpath='{.status.allocatable}'.",
    ),
    live(
        "N19",
        Error,
        "libfabric finds no EFA device in the container",
        "The container did not ask for vpc.amazonaws.com/efa, the device plug-in gave none, or the security group does not let the nodes speak to themselves.",
        "Look in that order: the pod's resources, the plug-in's DaemonSet, the security group.",
    ),
    live("N20", Error, "EFA's registration of memory fails", "The image has an EFA installer before 1.29.1 and an NCCL from 2.19 on.", "An image with a newer EFA installer."),
    live(
        "N22",
        Error,
        "EFA is there, and GPUDirect is not",
        "The kernel has neither efa_nv_peermem nor the dma-buf way (Linux 5.12 and a driver that offers it), or the plug-in does not use it: every byte goes through the memory of the host.",
        "lsmod on the node: efa_nv_peermem, gdrdrv; uname -r; and whether NCCL's log says GDRDMA behind `via NET/Libfabric`.",
    ),
    live(
        "N23",
        Warning,
        "a bandwidth floor without its message size",
        "Bus bandwidth grows with the size of the message: a healthy pair that reaches 487 GB/s at 16 GiB has 289 at 128 MiB, and fails a floor of 800 that names no size.",
        "Hold each size against what was published for the same instance type, number of nodes, collective and size; where there is nothing, use and traffic decide.",
    ),
    live(
        "N29",
        Error,
        "the KV cache is not moved: decode computes the prompt again",
        "Descriptors of a Mamba hybrid overflow; requests answer 200, EFA stands still, and every prompt is computed twice.",
        "Serve aggregated, or take an image in which it is corrected; watch the bytes that NIXL moves, not the answers.",
    ),
    live(
        "N31",
        Warning,
        "NIXL with pipeline parallelism on a Mamba hybrid",
        "Patched images let it start, and the text is then fluent and wrong.",
        "Compare greedy answers byte by byte with an engine of TP alone before any number counts.",
    ),
    live(
        "N86",
        Error,
        "tool calls come out wrong, in the stream only or always",
        "The parser of tool calls, or the one of reasoning beside it, is not the model's: the text looks right to who reads it, and what a program gets are tags, or arguments that are no JSON.",
        "Dynamo's own parsers (--dyn-tool-call-parser, --dyn-reasoning-parser) as the model's card names them; nemo test endpoint asks for a call in one piece and streamed.",
    ),
    live(
        "N34",
        Error,
        "half groups hold the GPUs",
        "LeaderWorkerSet places pods one by one: leaders of several groups run, their workers find no node, and none of them serves.",
        "Fewer replicas until every group is whole, or Grove with KAI, which place a group at once or not at all.",
    ),
    live(
        "N38",
        Error,
        "a name was looked up once, before it was there",
        "The program asks DNS or its environment for an address at start and does not ask again: `Invalid zmq path: tcp://:29550`, or a name that does not resolve.",
        "Start the pod again once the Service it names has an address: kubectl -n NAMESPACE delete pod POD.",
    ),
    live(
        "N42",
        Error,
        "the operator's webhook does not answer",
        "The operator's only pod is Ready before it listens, or is being replaced; until then every write of its objects is refused.",
        "Wait until `kubectl -n dynamo-system get endpointslices` shows an address that is ready, then run the same command.",
    ),
    live(
        "N44",
        Error,
        "objects cannot be read while the operator is down",
        "Their versions are converted by the operator's webhook, also for reading.",
        "Bring the operator back: kubectl -n dynamo-system get pods; nothing is lost, the objects are stored.",
    ),
    live(
        "N46",
        Error,
        "KAI's hook failed on a cluster with Kueue's topologies",
        "Its hook before installation moves topologies and races with those of Kueue.",
        "Install KAI with the hook off, and look that the release is deployed: helm -n kai-scheduler status kai-scheduler.",
    ),
    live(
        "N48",
        Error,
        "a run that must fail is tried again and again",
        "The Job retries whatever ended with an error, also what will end so each time; each try takes the GPUs for minutes.",
        "Delete the Job, correct the cause in its last log, then start it anew with backoffLimit: 0.",
    ),
    live(
        "N52",
        Warning,
        "the first requests wait for kernels that are being compiled",
        "Triton compiles Mamba's decode kernels at the first request of each size: minutes once, then never again.",
        "Send some requests of every size up to the highest concurrency before anything is measured.",
    ),
    live(
        "N55",
        Error,
        "the image's kernels may not be read by the user that it runs as",
        "FlashInfer's cubins belong to root and the container runs as another user: PermissionError when NVFP4 is loaded.",
        "An image in which they can be read, or runAsUser: 0 until there is one.",
    ),
    live(
        "N65",
        Error,
        "Lustre's ports are closed",
        "The client needs 988 and 1018 to 1023 in both directions; just after the rules were made it can take a minute.",
        "Allow them between the nodes' and the file system's security groups.",
    ),
    live(
        "image-pull",
        Error,
        "the image cannot be pulled",
        "It is not there, has no such architecture, or the node may not read the registry.",
        "nemo image list shows what is in ECR; nemo image push copies what is missing.",
    ),
    live(
        "out-of-memory",
        Error,
        "the container took more memory than it may",
        "The limit is lower than what loading takes, or the node itself ran out.",
        "A higher limit or none: the page cache of the weights counts against it.",
    ),
    live(
        "gpu-memory",
        Error,
        "the model does not fit into the GPUs' memory",
        "Weights, KV cache and CUDA graphs together are more than what is free.",
        "A smaller --max-model-len, more GPUs or a smaller precision; nemo plan says what fits.",
    ),
    live(
        "no-gpu",
        Error,
        "no node has so many GPUs free",
        "All are in use by other pods, the nodes have not joined, or the device plug-in does not run on them.",
        "kubectl describe nodes shows what is allocated; nemo cluster status shows whether the nodes have joined.",
    ),
    live(
        "taint",
        Error,
        "every node that fits refuses the pod",
        "The nodes have a taint that the pod does not tolerate.",
        "A toleration for the taint that is named, in the pod's template.",
    ),
    live(
        "crash",
        Error,
        "the container ends with an error, again and again",
        "What it wrote last is the best there is to know.",
        "Read the lines above; with their cause corrected, nemo apply starts it anew.",
    ),
];
