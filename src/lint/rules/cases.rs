//! Every rule by its table: the manifest as people wrote it is found, and with the right value it is not.

use crate::lint::{Answer, Linter, Severity, all};

/// A worker that breaks no rule. Cases change words of it.
const WORKER: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata:
  name: vllm-worker
  namespace: nemo
spec:
  replicas: 1
  template:
    spec:
      nodeSelector: {node.kubernetes.io/instance-type: ml.p5en.48xlarge}
      containers:
      - name: worker
        image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1-efa
        command: [python3, -m, dynamo.vllm]
        args:
        - --model
        - /shared/nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16
        - --tensor-parallel-size
        - "8"
        - --enable-multimodal
        - --disaggregation-mode
        - decode
        - --mamba-cache-mode
        - align
        - --kv-transfer-config
        - '{"kv_connector":"NixlConnector","kv_role":"kv_consumer","kv_connector_extra_config":{"backends":["LIBFABRIC"],"kv_lease_duration":300}}'
        env:
        - {name: NCCL_SOCKET_IFNAME, value: "^lo,docker,veth,eni,pod-id-link0"}
        - {name: GLOO_SOCKET_IFNAME, value: eth0}
        - {name: DYN_REQUEST_PLANE, value: tcp}
        - {name: VLLM_SSM_CONV_STATE_LAYOUT, value: DS}
        - {name: VLLM_ENGINE_READY_TIMEOUT_S, value: "2500"}
        - {name: VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS, value: "1800"}
        startupProbe: {httpGet: {path: /live, port: 9090}, periodSeconds: 10, failureThreshold: 250}
        resources:
          requests: {cpu: "48", nvidia.com/gpu: "8", vpc.amazonaws.com/efa: "16"}
          limits: {nvidia.com/gpu: "8", vpc.amazonaws.com/efa: "16"}
        securityContext: {capabilities: {add: [IPC_LOCK]}}
        volumeMounts:
        - {name: shm, mountPath: /dev/shm}
      volumes:
      - {name: shm, emptyDir: {medium: Memory}}
"#;

/// The same engine over two nodes.
const GROUP: &str = r#"apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: ultra, namespace: nemo}
spec:
  leaderWorkerTemplate:
    size: 2
    restartPolicy: RecreateGroupAfterStart
    workerTemplate:
      spec:
        nodeSelector: {node.kubernetes.io/instance-type: p5en.48xlarge}
        containers:
        - name: worker
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1-efa
          command: [/bin/sh, -c]
          args:
          - exec python3 -m dynamo.vllm --model other/model --tensor-parallel-size 8 --nnodes 2
          env:
          - {name: NCCL_NET, value: Libfabric}
          - {name: NCCL_SOCKET_IFNAME, value: "^lo,docker,veth,eni,pod-id-link0"}
          resources:
            limits: {nvidia.com/gpu: "8", vpc.amazonaws.com/efa: "16"}
          securityContext: {capabilities: {add: [IPC_LOCK]}}
          volumeMounts: [{name: shm, mountPath: /dev/shm}]
        volumes: [{name: shm, emptyDir: {medium: Memory}}]
"#;

const FRONTEND: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata: {name: frontend, namespace: nemo}
spec:
  template:
    spec:
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - {weight: 100, preference: {matchExpressions: [{key: nemo.dev/role, operator: In, values: [system]}]}}
      containers:
      - {name: frontend, image: "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1-efa", command: [python3, -m, dynamo.frontend], args: [--http-port, "8000"]}
"#;

const ALPHA: &str = r#"apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: ultra, namespace: nemo}
spec:
  envs:
  - {name: NCCL_SOCKET_IFNAME, value: "^lo,docker,veth,eni,pod-id-link0"}
  services:
    VllmWorker:
      componentType: worker
      resources: {limits: {gpu: "8", custom: {vpc.amazonaws.com/efa: "16"}}}
      extraPodSpec:
        nodeSelector: {node.kubernetes.io/instance-type: p5en.48xlarge}
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1
          command: [python3, -m, dynamo.vllm]
          args: [--model, other/model]
          securityContext: {capabilities: {add: [IPC_LOCK]}}
