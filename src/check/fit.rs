//! Does the model fit the GPUs as it is to be served?

use super::report::{Answered, Question};
use crate::config::{self, Instance, Spec};
use crate::error::Kind;
use crate::fit::{self, Inputs, Layout};

/// `fit`: one request of full length is the least that has to fit.
pub(super) fn fit(spec: &Spec) -> Answered {
    let question = Question::new("fit");
    let (assumptions, table) = match (config::fit_assumptions(), config::published_gpus()) {
        (Ok(assumptions), Ok(table)) => (assumptions, table),
        (Err(error), _) | (_, Err(error)) => return question.red(Kind::Bug, error.to_string(), "report it"),
    };
    let layout = layout(spec);
    let what = format!("{} in {} with {layout} on {}", spec.model.name, spec.precision_name, spec.instance.type_name);
    let here = inputs(spec, &spec.instance, &assumptions);
    let reason = match fit::placed(&here, layout) {
        Ok(placed) => {
            let most = format!("{} requests of {} tokens at once", placed.largest_concurrency, here.max_model_len);
            // An encoder alone leaves out the language model: nano_nemotron_vl.py of vLLM 0.26.0 and 0.31.0, never measured.
            let encoder = placed.terms.iter().find(|term| term.name == "encoder" && spec.splits_by_vllm());
            let apart = encoder.map(|term| format!("; encode workers hold the encoder alone, {:.1} GB on each GPU", term.gb)).unwrap_or_default();
            return question.ok(format!("{what}: {:.0} GB on each GPU for one request of full length, room for {most}{apart}", placed.needed_gb));
        }
        Err(tried) => tried.reason,
    };
    let smallest = fit::answer(&here, &table).smallest.map(|placed| format!("{} on {} of {}", placed.layout, nodes(placed.nodes), spec.instance.type_name));
    let others = config::instance_names().filter(|name| *name != spec.instance.type_name).filter_map(|name| config::instance(name, "check").ok());
    let others =
        others.filter(|other| other.gpus.is_some() && fit::placed(&inputs(spec, other, &assumptions), layout).is_ok()).map(|other| format!("--instance {}", other.type_name));
    let would: Vec<_> = smallest.into_iter().chain(others).collect();
    let fix = if would.is_empty() { "another --precision, or a smaller serve.max_model_len".to_owned() } else { format!("what would: {}", would.join(", ")) };
    question.red(Kind::Config, format!("{what} does not fit: {reason}"), format!("{fix}; nemo fit shows every term"))
}

/// Of one engine, as the topology spreads it; engines that share a node are each for itself.
fn layout(spec: &Spec) -> Layout {
    let spread = spec.parts().into_iter().find(|part| part.nodes > 1);
    let part = spread.or_else(|| spec.parts().into_iter().next_back());
    let tensor = part.map_or(spec.precision.tensor_parallel_size.value, |part| part.tensor_parallel_size);
    match spread {
        Some(part) => Layout { tensor, pipeline: part.pipeline_parallel_size, data: part.data_parallel_size, expert: part.data_parallel_size > 1 },
        None => Layout::tensor(tensor),
    }
}

fn nodes(count: u32) -> String {
    if count == 1 { "1 node".into() } else { format!("{count} nodes") }
}

fn inputs<'a>(spec: &'a Spec, instance: &'a Instance, assumptions: &'a config::Assumptions) -> Inputs<'a> {
    Inputs {
        model: &spec.model,
        precision_name: &spec.precision_name,
        precision: &spec.precision,
        instance,
        assumptions,
        max_model_len: spec.max_model_len(),
        concurrency: 1,
        gpu_memory_utilization: spec.serve.gpu_memory_utilization,
        // What would fit is asked of every number.
        tensor_parallel_size: None,
        // The check's report lists them all.
        unverified: &[],
    }
}
