//! Values for the charts, and the Jobs in which helm installs them.

use serde::Serialize;

use super::environment::{Rendered, render};
use crate::error::{Kind, fail};

/// What the values of a chart are made from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChartValues {
    /// Of the chart's main image, in our ECR.
    pub repository: String,
    pub tag: String,
    /// The GPU nodes'.
    pub instance_type: String,
}

/// The values of the chart of this name.
pub fn chart_values(chart: &str, values: &ChartValues) -> anyhow::Result<Rendered> {
    let file = match chart {
        "lws" => "values-lws.yaml",
        "nvidia-device-plugin" => "values-nvidia-device-plugin.yaml",
        "aws-efa-k8s-device-plugin" => "values-aws-efa-k8s-device-plugin.yaml",
        "dynamo-platform" => "values-dynamo-platform.yaml",
        _ => return Err(fail(Kind::Config, format!("no values are written for the chart {chart}")).hint("charts are named in configs/platform.toml").into()),
    };
    render(file, values)
}

/// A Job that runs helm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HelmJob {
    /// Its name, and that of the ConfigMap with the values.
    pub job: String,
    pub namespace: String,
    pub image: String,
    pub args: Vec<String>,
    pub values: String,
    /// Secret with the sign-in to the registry of the charts.
    pub registry_secret: String,
}

/// ConfigMap and Job.
pub fn helm_job(values: &HelmJob) -> anyhow::Result<Rendered> {
    render("chart.yaml", values)
}

/// Who helm is while it works.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Installer {
    pub namespace: String,
    /// Name of the ClusterRoleBinding.
    pub binding: String,
}

/// ServiceAccount and the binding that gives it all rights.
pub fn installer(values: &Installer) -> anyhow::Result<Rendered> {
    render("installer.yaml", values)
}

/// Namespaces of these names.
pub fn namespaces(names: &[String]) -> anyhow::Result<Rendered> {
    #[derive(Serialize)]
    struct Values<'a> {
        namespaces: &'a [String],
    }
    render("namespaces.yaml", &Values { namespaces: names })
}
