//! The arithmetic against what was counted elsewhere, and its laws.

use proptest::prelude::*;

use super::*;
use crate::config::{self, Assumptions, Instance, Model};

struct Case {
    model: Model,
    precision: String,
    instance: Instance,
    assumptions: Assumptions,
}

impl Case {
    fn new(model: &str, precision: &str, instance: &str) -> Self {
        Self {
            model: config::model(model, "test").unwrap(),
            precision: precision.into(),
            instance: config::instance(instance, "test").unwrap(),
            assumptions: config::fit_assumptions().unwrap(),
        }
    }

    fn inputs(&self, max_model_len: u32, concurrency: u32) -> Inputs<'_> {
        Inputs {
            model: &self.model,
            precision_name: &self.precision,
            precision: &self.model.precisions[&self.precision],
            instance: &self.instance,
            assumptions: &self.assumptions,
            max_model_len,
            concurrency,
            gpu_memory_utilization: 0.9,
            tensor_parallel_size: None,
            unverified: &[],
        }
    }

    fn answer(&self) -> Answer {
        answer(&self.inputs(self.model.max_model_len.value, 1), &config::published_gpus().unwrap())
    }
}

fn gpu_instances() -> Vec<&'static str> {
    config::instance_names().filter(|name| config::instance(name, "test").unwrap().gpus.is_some()).collect()
}

/// Every model and precision of the catalogue.
fn every() -> Vec<(&'static str, String)> {
    config::model_names().flat_map(|name| config::model(name, "test").unwrap().precisions.into_keys().map(move |precision| (name, precision))).collect()
}

/// The stage with the most weights.
fn one(inputs: &Inputs<'_>, layout: Layout) -> Memory {
    memory(inputs, layout).into_iter().max_by(|a, b| gb(&a.fixed, "weights").total_cmp(&gb(&b.fixed, "weights"))).unwrap()
}

fn gb(terms: &[Term], name: &str) -> f64 {
    terms.iter().find(|term| term.name == name).map_or(0.0, |term| term.gb)
}

#[test]
fn a_number_of_ranks_that_is_set_is_the_only_one_that_is_tried() {
    let case = Case::new("nemotron-3-super", "fp8", "p5en.48xlarge");
    let free = case.answer().smallest.unwrap();
    let set = |tensor: u32| answer(&Inputs { tensor_parallel_size: Some(tensor), ..case.inputs(8192, 1) }, &config::published_gpus().unwrap());
    let eight = set(8);
    assert_eq!((free.layout.tensor < 8, eight.smallest.as_ref().unwrap().layout.tensor), (true, 8));
    assert!(eight.tried.is_empty() && eight.to_string().contains("TP 8 as serve.tensor_parallel_size says"), "{eight}");
    assert!(set(1).tried.iter().all(|tried| tried.layout.tensor == 1));
}

#[test]
fn one_of_a_thing_and_none_of_it_are_written_as_such() {
    let case = Case::new("nemotron-3-nano-4b", "bf16", "p5en.48xlarge");
    let text = answer(&case.inputs(1, 1), &config::published_gpus().unwrap()).to_string();
    assert!(text.contains(", 1 token × 1 request") && !text.contains(" 1 tokens") && !text.contains("of experts"), "{text}");
    assert!(Case::new("nemotron-3-super", "fp8", "p5en.48xlarge").answer().to_string().contains("B of experts"));
}

#[test]
fn the_architecture_gives_the_parameters_that_others_counted() {
    // To the last one, where whole checkpoints were compared tensor by tensor.
    for (name, counted) in [("nemotron-3-super", 123_611_033_088), ("nemotron-3.5-lightning", 32_913_266_240), ("nemotron-3-nano-4b", 3_973_556_832)] {
        let architecture = config::model(name, "test").unwrap().architecture;
        assert_eq!(language_model(&architecture).total() + draft_head(&architecture).total(), counted, "{name}");
    }
    for name in config::model_names() {
        let architecture = config::model(name, "test").unwrap().architecture;
        let encoders: u64 = architecture.vision.iter().chain(&architecture.audio).map(|encoder| encoder.parameters.value).sum();
        let computed = language_model(&architecture).total() + draft_head(&architecture).total() + encoders;
        if let Some(counted) = &architecture.parameters {
            assert!(computed.abs_diff(counted.value) < counted.value / 10_000, "{name}: {computed} and {}", counted.value);
        }
    }
    // All but the norms of queries and keys, of 128 values a layer each.
    let cosmos = config::model("cosmos-reason2-8b", "test").unwrap().architecture;
    let (encoder, counted) = (cosmos.vision.as_ref().unwrap().parameters.value, cosmos.parameters.as_ref().unwrap().value);
    assert_eq!(language_model(&cosmos).total() + encoder + 36 * 2 * 128, counted);
    // 1,044 GiB in 225 shards.
    let ultra = config::model("nemotron-3-ultra", "test").unwrap().architecture;
    assert_eq!((2 * (language_model(&ultra).total() + draft_head(&ultra).total())) >> 30, 1044);
}

