//! Settings: layers → one checked [`Spec`], and [`Pins`]: what was resolved when the deployment was planned.

mod catalogue;
#[cfg(test)]
mod catalogue_test;
mod document;
mod every;
mod expose;
mod files;
mod fit;
mod layers;
mod layout;
mod load;
mod lustre;
mod model;
mod nearest;
mod overlay;
mod pins;
mod rules;
mod settings;
mod spec;
#[cfg(test)]
mod tests;
mod topology;
mod unverified;

pub use catalogue::{ChartSource, Compute, Figure, ImageSource, Instance, NodeLabel, PlatformSet, Quota, VersionCell};
pub use document::{sample, schema};
pub use every::{Every, every};
pub use expose::Expose;
pub use files::{fit_assumptions, instance, instance_names, model, model_names, published_gpus};
pub use fit::{Assumptions, PublishedGpus, PublishedRow};
pub use layers::{Layers, Origin, Setting};
pub use layout::Part;
pub use load::{Inputs, load, resolve};
pub use lustre::{capacity_gib, sold_gib};
pub use model::{Architecture, Encoder, Experts, Flags, Layers as ModelLayers, Mamba, Modality, Model, Mtp, Precision};
pub use nearest::nearest;
pub use overlay::{Overlay, OverlayFile};
pub use pins::{AddonPin, ChartPin, ImagePin, Pins, Prices, WeightFile, WeightsPin};
pub use spec::{BenchSpec, GpuSpec, HubSpec, ImagesSpec, NetworkSpec, RenderSpec, ServeSpec, Spec, StorageSpec, SystemSpec, WaitSpec, WeightsSpec};
pub use topology::{Controllers, EncodeWorker, Form, FormSetting, Role, Topology, refusal};
pub use unverified::{unverified, unverified_of_fit, unverified_of_platform};
