//! The shape of the settings: what `configs/defaults.toml` holds, as types.

use serde::Deserialize;

use super::spec::{BenchSpec, GpuSpec, HubSpec, ImagesSpec, NetworkSpec, RenderSpec, ServeSpec, StorageSpec, SystemSpec, WaitSpec, WeightsSpec};

/// All layers laid over each other, before the catalogue names in it are resolved.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) region: String,
    pub(super) instance: String,
    pub(super) model: String,
    pub(super) precision: String,
    pub(super) compute: String,
    pub(super) network: NetworkSpec,
    pub(super) system: SystemSpec,
    pub(super) gpu: GpuSpec,
    pub(super) platform: PlatformSetting,
    pub(super) storage: StorageSpec,
    pub(super) images: ImagesSpec,
    pub(super) hub: HubSpec,
    pub(super) weights: WeightsSpec,
    pub(super) serve: ServeSpec,
    pub(super) render: RenderSpec,
    pub(super) bench: BenchSpec,
    pub(super) price: PriceSetting,
    pub(super) wait: WaitSpec,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlatformSetting {
    pub(super) set: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PriceSetting {
    pub(super) gpu_hour: f64,
}