#[test]
fn counts_that_do_not_divide_rule_a_layout_out() {
    let reason = |model: &str, layout: Layout| ruled_out(&config::model(model, "test").unwrap().architecture, layout, 8);
    let table = [
        ("nemotron-3-super", Layout::tensor(8), None),
        ("nemotron-3-super", Layout::tensor(3), Some("32 attention heads do not divide by 3")),
        ("nemotron-3-super", Layout::tensor(16), Some("16 ranks share each layer, and a node has 8 GPUs")),
        ("nemotron-nano-9b-v2", Layout::tensor(5), Some("8 KV heads neither divide by 5 nor divide it")),
        ("nemotron-3-super", Layout { tensor: 1, pipeline: 1, data: 3, expert: true }, Some("512 experts do not divide by 3")),
        ("nemotron-3-super", Layout { tensor: 1, pipeline: 96, data: 1, expert: false }, Some("96 stages are more than 88 layers")),
        ("nemotron-3-super", Layout { tensor: 6, pipeline: 2, data: 1, expert: false }, Some("8 GPUs of a node do not divide into groups of 6")),
        ("nemotron-3-super", Layout { tensor: 4, pipeline: 3, data: 1, expert: false }, Some("12 GPUs do not fill nodes of 8")),
    ];
    for (model, layout, expected) in table {
        let found = reason(model, layout);
        assert_eq!(found.is_some(), expected.is_some(), "{layout}: {found:?}");
        assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()), "{layout}");
    }
    let wide = ruled_out(&config::model("nemotron-3-ultra", "test").unwrap().architecture, Layout::tensor(16), 16).unwrap();
    assert_eq!(wide, "8 Mamba groups do not divide by 16");
}

#[test]
fn layers_are_dealt_as_the_engine_deals_them() {
    let dealt = |pipeline: u32, layers: usize| Layout { tensor: 1, pipeline, data: 1, expert: false }.stages(layers);
    assert_eq!(dealt(1, 88), [88]);
    assert_eq!(dealt(2, 108), [54, 54]);
    assert_eq!(dealt(3, 88), [29, 30, 29]);
    assert_eq!(dealt(4, 11), [3, 3, 3, 2]);
}

#[test]
fn doubling_the_ranks_halves_what_is_spread_and_nothing_else() {
    let case = Case::new("nemotron-3-super", "bf16", "p5en.48xlarge");
    let inputs = case.inputs(262_144, 1);
    let at = |tensor: u32| one(&inputs, Layout::tensor(tensor));
    let terms = |tensor: u32| at(tensor).terms(262_144, 1);
    assert!((at(4).state_gb * 2.0 - at(2).state_gb).abs() < 1e-12);
    // Two KV heads: spread over two ranks, then copied.
    assert!((at(2).token_gb * 2.0 - at(1).token_gb).abs() < 1e-15);
    assert_eq!(at(4).token_gb, at(2).token_gb);
    let replicated = language_model(&case.model.architecture).replicated as f64 * 2.0 / 1e9;
    let key_value = language_model(&case.model.architecture).key_value as f64 * 2.0 / 1e9;
    let spread = |tensor: u32| gb(&terms(tensor), "weights") - replicated - key_value / f64::from(tensor.min(2));
    assert!((spread(8) * 2.0 - spread(4)).abs() < 1e-9, "{} {}", spread(8), spread(4));
    assert_eq!(gb(&terms(4), "CUDA graphs"), gb(&terms(8), "CUDA graphs"));
    let seeing = Case::new("nemotron-3.5-super-vl", "bf16", "p5en.48xlarge");
    let encoder = |tensor: u32| gb(&one(&seeing.inputs(4096, 1), Layout::tensor(tensor)).fixed, "encoder");
    assert!(encoder(1) > 1.6 && encoder(1) == encoder(8));
}

#[test]
fn a_model_of_another_family_has_no_state_and_no_published_number() {
    let answer = Case::new("cosmos-reason2-8b", "bf16", "p5en.48xlarge").answer();
    assert_eq!(answer.published, None);
    let placed = answer.smallest.unwrap();
    assert_eq!(placed.gpus, 1, "{placed:?}");
    assert!(placed.terms.iter().all(|term| term.name != "Mamba state"), "{placed:?}");
    let kv = gb(&placed.terms, "KV cache");
    assert!((kv - 36.0 * 2.0 * 8.0 * 128.0 * 2.0 * 262_144.0 / 1e9).abs() < 0.01, "{kv}");
}

#[test]
fn stages_and_experts_spread_the_weights_too() {
    let case = Case::new("nemotron-3-ultra", "bf16", "p5en.48xlarge");
    let weights = |pipeline: u32, data: u32| gb(&one(&case.inputs(4096, 1), Layout { tensor: 8, pipeline, data, expert: data > 1 }).fixed, "weights");
    assert!(weights(1, 1) > 135.0 && weights(1, 1) < 150.0, "{}", weights(1, 1));
    assert!((weights(2, 1) / weights(1, 1) - 0.5).abs() < 0.03, "{}", weights(2, 1));
    // Experts are nearly all of it; the rest is copied.
    assert!(weights(1, 2) > weights(2, 1) && weights(1, 2) < weights(1, 1) * 0.56, "{}", weights(1, 2));
}