"#;

const BETA: &str = r#"apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: ultra, namespace: nemo}
spec:
  components:
  - name: worker
    type: worker
    podTemplate:
      spec:
        nodeSelector: {node.kubernetes.io/instance-type: p5en.48xlarge}
        containers:
        - name: main
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1-efa
          command: [python3, -m, dynamo.vllm]
          args: [--model, other/model]
          env: [{name: NCCL_SOCKET_IFNAME, value: "^lo,docker,veth,eni,pod-id-link0"}]
          resources: {limits: {nvidia.com/gpu: "8", vpc.amazonaws.com/efa: "16"}}
          securityContext: {capabilities: {add: [IPC_LOCK]}}
"#;

const CLIQUES: &str = r#"apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: ultra, namespace: nemo}
spec:
  template:
    podCliqueScalingGroups: [{name: w, cliqueNames: [w-ldr, w-wkr]}]
    cliques:
    - name: w-ldr
      spec:
        replicas: 1
        podSpec:
          nodeSelector: {node.kubernetes.io/instance-type: p5en.48xlarge}
          containers:
          - name: main
            image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1-efa
            command: [python3, -m, dynamo.vllm]
            args: [--model, other/model]
            env: [{name: NCCL_NET, value: Libfabric}, {name: NCCL_SOCKET_IFNAME, value: "^lo,docker,veth,eni,pod-id-link0"}]
            resources: {limits: {nvidia.com/gpu: "8", vpc.amazonaws.com/efa: "16"}}
            securityContext: {capabilities: {add: [IPC_LOCK]}}
            volumeMounts: [{name: shm, mountPath: /dev/shm}]
          volumes: [{name: shm, emptyDir: {medium: Memory}}]
    - name: w-wkr
      spec: {replicas: 1, podSpec: {containers: [{name: main, image: "x/vllm-runtime:1.6.1"}]}}
"#;

const OPERATOR: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata: {name: operator, namespace: dynamo-system, labels: {helm.sh/chart: dynamo-operator-1.4.0}}
spec:
  template:
    spec:
      containers:
      - {name: manager, image: "nvcr.io/nvidia/ai-dynamo/kubernetes-operator:1.4.0"}
"#;

const QWEN: &str = r#"apiVersion: v1
kind: Pod
metadata: {name: qwen, namespace: nemo}
spec:
  containers:
  - name: main
    image: vllm/vllm-openai:v0.31.0
    command: [vllm, serve, Qwen/Qwen3-32B]
    args: [--max-model-len, "4096"]
"#;

const CLASS: &str = "---\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: nvidia}\nhandler: nvidia\n";

fn lint(text: &str) -> Answer {
    let mut linter = Linter::new().unwrap();
    linter.text("f.yaml", text).unwrap();
    linter.end()
}

fn changed(base: &str, from: &str, to: &str) -> String {
    assert!(base.contains(from), "{from:?} is not in the manifest");
    base.replacen(from, to, 1)
}

