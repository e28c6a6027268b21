//! Every rendered document, from values as a deployment of the default settings would have them.

use nemo::render::{
    Bench, ChartValues, HelmJob, Installer, Rendered, SHARED, Serving, Storage, Weights, bench, chart_values, helm_job, installer, namespaces, serving, storage, weights,
};

fn serving_values() -> Serving {
    Serving {
        namespace: "nemo".into(),
        dynamo_namespace: "nemo".into(),
        frontend: "frontend",
        worker: "vllm-worker",
        port: 8000,
        replicas: 1,
        image: "123456789012.dkr.ecr.us-east-2.amazonaws.com/nemo/vllm-runtime@sha256:00000000000000000000000000000000000000000000000000000000000000aa".into(),
        instance_type: "p5en.48xlarge".into(),
        gpus: 8,
        efa: 16,
        claim: "shared".into(),
        model_path: "models/nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16/0123456789abcdef0123456789abcdef01234567".into(),
        served_model_name: "nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16".into(),
        tensor_parallel_size: 8,
        max_model_len: 262_144,
        gpu_memory_utilization: 0.9,
        kv_cache_dtype: "auto".into(),
        image_limit: Some(r#"{"image":8}"#.into()),
        mamba_ssm_cache_dtype: Some("float32".into()),
        reasoning_parser: Some("nemotron_v3".into()),
        dyn_reasoning_parser: Some("nemotron3".into()),
        dyn_tool_call_parser: Some("qwen3_coder".into()),
        weights_gb: 227,
        read_mb_s: 292,
        engine_start_s: 900,
        startup_s: 2454,
        startup_failures: 491,
    }
}

/// All that is applied, namespaces first.
pub(crate) fn everything() -> Vec<Rendered> {
    let mut files = storage(&Storage {
        namespace: "nemo".into(),
        volume: "nemo-shared".into(),
        claim: "shared".into(),
        capacity_gib: 1200,
        file_system_id: "fs-0123456789abcdef0".into(),
        dns_name: "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com".into(),
        mount_name: "y".into(),
    })
    .unwrap();
    files.extend(serving(&serving_values()).unwrap());
    let job = Bench {
        namespace: "nemo".into(),
        name: "bench-0123456789abcdef".into(),
        agent_image: "123456789012.dkr.ecr.us-east-2.amazonaws.com/nemo/agent@sha256:00000000000000000000000000000000000000000000000000000000000000bb".into(),
        runtime_image: serving_values().image,
        claim: "shared".into(),
        shared: SHARED,
        plan: r#"{"run": "0123456789abcdef"}"#.into(),
    };
    files.extend(bench(&job).unwrap());
    files.extend(platform());
    let fetch = Weights {
        namespace: "nemo".into(),
        name: "weights".into(),
        image: "123456789012.dkr.ecr.us-east-2.amazonaws.com/nemo/agent@sha256:00000000000000000000000000000000000000000000000000000000000000bb".into(),
        workers: 2,
        claim: "shared".into(),
        file_system_id: "fs-0123456789abcdef0".into(),
        secret: "hub-token".into(),
        plan: r#"{"repository": "nvidia/x"}"#.into(),
    };
    files.extend(weights(&fetch).unwrap());
    files
}

/// What helm gets for this chart.
pub(crate) fn values_of(chart: &str) -> Rendered {
    let repository = format!("123456789012.dkr.ecr.us-east-2.amazonaws.com/nemo/image-of-{chart}");
    chart_values(chart, &ChartValues { repository, tag: "v1".into(), instance_type: "p5en.48xlarge".into() }).unwrap()
}

fn platform() -> Vec<Rendered> {
    let job = HelmJob {
        job: "helm-lws-0123abcd".into(),
        namespace: "nemo-system".into(),
        image: "123456789012.dkr.ecr.us-east-2.amazonaws.com/nemo/helm@sha256:00000000000000000000000000000000000000000000000000000000000000bb".into(),
        args: ["upgrade", "--install", "lws", "oci://123456789012.dkr.ecr.us-east-2.amazonaws.com/nemo/chart-lws", "--version", "0.9.0"].map(str::to_owned).into(),
        values: values_of("lws").text,
        registry_secret: "registry".into(),
    };
    let installer = installer(&Installer { namespace: "nemo-system".into(), binding: "nemo-helm".into() }).unwrap();
    vec![namespaces(&["dynamo-system".into(), "lws-system".into(), "nemo-system".into()]).unwrap(), installer, helm_job(&job).unwrap()]
}