#[test]
fn every_answer_holds_what_it_says() {
    for (model, precision) in every() {
        for instance in gpu_instances() {
            let case = Case::new(model, &precision, instance);
            let answer = case.answer();
            let which = format!("{model} {precision} {instance}");
            let placed = answer.smallest.unwrap_or_else(|| panic!("{which}: nothing holds it"));
            assert!(placed.needed_gb <= answer.usable_gb + 0.01, "{which}");
            assert!(placed.largest_context >= answer.max_model_len && placed.largest_concurrency >= 1, "{which}: {placed:?}");
            let sum: f64 = placed.terms.iter().map(|term| term.gb).sum();
            assert!((sum - placed.needed_gb).abs() < 0.05, "{which}: {sum}");
            assert!(placed.terms.iter().all(|term| term.gb >= 0.0 && !term.formula.is_empty()), "{which}");
            // The most that is promised fits, and one more is too many.
            let with = |requests: u32| super::placed(&case.inputs(answer.max_model_len, requests), placed.layout);
            assert!(with(placed.largest_concurrency).is_ok(), "{which}: {}", placed.largest_concurrency);
            assert!(with(placed.largest_concurrency + 1).is_err(), "{which}: {}", placed.largest_concurrency);
        }
    }
}

#[test]
fn the_published_number_stands_beside_the_computed_one_with_what_sets_them_apart() {
    let table = config::published_gpus().unwrap();
    let mut disagree = 0;
    for model in ["nemotron-3-ultra", "nemotron-3.5-super-vl"] {
        for instance in gpu_instances() {
            for precision in ["bf16", "nvfp4"] {
                let answer = Case::new(model, precision, instance).answer();
                let published = answer.published.clone().unwrap();
                let computed = answer.smallest.as_ref().map(|placed| placed.gpus);
                assert_eq!((Some(published.gpus), published.computed_gpus), (table.gpus(&answer.gpu, precision), computed), "{model} {precision} {instance}");
                assert!(
                    answer.to_string().contains(&format!("published: {} GPU{}; computed: {}", published.gpus, if published.gpus == 1 { "" } else { "s" }, computed.unwrap())),
                    "{answer}"
                );
                assert_eq!(published.agrees, computed == Some(published.gpus));
                if !published.agrees {
                    disagree += 1;
                    assert!(published.explanation.contains("GB of weights against"), "{}", published.explanation);
                }
            }
        }
    }
    assert!(disagree > 0, "the table is known to disagree");
    let rows: Vec<_> = table.rows.iter().map(|row| (row.gpus.join("/"), row.bf16, row.nvfp4)).collect();
    assert_eq!(rows, [("B200/GB200".into(), 8, 2), ("B300/GB300".into(), 4, 1), ("H200".into(), 8, 4), ("H100".into(), 16, 8)]);
}

#[test]
fn the_answer_in_text() {
    insta::assert_snapshot!("super_vl_bf16_on_p5en", Case::new("nemotron-3.5-super-vl", "bf16", "p5en.48xlarge").answer());
    insta::assert_snapshot!("ultra_bf16_on_p5en", Case::new("nemotron-3-ultra", "bf16", "p5en.48xlarge").answer());
    insta::assert_snapshot!("ultra_nvfp4_on_b300", Case::new("nemotron-3-ultra", "nvfp4", "p6-b300.48xlarge").answer());
}

proptest! {
    /// More tokens or requests never take less, and the largest that is promised is the last that fits.
    #[test]
    fn more_is_never_less(which in 0usize..100, tokens in 1u32..262_144, more in 0u32..100_000, requests in 1u32..64, tensor in 0u32..4) {
        let all = every();
        let (model, precision) = &all[which % all.len()];
        let case = Case::new(model, precision, "p5en.48xlarge");
        let memory = one(&case.inputs(tokens, requests), Layout::tensor(1 << tensor));
        let needed = memory.needed_gb(tokens, requests);
        prop_assert!(memory.needed_gb(tokens + more, requests) >= needed);
        prop_assert!(memory.needed_gb(tokens, requests + 1) > needed);
        let usable = needed + 3.0;
        let most = memory.largest_context(usable, requests);
        prop_assert!(most >= tokens);
        prop_assert!(memory.needed_gb(most, requests) <= usable + 1e-6);
        prop_assert!(memory.needed_gb(most.saturating_add(2), requests) > usable || most == u32::MAX);
        let most = memory.largest_concurrency(usable, tokens);
        prop_assert!(most >= requests && memory.needed_gb(tokens, most) <= usable + 1e-6);
    }

    /// More ranks never take more on each.
    #[test]
    fn more_ranks_never_take_more(which in 0usize..100, tensor in 0u32..3, tokens in 1u32..131_072) {
        let all = every();
        let (model, precision) = &all[which % all.len()];
        let case = Case::new(model, precision, "p6-b200.48xlarge");
        let needed = |tensor: u32| one(&case.inputs(tokens, 1), Layout::tensor(tensor)).needed_gb(tokens, 1);
        prop_assert!(needed(2 << tensor) <= needed(1 << tensor));
    }
}
