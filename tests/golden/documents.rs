//! Every rendered document, from values as a deployment of the default settings would have them.

use nemo::agent::fetch::ReadRate;
use nemo::config::{Inputs, Spec, Topology, load, model};
use nemo::render::{
    Bench, ChartValues, Facts, Gateway, HelmJob, Installer, Rendered, Routing, SHARED, Serving, Storage, Weights, bench, chart_values, gateway, helm_job, installer, namespaces,
    serving, storage, weights,
};

/// The settings of a deployment, over the defaults.
pub(crate) fn spec(settings: &[(&str, &str)]) -> Spec {
    let flags = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    load(&Inputs { working_folder: std::env::temp_dir().join("nowhere"), file: None, env: Vec::new(), flags }).unwrap().0
}

/// What its serving manifests are made from.
pub(crate) fn serving_values(settings: &[(&str, &str)]) -> Serving {
    serving_values_at(settings, ReadRate::default())
}

/// The same, where a read of the weights gave this.
pub(crate) fn serving_values_at(settings: &[(&str, &str)], read: ReadRate) -> Serving {
    let spec = spec(settings);
    let facts = Facts {
        image: "123456789012.dkr.ecr.us-east-2.amazonaws.com/nemo/vllm-runtime@sha256:00000000000000000000000000000000000000000000000000000000000000aa".into(),
        claim: "shared".into(),
        model_path: format!("models/{}/0123456789abcdef0123456789abcdef01234567", spec.precision.repository),
        weight_bytes: 0,
        read,
        capacity_gib: 1200,
        efa: None,
        controllers: spec.controllers(),
        routing: Some(Routing {
            frontend: "123456789012.dkr.ecr.us-east-2.amazonaws.com/nemo/gateway@sha256:00000000000000000000000000000000000000000000000000000000000000cc".into(),
            sidecar: "123456789012.dkr.ecr.us-east-2.amazonaws.com/nemo/picture-router@sha256:00000000000000000000000000000000000000000000000000000000000000dd".into(),
        }),
    };
    Serving::new(&spec, facts)
}

/// Of the models whose pictures Dynamo's encode workers take.
pub(crate) const ENCODED_BY_DYNAMO: &str = "cosmos-reason2-8b";

/// Settings by a name.
pub(crate) type Named = (String, Vec<(&'static str, &'static str)>);

/// The settings of each topology in each form that it has, by the name of its golden folder; where pictures are encoded apart, with a model for each way.
pub(crate) fn every_form() -> Vec<Named> {
    let by_dynamo = forms_of(ENCODED_BY_DYNAMO).into_iter().map(|(name, mut settings)| {
        settings.push(("model", ENCODED_BY_DYNAMO));
        (format!("dynamo-{name}"), settings)
    });
    let by_dynamo = by_dynamo.filter(|(_, settings)| spec(settings).encoded_by_dynamo());
    forms_of(&spec(&[]).model.name).into_iter().chain(by_dynamo).collect()
}

/// The settings of each topology in each form that the model has, but for its name.
pub(crate) fn forms_of(name: &str) -> Vec<Named> {
    let encode_worker = model(name, "test").unwrap().encode_worker.map(|figure| figure.value);
    let every = Topology::ALL.into_iter().flat_map(|topology| topology.forms(encode_worker).into_iter().map(move |form| (topology, form)));
    every.map(|(topology, form)| (format!("{topology}-{form}"), vec![("serve.topology", topology.name()), ("serve.form", form.name()), ("gpu.nodes", "3")])).collect()
}

/// The gateway before the frontend of the default settings, by the name of its golden folder.
pub(crate) fn exposed() -> Vec<(String, Rendered)> {
    let tls = ("serve.tls_certificate", "tls.crt");
    let key = ("serve.tls_key", "tls.key");
    let public = vec![("serve.expose", "public"), ("serve.allowed_cidrs", "203.0.113.0/24,198.51.100.7/32"), tls, key, ("serve.form", "dgd-v1beta1")];
    [("exposed-internal", vec![("serve.expose", "internal"), tls, key]), ("exposed-public", public)]
        .into_iter()
        .map(|(name, settings)| {
            let image = "123456789012.dkr.ecr.us-east-2.amazonaws.com/nemo/gateway@sha256:00000000000000000000000000000000000000000000000000000000000000cc".to_owned();
            (name.to_owned(), gateway(&Gateway::new(&spec(&settings), &serving_values(&settings), image)).unwrap())
        })
        .collect()
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
    files.extend(serving(&serving_values(&[])).unwrap());
    let job = Bench {
        namespace: "nemo".into(),
        name: "bench-0123456789abcdef".into(),
        agent_image: "123456789012.dkr.ecr.us-east-2.amazonaws.com/nemo/agent@sha256:00000000000000000000000000000000000000000000000000000000000000bb".into(),
        runtime_image: serving_values(&[]).image,
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
