//! Settings: layers → one checked [`Spec`], and [`Pins`]: what was resolved when the deployment was planned.

mod catalogue;
mod pins;
mod spec;

pub use catalogue::{ChartSource, Figure, ImageSource, Instance, Model, PlatformSet, Precision, Quota};
pub use pins::{AddonPin, ChartPin, ImagePin, Pins, Prices, WeightFile, WeightsPin};
pub use spec::{BenchSpec, GpuSpec, HubSpec, NetworkSpec, ServeSpec, Spec, StorageSpec, SystemSpec, WaitSpec, WeightsSpec};