/// Rule, manifest, what is changed in it to what, and words of the finding: path, found, right.
type Case = (&'static str, &'static str, &'static str, &'static str, [&'static str; 3]);

const CASES: &[Case] = &[
    (
        "N16",
        WORKER,
        "      volumes:\n",
        "      volumes:\n      - {name: ib, hostPath: {path: /dev/infiniband}}\n",
        ["spec.template.spec.volumes[0].hostPath.path", "/dev/infiniband", "no such volume"],
    ),
    ("N17", GROUP, "nvidia.com/gpu: \"8\"", "nvidia.com/gpu: \"4\"", ["limits[\"nvidia.com/gpu\"]", "4 GPUs", "8"]),
    ("N17", GROUP, "vpc.amazonaws.com/efa: \"16\"", "vpc.amazonaws.com/efa: \"8\"", ["limits[\"vpc.amazonaws.com/efa\"]", "8 EFA adapters", "16"]),
    ("N17", CLIQUES, "nvidia.com/gpu: \"8\"", "nvidia.com/gpu: \"4\"", ["spec.template.cliques[0].spec.podSpec.containers[0]", "4 GPUs", "8"]),
    (
        "N18",
        WORKER,
        "requests: {cpu: \"48\", nvidia.com/gpu: \"8\", vpc.amazonaws.com/efa: \"16\"}",
        "requests: {cpu: \"48\", nvidia.com/gpu: \"8\", vpc.amazonaws.com/efa: \"32\"}",
        ["requests[\"vpc.amazonaws.com/efa\"]", "32 EFA adapters for 8 GPUs", "16 (p5en.48xlarge)"],
    ),
    ("N18", ALPHA, "vpc.amazonaws.com/efa: \"16\"", "vpc.amazonaws.com/efa: \"32\"", ["spec.services.VllmWorker.resources.limits.custom[\"vpc.amazonaws.com/efa\"]", "32", "16"]),
    ("N18", BETA, "vpc.amazonaws.com/efa: \"16\"", "vpc.amazonaws.com/efa: \"8\"", ["spec.components[0].podTemplate.spec.containers[0]", "8 EFA", "16"]),
    ("N24", WORKER, "^lo,docker,veth,eni,pod-id-link0", "^lo,docker,veth,eni", ["env[0].value", "^lo,docker,veth,eni", "^lo,docker,veth,eni,pod-id-link0"]),
    ("N24", ALPHA, "^lo,docker,veth,eni,pod-id-link0", "^lo,docker", ["spec.envs[0].value", "^lo,docker", "pod-id-link0"]),
    ("N25", WORKER, "GLOO_SOCKET_IFNAME, value: eth0", "GLOO_SOCKET_IFNAME, value: \"^lo,docker,veth\"", ["env[1].value", "^lo,docker", "eth0"]),
    ("N25", WORKER, "GLOO_SOCKET_IFNAME, value: eth0", "GLOO_SOCKET_IFNAME, value: lo", ["env[1].value", "lo", "eth0"]),
    ("N26", WORKER, "\"backends\":[\"LIBFABRIC\"],", "", ["args[10]", "no backends, so UCX", "LIBFABRIC"]),
    ("N26", WORKER, "[\"LIBFABRIC\"]", "[\"UCX\"]", ["args[10]", "[\"UCX\"]", "LIBFABRIC"]),
    ("N27", GROUP, "          - {name: NCCL_NET, value: Libfabric}\n", "", ["containers[0]", "NCCL_NET is not set", "Libfabric"]),
    ("N30", WORKER, ",\"kv_lease_duration\":300", "", ["args[10]", "so 30", "300"]),
    ("N30", WORKER, "\"kv_lease_duration\":300", "\"kv_lease_duration\":60", ["args[10]", "60", "300"]),
    ("N32", WORKER, "cpu: \"48\"", "cpu: \"96\"", ["requests.cpu", "96000m", "95690m"]),
    (
        "N33",
        FRONTEND,
        "      affinity:\n",
        "      nodeSelector: {node.kubernetes.io/instance-type: m5.2xlarge}\n      affinity:\n",
        ["nodeSelector[\"node.kubernetes.io/instance-type\"]", "a must", "preferred"],
    ),
    (
        "N33",
        WORKER,
        "      containers:\n",
        "      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {nvidia.com/dynamo-graph-deployment-name: ultra}}}]}}\n      containers:\n",
        ["labelSelector", "the frontend too", "only the engines"],
    ),
    ("N35", GROUP, "restartPolicy: RecreateGroupAfterStart", "restartPolicy: RecreateGroupOnPodRestart", ["restartPolicy", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart"]),
    ("N36", WORKER, "      containers:\n", "      runtimeClassName: nvidia\n      containers:\n", ["runtimeClassName", "RuntimeClass nvidia", "a document that makes it"]),
    (
        "N40",
        GROUP,
        "size: 2\n    restartPolicy: RecreateGroupAfterStart",
        "size: 1\n    restartPolicy: RecreateGroupOnPodRestart",
        ["restartPolicy", "RecreateGroupOnPodRestart", "None"],
    ),
    ("N41", WORKER, "  namespace: nemo\n", "", ["metadata", "no namespace", "namespace"]),
    ("N43", BETA, "vllm-runtime:1.6.1-efa", "vllm-runtime:1.3.1", ["apiVersion", "v1beta1 with Dynamo 1.3.1", "v1alpha1"]),
    ("N43", ALPHA, "nvidia.com/v1alpha1", "nvidia.com/v1beta1", ["spec.services", "v1beta1", "spec.components"]),
    ("N45", OPERATOR, "kubernetes-operator:1.4.0", "kubernetes-operator:1.3.1", ["image", "operator 1.3.1 under chart 1.4.0", "1.4.0"]),
    ("N50", WORKER, "failureThreshold: 250", "failureThreshold: 60", ["startupProbe", "600 s", "227 GB at 250 MB/s"]),
    (
        "N50",
        WORKER,
        "startupProbe: {httpGet: {path: /live, port: 9090}, periodSeconds: 10, failureThreshold: 250}",
        "livenessProbe: {httpGet: {path: /live, port: 9090}, periodSeconds: 5, failureThreshold: 5}",
        ["livenessProbe", "25 s without a startupProbe", "a startupProbe of 1816 s"],
    ),
    ("N51", WORKER, "value: \"2500\"", "value: \"1200\"", ["env[4].value", "VLLM_ENGINE_READY_TIMEOUT_S=1200; the probe allows 2500 s", "2500"]),
    ("N51", WORKER, "value: \"1800\"", "value: \"300\"", ["env[5].value", "=300", "1800"]),
    ("N54", WORKER, "BF16\n", "NVFP4\n", ["containers[0]", "VLLM_OMNI_USE_QUACK_FP8 is not set", "=0"]),
    ("N56", WORKER, "VLLM_SSM_CONV_STATE_LAYOUT, value: DS", "OTHER, value: DS", ["containers[0]", "not set", "DS"]),
    ("N56", WORKER, "        - align\n", "        - all\n", ["args[8]", "--mamba-cache-mode all", "align"]),
    ("N56", WORKER, "        - --enable-multimodal\n", "        - --no-enable-prefix-caching\n", ["args[4]", "--no-enable-prefix-caching", "no --no-enable"]),
    ("N58", QWEN, "[--max-model-len, \"4096\"]", "[--mamba-cache-mode, align]", ["args[1]", "--mamba-cache-mode for Qwen", "no --mamba-cache-mode"]),
    (
        "N60",
        WORKER,
        "        - --enable-multimodal\n",
        "        - --served-model-name\n        - nemotron-super-vl-nvfp4\n",
        ["args[5]", "nvfp4 in the served name, bf16 in the model", "BF16"],
    ),
    (
        "N85",
        WORKER,
        "        - --enable-multimodal\n",
        "        - --reasoning-parser\n        - nemotron_v3\n        - --reasoning-config\n        - '{\"reasoning_end_str\":\"</think>\"}'\n",
        ["args[7]", "nemotron_v3", "no --reasoning-config"],
    ),
    ("N87", WORKER, "vllm-runtime:1.6.1-efa", "vllm-runtime:1.4.0-efa", ["image", "vLLM 0.26.0", "vLLM 0.29.0 or later"]),
    ("N88", WORKER, "DYN_REQUEST_PLANE, value: tcp", "DYN_REQUEST_PLANE, value: nats", ["env[2].value", "nats", "tcp"]),
    ("encode-worker", WORKER, "- decode\n", "- encode\n", ["args[6]", "--disaggregation-mode encode for /shared/nvidia/NVIDIA-Nemotron", "no encode worker"]),
    ("encode-worker", WORKER, "- --enable-multimodal\n", "- --route-to-encoder\n", ["args[4]", "--route-to-encoder without", "--enable-mm-embeds"]),
    ("engine-flag", WORKER, "--enable-multimodal", "--enable-multi-modal", ["args[4]", "--enable-multi-modal", "--enable-multimodal"]),
    ("image-tag", WORKER, "vllm-runtime:1.6.1-efa", "vllm-runtime", ["image", "so latest", "version"]),
    ("image-tag", WORKER, "vllm-runtime:1.6.1-efa", "vllm-runtime:latest", ["image", "latest", "version"]),
    ("yaml-type", WORKER, "        - \"8\"\n", "        - 8\n", ["args[3]", "8", "\"8\""]),
    ("yaml-type", WORKER, "GLOO_SOCKET_IFNAME, value: eth0", "GLOO_SOCKET_IFNAME, value: y", ["env[1].value", "y", "\"y\""]),
    ("yaml-type", WORKER, "  namespace: nemo\n", "  namespace: n\n", ["metadata.namespace", "n", "\"n\""]),
    ("yaml-type", WORKER, "- name: worker\n", "- name: no\n", ["containers[0].name", "no", "\"no\""]),
    ("yaml-type", WORKER, "      containers:\n", "      tolerations: [{key: nvidia.com/gpu, value: true}]\n      containers:\n", ["tolerations[0].value", "true", "\"true\""]),
    ("ipc-lock", WORKER, "securityContext: {capabilities: {add: [IPC_LOCK]}}", "securityContext: {}", ["securityContext", "no IPC_LOCK", "IPC_LOCK"]),
    (
        "gpu-request",
        WORKER,
        "resources:\n          requests: {cpu: \"48\", nvidia.com/gpu: \"8\", vpc.amazonaws.com/efa: \"16\"}\n          limits: {nvidia.com/gpu: \"8\", vpc.amazonaws.com/efa: \"16\"}",
        "resources: {requests: {cpu: \"48\"}}",
        ["containers[0].resources", "an engine without a GPU", "nvidia.com/gpu: 8"],
    ),
    ("shared-memory", WORKER, "emptyDir: {medium: Memory}", "emptyDir: {}", ["volumeMounts", "/dev/shm", "Memory"]),
];

#[test]
fn what_is_right_breaks_no_rule() {
    for text in [WORKER, GROUP, FRONTEND, ALPHA, BETA, CLIQUES, OPERATOR, QWEN] {
        let answer = lint(text);
        assert_eq!((answer.documents, answer.findings.len()), (1, 0), "{text}\n{answer}");
    }
}

#[test]
fn what_people_wrote_is_found() {
    for (rule, base, from, to, [path, found, right]) in CASES {
        let answer = lint(&changed(base, from, to));
        let of_rule: Vec<_> = answer.findings.iter().filter(|finding| finding.rule == *rule).collect();
        let hit = of_rule.iter().any(|finding| finding.path.contains(path) && finding.found.contains(found) && finding.right.contains(right));
        assert!(hit, "{rule} with {to:?} for {from:?}:\n{answer}");
        assert!(of_rule.iter().all(|finding| finding.line.is_some_and(|line| line > 0) && finding.file == "f.yaml"), "{answer}");
    }
}

#[test]
fn a_worker_that_is_told_to_use_efa_and_asks_for_none_is_an_error() {
    let without = WORKER.replace(", vpc.amazonaws.com/efa: \"16\"", "");
    assert_ne!(without, WORKER);
    let told = changed(&without, "        - {name: GLOO_SOCKET_IFNAME", "        - {name: FI_PROVIDER, value: efa}\n        - {name: GLOO_SOCKET_IFNAME");
    let found = |text: &str| lint(text).findings.into_iter().find(|finding| finding.rule == "N18").map(|finding| (finding.severity, finding.found));
    assert_eq!(found(&told), Some((Severity::Error, "0 EFA adapters for 8 GPUs".to_owned())));
    assert_eq!(found(&without), None, "who does not use EFA needs none");
}

#[test]
fn numbers_of_any_size_are_looked_at() {
    const MOST: &str = "18446744073709551615";
    let probes = ["initialDelaySeconds: 18446744073709551610, periodSeconds: 10", "periodSeconds: 18446744073709551610", "periodSeconds: -1"];
    for probe in probes {
        lint(&changed(WORKER, "periodSeconds: 10", probe));
    }
    lint(&changed(WORKER, "failureThreshold: 250", &format!("failureThreshold: {MOST}")));
    let timeout = changed(WORKER, "periodSeconds: 10", &format!("periodSeconds: {MOST}"));
    lint(&changed(&timeout, "value: \"2500\"", &format!("value: \"{MOST}\"")));
    for amount in ["nvidia.com/gpu: \"8\"", "vpc.amazonaws.com/efa: \"16\"", "cpu: \"48\""] {
        let name = amount.split(':').next().unwrap();
        let most = WORKER.replace(amount, &format!("{name}: \"{MOST}\""));
        assert_ne!(most, WORKER);
        // Two of them, so that what a pod asks for in all is more than a number holds.
        let container = &most[most.find("      - name: worker").unwrap()..most.find("      volumes:").unwrap()];
        lint(&most.replace("      volumes:\n", &format!("{}      volumes:\n", container.replace("name: worker", "name: other"))));
    }
    lint(&changed(&GROUP.replace("\"8\"", &format!("\"{MOST}\"")), "size: 2", &format!("size: {MOST}")));
    lint(&CLIQUES.replace("replicas: 1", &format!("replicas: {MOST}")));
}

#[test]
fn a_plain_word_for_a_name_is_told_as_such() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y, namespace: n}\ndata: {A: yes, B: 8}\n";
    let answer = lint(text);
    assert!(answer.findings.iter().all(|finding| finding.rule == "yaml-type" && finding.document == "ConfigMap n/y" && finding.fixable), "{answer}");
    assert_eq!(answer.findings.len(), 4, "{answer}");
    let all = lint("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: y, namespace: n}, data: {A: yes}}\n");
    assert_eq!(all.findings.iter().filter(|finding| finding.rule == "yaml-type" && finding.document == "ConfigMap n/y").count(), 3, "{all}");
}

#[test]
fn every_rule_that_looks_at_manifests_has_a_case() {
    let missing: Vec<_> =
        all().filter(|rule| !matches!(rule.check, crate::lint::rule::Check::Live)).map(|rule| rule.id).filter(|id| !CASES.iter().any(|case| case.0 == *id)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn roles_are_compared_across_documents() {
    let other = WORKER.replace("name: vllm-worker", "name: prefill").replace("- decode", "- prefill").replace("\"kv_lease_duration\":300", "\"kv_lease_duration\":600");
    let answer = lint(&format!("{WORKER}---\n{other}"));
    assert_eq!(answer.findings.iter().map(|finding| (finding.rule.as_str(), finding.document.as_str())).collect::<Vec<_>>(), [("N30", "Deployment nemo/prefill")], "{answer}");
    assert_eq!(lint(&format!("{}{CLASS}", changed(WORKER, "      containers:\n", "      runtimeClassName: nvidia\n      containers:\n"))).findings, []);
}

#[test]
fn a_finding_names_line_and_column_of_the_field() {
    let answer = lint(&format!("# first\n---\n{}", changed(WORKER, "cpu: \"48\"", "cpu: \"96\"")));
    let [finding] = &answer.findings[..] else { panic!("{answer}") };
    assert_eq!((finding.line, finding.column), (Some(38), Some(22)), "{answer}");
    assert!(answer.to_string().starts_with("f.yaml:38: error N32: more CPU than a node allocates\n    Deployment nemo/vllm-worker, spec.template"), "{answer}");
    assert!(answer.to_string().ends_with("1 document looked at: 1 error, 0 warnings"), "{answer}");
}
