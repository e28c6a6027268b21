//! Every file of the catalogue: whole, and honest about where its figures are from.

use serde_json::Value;

use super::*;

fn models() -> Vec<Model> {
    model_names().map(|name| model(name, "test").unwrap()).collect()
}

/// Tables that hold a figure and say neither where it is from nor that nobody knows.
fn unsaid(path: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| unsaid(path, item, found)),
        Value::Object(table) => {
            let text = |key: &str| table.get(key).and_then(Value::as_str);
            let figure = ["value", "code", "repository", "args", "pattern", "hidden_size"].iter().any(|key| table.contains_key(*key));
            let said = (text("source").is_some() && text("read").is_some()) || text("status") == Some("unverified");
            if figure && !said {
                found.push(path.to_owned());
            }
            table.iter().for_each(|(key, inner)| unsaid(&format!("{path} {key}"), inner, found));
        }
        _ => {}
    }
}

#[test]
fn every_figure_has_its_source_and_day_or_says_that_it_has_none() {
    let mut found = Vec::new();
    models().iter().for_each(|model| unsaid(&model.name, &serde_json::to_value(model).unwrap(), &mut found));
    instance_names().for_each(|name| unsaid(name, &serde_json::to_value(instance(name, "test").unwrap()).unwrap(), &mut found));
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn every_model_has_what_its_layers_and_its_modality_need() {
    for model in models() {
        let (name, architecture, layers) = (&model.name, &model.architecture, model.architecture.layers());
        assert!(architecture.pattern.chars().all(|letter| "M*E-D".contains(letter)), "{name}: letters of the pattern");
        assert!(layers.attention > 0, "{name}: {layers:?}");
        let said = (architecture.mamba.is_some(), architecture.experts.is_some(), architecture.mlp_width.is_some());
        assert_eq!((layers.mamba > 0, layers.moe > 0, layers.mlp > 0), said, "{name}");
        assert!(layers.mamba > 0 || model.mamba_ssm_cache_dtype.is_none(), "{name}: a state of layers that it has not");
        assert_eq!(model.mtp.is_some(), !architecture.mtp_pattern.is_empty(), "{name}: draft head");
        let (sees, hears) = (model.modality != Modality::Text, model.modality == Modality::Omni);
        assert_eq!((architecture.vision.is_some(), model.image_limit.is_some(), model.video_limit.is_some()), (sees, sees, sees), "{name}");
        assert!(sees || model.encode_worker.is_none(), "{name}: it takes no pictures");
        assert_eq!((architecture.audio.is_some(), model.audio_limit.is_some()), (hears, hears), "{name}");
    }
}

#[test]
fn every_precision_has_what_the_fit_needs() {
    for model in models() {
        assert!(!model.precisions.is_empty(), "{}", model.name);
        for (name, precision) in &model.precisions {
            let which = format!("{} {name}", model.name);
            assert!(["bf16", "fp8", "nvfp4"].contains(&name.as_str()), "{which}");
            assert!(precision.repository.starts_with("nvidia/"), "{which}");
            assert!(precision.weights_gb.value > 0 && precision.tensor_parallel_size.value.is_power_of_two(), "{which}");
            assert!(["auto", "fp8"].contains(&precision.kv_cache_dtype.value.as_str()), "{which}");
        }
        for flags in &model.flags {
            assert!(!flags.args.is_empty() || !flags.env.is_empty(), "{}", model.name);
            assert!(flags.precisions.iter().all(|name| model.precisions.contains_key(name)), "{}: {:?}", model.name, flags.precisions);
        }
    }
}

#[test]
fn every_gpu_type_says_how_much_memory_the_engine_sees() {
    for instance in instance_names().map(|name| instance(name, "test").unwrap()).filter(|instance| instance.gpus.is_some()) {
        let (name, vendor) = (&instance.type_name, instance.gpu_memory_gb.as_ref().unwrap().value);
        let visible = instance.gpu_memory_visible_gib.as_ref().unwrap().value * 1.073_741_824;
        assert!(visible > f64::from(vendor) * 0.95 && visible < f64::from(vendor) * 1.1, "{name}: {visible} GB of {vendor} GB");
        assert!(instance.gpu.is_some() && instance.efa.is_some(), "{name}");
    }
}

#[test]
fn flags_hold_by_precision_and_gpu() {
    let lightning = model("nemotron-3.5-lightning", "test").unwrap();
    let backend = |precision: &str, gpu: &str| {
        let words: Vec<_> = lightning.flags_for(precision, gpu).flat_map(|flags| flags.args.clone()).collect();
        words.iter().position(|word| word == "--moe-backend").map(|at| words[at + 1].clone())
    };
    assert_eq!(backend("bf16", "H200").as_deref(), Some("flashinfer_cutlass"));
    assert_eq!(backend("nvfp4", "H200").as_deref(), Some("humming"));
    assert_eq!(backend("nvfp4", "B200").as_deref(), Some("marlin"));
}
