//! What was resolved when the deployment was planned and is kept in the state: revisions, digests, add-on versions, prices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Everything that a later run must find again exactly.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pins {
    /// By the image's name in `platform.toml`.
    pub images: BTreeMap<String, ImagePin>,
    /// By the chart's name in `platform.toml`.
    pub charts: BTreeMap<String, ChartPin>,
    /// By the add-on's name.
    pub addons: BTreeMap<String, AddonPin>,
    pub weights: WeightsPin,
    /// Zone of the GPU nodes and the file system: name (`us-east-2a`) and id (`use2-az1`).
    pub zone: String,
    pub zone_id: String,
    pub prices: Prices,
}

/// An image at its upstream registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImagePin {
    /// As in `platform.toml`.
    pub reference: String,
    /// `sha256:…` of the index or manifest that the tag named.
    pub digest: String,
    /// Bytes of all layers for one architecture.
    pub bytes: u64,
}

/// A chart at its upstream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChartPin {
    pub reference: String,
    /// OCI: digest of the manifest; archive: sha256 of the file.
    pub digest: String,
    pub version: String,
}

/// An add-on's version for the cluster's Kubernetes version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AddonPin {
    pub version: String,
}

/// The exact commit of the model repository and its files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WeightsPin {
    pub repository: String,
    /// 40 hex digits.
    pub revision: String,
    pub bytes: u64,
    pub files: Vec<WeightFile>,
}

/// One file of the repository.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WeightFile {
    pub path: String,
    pub size: u64,
    /// sha256 of LFS files; small files carry the git blob id (sha1) instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_blob: Option<String>,
}

/// US dollars, by the Price List API or by `--price`; 0 means that no price was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Prices {
    /// One GPU instance, on demand, an hour.
    pub gpu_instance_hour: f64,
    pub system_instance_hour: f64,
    pub cluster_hour: f64,
    pub nat_gateway_hour: f64,
    /// Of a Network Load Balancer, without its traffic; asked only where the model is exposed.
    pub load_balancer_hour: f64,
    /// One GB-month of the file system at its throughput.
    pub filesystem_gb_month: f64,
    /// Where the figures are from, for the reader: `Price List API, 2026-11-30`.
    pub source: String,
}

impl Prices {
    /// US dollars an hour of one GPU instance of this type; `None`: another type was asked about, or none was found. The source ends with the type.
    pub fn gpu_hour(&self, type_name: &str) -> Option<f64> {
        let of = self.source.rsplit("; ").next().and_then(|place| place.split(' ').next());
        (self.gpu_instance_hour > 0.0 && of == Some(type_name)).then_some(self.gpu_instance_hour)
    }
}

#[cfg(test)]
mod tests {
    use super::Prices;

    #[test]
    fn a_price_is_of_the_type_that_was_asked_about() {
        let prices = Prices { gpu_instance_hour: 63.3, source: "--price; the others by the Price List API, 2026-11-30; p5en.48xlarge in us-east-2".into(), ..Prices::default() };
        assert_eq!((prices.gpu_hour("p5en.48xlarge"), prices.gpu_hour("p5.48xlarge"), Prices::default().gpu_hour("")), (Some(63.3), None, None));
    }
}
