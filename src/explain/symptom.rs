//! Symptoms by the words of logs, events and conditions.

/// A rule that was recognised, and the line that told.
#[derive(Debug, Clone, PartialEq)]
pub struct Symptom {
    /// Id of the rule: `lint::rule` has cause and remedy.
    pub rule: &'static str,
    /// The words that told, cut to one line.
    pub line: String,
}

/// What a rule is known by: one of these lists of words, all of them in one line.
struct Mark {
    rule: &'static str,
    words: &'static [&'static [&'static str]],
}

const fn mark(rule: &'static str, words: &'static [&'static [&'static str]]) -> Mark {
    Mark { rule, words }
}

/// What stands further up is nearer to the cause: an engine that runs out of time has often said before why.
const MARKS: &[Mark] = &[
    mark("N36", &[&["RuntimeClass", "nvidia", "not found"]]),
    mark(
        "N42",
        &[&["failed calling webhook", "connection refused"], &["failed calling webhook", "no endpoints available"], &["failed calling webhook", "context deadline exceeded"]],
    ),
    mark("N44", &[&["conversion webhook for", "failed"]]),
    mark("N45", &[&["flag provided but not defined"]]),
    mark("N46", &[&["topology-migration"]]),
    mark("N55", &[&["PermissionError", "flashinfer"], &["Permission denied", "cubin"]]),
    mark("N65", &[&["do not permit Lustre LNET traffic"]]),
    mark("N16", &[&["fi_info", "-61"]]),
    mark("N20", &[&["register_rail_mr_buffer", "-22"]]),
    mark("N19", &[&["fi_getinfo", "No data available"]]),
    mark("N24", &[&["169.254.170.23"], &["NET/Socket", "pod-id-link0"]]),
    mark("N25", &[&["Gloo connectFullMesh"], &["ActorHandleNotFoundError"]]),
    mark("N26", &[&["Backend UCX was instantiated"]]),
    mark("N29", &[&["makeXferReq", "out of range"]]),
    mark("N38", &[&["Invalid zmq path"], &["Temporary failure in name resolution"], &["failed to lookup address information"], &["Name or service not known"]]),
    mark("N56", &[&["ybrid", "KV cache", "not supported"], &["Hybrid KV cache manager is disabled but"]]),
    mark("N51", &[&["RPC call to", "timed out"], &["VLLM_ENGINE_READY_TIMEOUT_S"], &["Timed out waiting for engine"]]),
    mark("N87", &[&["Model architectures", "not supported"], &["\"auto\" tool choice requires --enable-auto-tool-choice"]]),
    mark("engine-flag", &[&["unrecognized arguments"], &["invalid choice:"]]),
    mark("gpu-memory", &[&["CUDA out of memory"], &["No available memory for the cache blocks"], &["Free memory on device", "is less than desired GPU memory utilization"]]),
    mark("out-of-memory", &[&["OOMKilled"], &["out of memory"]]),
    mark("image-pull", &[&["ErrImagePull"], &["ImagePullBackOff"], &["Failed to pull image"], &["InvalidImageName"], &["image", "cannot be pulled"]]),
    mark("N33", &[&["anti-affinity rules"]]),
    mark("N12", &[&["Insufficient vpc.amazonaws.com/efa"]]),
    mark("no-gpu", &[&["Insufficient nvidia.com/gpu"]]),
    mark("N32", &[&["Insufficient cpu"]]),
    mark("taint", &[&["untolerated taint"]]),
    mark("N48", &[&["BackoffLimitExceeded"], &["reached the specified backoff limit"]]),
    mark("N50", &[&["failed startup probe, will be restarted"]]),
    mark("N52", &[&["JIT compilation during inference"], &["Triton", "JIT", "compil"]]),
    mark("N31", &[&["NixlConnector", "pipeline_parallel_size=2"], &["NixlConnector", "pipeline_parallel_size=4"]]),
];

/// The symptom that these lines show, the one nearest to a cause; none if nobody has told of such words.
pub fn recognise<'a>(lines: impl IntoIterator<Item = &'a str> + Clone) -> Option<Symptom> {
    MARKS.iter().find_map(|mark| {
        let tells = |line: &&str| mark.words.iter().any(|words| words.iter().all(|word| line.contains(word)));
        let line = lines.clone().into_iter().find(tells)?;
        Some(Symptom { rule: mark.rule, line: shortened(line) })
    })
}

