//! Versions that do not belong together.

use semver::Version;

use crate::lint::finding::Severity;
use crate::lint::known::{tag, version};
use crate::lint::path;
use crate::lint::rule::{Check, Found, Rule, Seen};
use crate::lint::workload::{self, Container};
use crate::lint::yaml::Document;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        id: "N43",
        title: "an API version that does not go with the platform",
        severity: Severity::Error,
        cause: "An operator or CRD older than the manifest's API reads other fields: `denied: spec.services must have at least one service`. v1alpha1 is stored up to Dynamo 1.3, v1beta1 from 1.4 on.",
        fix: "Up to 1.3 nvidia.com/v1alpha1 with spec.services, from 1.4 on nvidia.com/v1beta1 with spec.components.",
        check: Check::Document(api_version),
    },
    Rule {
        id: "N45",
        title: "an operator of another version than its chart",
        severity: Severity::Error,
        cause: "The chart passes flags that an older binary does not know: `flag provided but not defined: --operator-image`, and it crashes.",
        fix: "Leave the operator's image tag empty: the chart then takes its own version. No upgrade in place: remove the platform, then install it.",
        check: Check::Document(operator),
    },
    Rule {
        id: "N87",
        title: "a vLLM that cannot load the model",
        severity: Severity::Error,
        cause: "The command line is parsed happily, and then the class of the model is not there, or its parsers are not.",
        fix: "An image with the vLLM that the model needs; configs/platform.toml has sets of versions that belong together.",
        check: Check::Container(minimum),
    },
];

/// The lowest version of Dynamo that the document's images have.
fn dynamo(document: &Document, found: &Found<'_>) -> Option<Version> {
    let pods = workload::pods(&document.value);
    pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container))).filter_map(|(pod, container)| found.known.versions(pod, container).dynamo).min()
}

fn api_version(document: &Document, found: &mut Found<'_>) {
    let value = &document.value;
    if value["kind"] != "DynamoGraphDeployment" {
        return;
    }
    let api = value["apiVersion"].as_str().unwrap_or_default();
    let (services, components) = (value["spec"]["services"].is_object(), value["spec"]["components"].is_array());
    if api == "nvidia.com/v1beta1" && services {
        found.add("spec.services", "spec.services in v1beta1", "spec.components");
    } else if api == "nvidia.com/v1alpha1" && components {
        found.add("spec.components", "spec.components in v1alpha1", "spec.services, or apiVersion nvidia.com/v1beta1");
    } else if ["nvidia.com/v1beta1", "nvidia.com/v1alpha1"].contains(&api) {
        by_version(document, api, found);
    } else {
        found.add("apiVersion", api, "nvidia.com/v1beta1");
    }
}

fn by_version(document: &Document, api: &str, found: &mut Found<'_>) {
    let Some(dynamo) = dynamo(document, found) else { return };
    let stored_beta = dynamo >= Version::new(1, 4, 0);
    match api {
        "nvidia.com/v1beta1" if !stored_beta => found.add("apiVersion", format!("{api} with Dynamo {dynamo}"), "nvidia.com/v1alpha1, or Dynamo 1.4 or later"),
        "nvidia.com/v1alpha1" if stored_beta => found.warn("apiVersion", format!("{api} with Dynamo {dynamo}, which converts it"), "nvidia.com/v1beta1"),
        _ => return,
    };
}

fn operator(document: &Document, found: &mut Found<'_>) {
    let chart = |labels: &serde_json::Value| {
        let text = labels["helm.sh/chart"].as_str()?.strip_prefix("dynamo-operator-").or(labels["helm.sh/chart"].as_str()?.strip_prefix("dynamo-platform-"))?;
        version(text)
    };
    for pod in workload::pods(&document.value) {
        let Some(chart) = pod.labels.iter().find_map(|labels| chart(labels)) else { continue };
        for container in pod.containers.iter().filter(|container| container.image().contains("kubernetes-operator")) {
            if let Some(runs) = tag(container.image()).and_then(version).filter(|runs| *runs != chart) {
                found.add(path::field(&container.path, "image"), format!("operator {runs} under chart {chart}"), format!("operator {chart}"));
            }
        }
    }
}

fn minimum(seen: &Seen<'_>, container: &Container<'_>, found: &mut Found<'_>) {
    let Some((model, ..)) = container.line.model().and_then(|name| found.known.model(name)) else { return };
    let (Some(runs), Some(least)) = (found.known.versions(seen.pod, container).vllm, version(&model.minimum_vllm.value)) else { return };
    if runs < least {
        found.add(path::field(&container.path, "image"), format!("vLLM {runs} for {}", model.title), format!("vLLM {least} or later"));
    }
}
