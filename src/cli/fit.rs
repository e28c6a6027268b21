//! `nemo fit`: the smallest layout that holds a model, and what it holds; asks nobody.

use super::{Global, Settings, session};
use crate::error::{Failure, Kind};
use crate::fit::{Inputs, answer};
use crate::{config, ui};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nemo fit --model nemotron-3-ultra --precision nvfp4\n  nemo fit --model nemotron-3-super --instance p5.48xlarge --max-model-len 131072 --concurrency 16"
)]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
    /// Tokens of a request, prompt and answer together [default: serve.max_model_len, or the model's own]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    max_model_len: Option<u32>,
    /// Requests of that length at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
}

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let (spec, _) = config::resolve(&session::inputs(global, &args.settings)?)?;
    if spec.instance.gpus.is_none() {
        return Err(Failure::new(Kind::Config, format!("{} has no GPU", spec.instance.type_name)).hint("--instance p5en.48xlarge"));
    }
    let max_model_len = args.max_model_len.unwrap_or_else(|| spec.max_model_len());
    let most = spec.model.max_model_len.value;
    if max_model_len > most {
        return Err(Failure::new(Kind::Usage, format!("--max-model-len {max_model_len}: {} takes at most {most}", spec.model.title)).hint(format!("--max-model-len {most}")));
    }
    let (assumptions, tensor) = (config::fit_assumptions()?, spec.serve.tensor_parallel_size);
    let inputs = Inputs {
        model: &spec.model,
        precision_name: &spec.precision_name,
        precision: &spec.precision,
        instance: &spec.instance,
        assumptions: &assumptions,
        max_model_len,
        concurrency: args.concurrency,
        gpu_memory_utilization: spec.serve.gpu_memory_utilization,
        tensor_parallel_size: (tensor > 0).then_some(tensor),
        unverified: &config::unverified_of_fit(&spec, &assumptions),
    };
    let answer = answer(&inputs, &config::published_gpus()?);
    ui::answer(global.manner(), &answer);
    if answer.smallest.is_none() {
        let failure = Failure::new(Kind::Config, format!("{} in {} does not fit {} as asked", answer.model, answer.precision, answer.instance));
        let failure = if tensor > 0 { failure.hint("--set serve.tensor_parallel_size=0 tries every number of ranks") } else { failure };
        return Err(failure.hint("a shorter --max-model-len, a lower --concurrency, another --precision or --instance"));
    }
    Ok(())
}