/// The line without what surrounds it, and not without end.
fn shortened(line: &str) -> String {
    const MOST: usize = 300;
    let line = line.trim();
    if line.chars().count() <= MOST { line.to_owned() } else { format!("{}…", line.chars().take(MOST).collect::<String>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words as they really come, and the rule that they mean.
    const SEEN: &[(&str, &str)] = &[
        ("N24", "vllm-worker-0:412:598 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 169.254.170.23<51234> failed : Connection refused"),
        ("N24", "vllm-worker-0:412:598 [0] NCCL INFO NET/Socket : Using [0]pod-id-link0:169.254.170.23<0> [1]eth0:10.1.2.3<0>"),
        ("N25", "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error, remote 127.0.0.1"),
        ("N25", "ray.exceptions.ActorHandleNotFoundError: Actor handle not found for ac19..."),
        ("N26", "2026-08-11 10:02:11 NIXL INFO _api.py:361 Backend UCX was instantiated"),
        ("N29", "E1201 10:02:11.123 nixl_agent.cpp:601] makeXferReq: local index out of range at index 4096"),
        ("N31", "INFO core.py:93] Initializing a V1 LLM engine (v0.26.0) with config: tensor_parallel_size=8, pipeline_parallel_size=2, kv_connector=NixlConnector"),
        ("N36", "Error creating: pods \"ultra-0-worker-ldr-0\" is forbidden: pod rejected: RuntimeClass \"nvidia\" not found"),
        ("N38", "zmq.error.ZMQError: Invalid zmq path: tcp://:29550"),
        ("N38", "nats: IO error: failed to lookup address information: Temporary failure in name resolution"),
        (
            "N42",
            "Internal error occurred: failed calling webhook \"mdynamographdeployment.kb.io\": failed to call webhook: Post \"https://dynamo-webhook.dynamo-system.svc:443/mutate?timeout=10s\": dial tcp 10.100.7.7:443: connect: connection refused",
        ),
        (
            "N44",
            "conversion webhook for nvidia.com/v1alpha1, Kind=DynamoGraphDeployment failed: Post \"https://dynamo-webhook.dynamo-system.svc:443/convert?timeout=30s\": no endpoints available for service \"dynamo-webhook\"",
        ),
        ("N45", "flag provided but not defined: -operator-image"),
        ("N46", "Error: INSTALLATION FAILED: failed pre-install: job topology-migration failed: BackoffLimitExceeded"),
        ("N48", "Job has reached the specified backoff limit"),
        ("N50", "Killing: Container worker failed startup probe, will be restarted"),
        ("N51", "TimeoutError: RPC call to execute_model timed out."),
        ("N52", "WARNING jit_monitor.py:103] Triton kernel JIT compilation during inference: _chunk_scan_fwd_kernel"),
        ("N55", "PermissionError: [Errno 13] Permission denied: '/usr/local/lib/python3.12/dist-packages/flashinfer_cubin/cubins/fmha.cubin'"),
        ("N19", "NET/OFI nccl_ofi_ofiutils_get_providers:169 NCCL WARN OFI fi_getinfo() call failed: No data available"),
        ("N65", "MountVolume.SetUp failed: mount.lustre: the security groups do not permit Lustre LNET traffic on port 988"),
        ("N87", "ValueError: Model architectures ['NemotronH_Omni_Reasoning_V3'] are not supported for now."),
        ("engine-flag", "__main__.py: error: unrecognized arguments: --tool-call-parser qwen3_coder"),
        ("image-pull", "Back-off pulling image \"123456789012.dkr.ecr.us-east-2.amazonaws.com/x:1\": ErrImagePull: not found"),
        ("out-of-memory", "exit code 137, OOMKilled"),
        ("gpu-memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139.81 GiB"),
        ("N12", "0/2 nodes are available: 2 Insufficient vpc.amazonaws.com/efa. preemption: 0/2 nodes are available"),
        ("no-gpu", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."),
        ("N32", "0/2 nodes are available: 2 Insufficient cpu."),
        ("N33", "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."),
        ("taint", "0/1 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: }."),
    ];

    #[test]
    fn words_that_people_have_seen_are_recognised() {
        for (rule, line) in SEEN {
            assert_eq!(recognise([*line]).map(|symptom| symptom.rule), Some(*rule), "{line}");
            assert!(crate::lint::rule(rule).is_some(), "{rule} is no rule");
        }
        assert_eq!(
            recognise(["INFO: Application startup complete.", "loading weights took 57 s", "Unhealthy: Startup probe failed: HTTP probe failed with statuscode: 503", ""]),
            None
        );
    }

    #[test]
    fn what_is_nearer_to_the_cause_wins() {
        let lines = ["TimeoutError: RPC call to execute_model timed out.", "socketStartConnect: Connect to 169.254.170.23<1> failed : Connection refused", "Startup probe failed"];
        assert_eq!(recognise(lines).unwrap().rule, "N24");
    }

    #[test]
    fn every_mark_belongs_to_a_rule() {
        for mark in MARKS {
            assert!(crate::lint::rule(mark.rule).is_some(), "{}", mark.rule);
        }
    }
}
