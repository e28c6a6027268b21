//! The published number of GPUs beside the computed one, with what sets them apart in words.

use serde::Serialize;

use super::answer::Placed;
use super::memory::Inputs;
use crate::config::PublishedGpus;

/// What was published for this GPU and precision.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Published {
    pub gpus: u32,
    /// Of the smallest layout that was computed.
    pub computed_gpus: Option<u32>,
    pub agrees: bool,
    pub explanation: String,
    pub source: String,
    pub read: String,
}

impl Published {
    /// Nothing where the model is of another family, or the table has no row for the GPU or no column for the precision.
    pub(super) fn beside(table: &PublishedGpus, inputs: &Inputs<'_>, smallest: Option<&Placed>) -> Option<Self> {
        let gpu = inputs.instance.gpu.as_deref().filter(|_| inputs.precision.repository.contains(&table.family))?;
        let gpus = table.gpus(gpu, inputs.precision_name)?;
        let computed = smallest.map(|placed| placed.gpus);
        Some(Self {
            gpus,
            computed_gpus: computed,
            agrees: computed == Some(gpus),
            explanation: explanation(inputs, gpu, gpus, computed),
            source: table.source.clone(),
            read: table.read.clone(),
        })
    }
}

fn explanation(inputs: &Inputs<'_>, gpu: &str, published: u32, computed: Option<u32>) -> String {
    let (weights, usable, visible) = (inputs.weights_gb(), inputs.usable_gb(), inputs.visible_gb());
    let n = f64::from(published);
    let held = format!("{weights:.0} GB of weights against {:.0} GB of {published} × {gpu} at {} ({:.0} GB in all)", n * usable, inputs.gpu_memory_utilization, n * visible);
    match computed {
        Some(computed) if computed == published => "Both say the same.".to_owned(),
        Some(computed) if computed < published => {
            format!("Fewer are enough: {held}. The table names no model and was printed for the whole family; its figures are near those of the largest, 3 Ultra 550B.")
        }
        computed => {
            let why = if weights > n * visible {
                "The weights alone are more than these GPUs have, so the table must mean a smaller model or files that are not published."
            } else if weights > n * usable {
                "The weights alone are more than the engine may take: it takes a larger gpu_memory_utilization, a short context and no CUDA graphs."
            } else {
                "The weights alone would fit; with KV cache, state, activations and CUDA graphs on each GPU they do not. A shorter context or smaller batches may."
            };
            let needed = computed.map_or_else(|| "no layout that was tried holds it".to_owned(), |computed| format!("{computed} are needed"));
            format!("More than the table says ({needed}): {held}. {why}")
        }
    }
}
