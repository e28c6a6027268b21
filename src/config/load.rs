//! From layers to one checked [`Spec`].

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::expose;
use super::files;
use super::layers::{Layers, Origin};
use super::layout;
use super::nearest::resembling;
use super::overlay;
use super::settings::Settings;
use super::spec::Spec;
use crate::error::{Kind, fail};

/// Where settings are read from.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// `nemo.toml` is looked for here.
    pub working_folder: PathBuf,
    /// `--config FILE`: this file instead, and it has to be there.
    pub file: Option<PathBuf>,
    /// Variables of the process.
    pub env: Vec<(String, String)>,
    /// Settings by key, as flags give them.
    pub flags: Vec<(String, String)>,
}

/// Variables that are not ours by name and yet set one of our settings.
const OTHERS: &[(&str, &str)] = &[("AWS_DEFAULT_REGION", "region"), ("AWS_REGION", "region"), ("HF_ENDPOINT", "hub.endpoint")];
/// Settings that have a flag of their own; every setting can be given by `--set KEY=VALUE`.
const OWN_FLAGS: &[(&str, &str)] = &[
    ("name", "--name"),
    ("region", "--region"),
    ("instance", "--instance"),
    ("model", "--model"),
    ("precision", "--precision"),
    ("compute", "--compute"),
    ("gpu.nodes", "--nodes"),
    ("gpu.zone", "--zone"),
    ("serve.topology", "--topology"),
    ("serve.form", "--as"),
    ("serve.expose", "--expose"),
    ("render.templates", "--templates"),
    ("render.patches", "--patches"),
    ("price.gpu_hour", "--price"),
];

/// Lays all layers over each other and checks the result: the settings of one deployment, and each setting's origin.
pub fn load(inputs: &Inputs) -> anyhow::Result<(Spec, Layers)> {
    let (spec, layers) = resolve(inputs)?;
    refuse(Kind::Config, &contradictions(&spec, &layers))?;
    Ok((spec, layers))
}

/// The same without asking whether settings that are fine each by itself go together: for questions about what could be.
pub fn resolve(inputs: &Inputs) -> anyhow::Result<(Spec, Layers)> {
    let file = read_file(inputs)?;
    let mut upper = Layers::defaults();
    lay_upper(&mut upper, inputs, file.as_ref())?;
    // The instance type and the model are named by the upper layers and are themselves layers below those.
    let mut layers = Layers::defaults();
    let instance = files::instance(upper.text("instance"), &upper.place("instance"))?;
    let model = files::model(upper.text("model"), &upper.place("model"))?;
    let mut wrong = layers.lay_catalogue(&format!("configs/instances/{}.toml", instance.type_name), &instance.settings);
    wrong.extend(layers.lay_catalogue(&format!("configs/models/{}.toml", model.name), &model.settings));
    refuse(Kind::Bug, &wrong)?;
    lay_upper(&mut layers, inputs, file.as_ref())?;
    let settings: Settings =
        toml::Value::Table(layers.table()).try_into().map_err(|e| fail(Kind::Bug, format!("the settings do not fit their types: {}", toml::de::Error::to_string(&e).trim())))?;
    let system_instance = files::instance(&settings.system.instance, &layers.place("system.instance"))?;
    let (platform_name, platform) = files::platform(&settings.platform.set, &layers.place("platform.set"))?;
    let precision = model.precisions.get(&settings.precision).cloned().ok_or_else(|| {
        let known: Vec<_> = model.precisions.keys().map(String::as_str).collect();
        files::unknown("precision", &format!("configs/models/{}.toml", model.name), &settings.precision, &layers.place("precision"), &known)
    })?;
    let compute = files::compute(&settings.compute, &layers.place("compute"))?;
    let overlay = overlay::read(&inputs.working_folder, &layers)?;
    let spec = Spec {
        name: settings.name,
        region: settings.region,
        instance,
        system_instance,
        model,
        precision_name: settings.precision,
        precision,
        compute_name: settings.compute,
        compute,
        platform_name,
        platform,
        network: settings.network,
        system: settings.system,
        gpu: settings.gpu,
        storage: settings.storage,
        hub: super::spec::HubSpec { endpoint: settings.hub.endpoint.trim_end_matches('/').to_owned() },
        images: settings.images,
        weights: settings.weights,
        serve: settings.serve,
        overlay,
        bench: settings.bench,
        wait: settings.wait,
        settings: shaping(&layers),
        price_gpu_hour: (settings.price.gpu_hour > 0.0).then_some(settings.price.gpu_hour),
    };
    Ok((spec, layers))
}

/// Bytes; the sample with every setting is a hundredth of it.
pub(super) const LONGEST: usize = 1_000_000;

/// The bytes of a file, one more than [`LONGEST`] at most. Only a file that was asked for may be a pipe (`--config <(…)`): opening one that nobody writes to does not end.
pub(super) fn read(path: &Path, asked_for: bool) -> std::io::Result<Vec<u8>> {
    if !asked_for && std::fs::metadata(path)?.file_type().is_fifo() {
        return Err(std::io::Error::other("a pipe, not a file; --config reads one"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(LONGEST as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// All but those that say where and with what patience things are made.
fn shaping(layers: &Layers) -> BTreeMap<String, String> {
    const OTHER: [&str; 11] = ["name", "region", "network", "system", "images", "hub", "weights", "render", "bench", "price", "wait"];
    let text = |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let shapes = |key: &str| key.split('.').next().is_some_and(|table| !OTHER.contains(&table));
    layers.iter().filter(|setting| shapes(&setting.key)).map(|setting| (setting.key.clone(), text(&setting.value))).collect()
}

/// `nemo.toml`, if there is one.
fn read_file(inputs: &Inputs) -> anyhow::Result<Option<(PathBuf, String)>> {
    // As the user would type it: the working folder is where they are.
    let (shown, path) = match &inputs.file {
        Some(file) => (file.clone(), inputs.working_folder.join(file)),
        None => (PathBuf::from("nemo.toml"), inputs.working_folder.join("nemo.toml")),
    };
    match read(&path, inputs.file.is_some()) {
        Ok(bytes) if bytes.len() > LONGEST => {
            Err(fail(Kind::Config, format!("{}: larger than {} kB: that is no settings file", shown.display(), LONGEST / 1000)).hint("nemo config init writes one").into())
        }
        Ok(bytes) => {
            let text = String::from_utf8(bytes).map_err(|e| {
                let line = e.as_bytes().iter().take(e.utf8_error().valid_up_to()).filter(|byte| **byte == b'\n').count() + 1;
                fail(Kind::Config, format!("{}:{line}: not UTF-8 text", shown.display()))
            })?;
            Ok(Some((shown, text)))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && inputs.file.is_none() => Ok(None),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(fail(Kind::Config, format!("{}: there is no such file", shown.display())).hint("nemo config init writes one").into())
        }
        Err(e) => Err(anyhow::Error::new(e).context(format!("reading {}", shown.display()))),
    }
}

/// File, environment, flags: in this order, each over the one before.
fn lay_upper(layers: &mut Layers, inputs: &Inputs, file: Option<&(PathBuf, String)>) -> anyhow::Result<()> {
    let mut wrong = file.map(|(path, text)| layers.lay_file(Path::new(path), text)).unwrap_or_default();
    wrong.extend(lay_environment(layers, &inputs.env));
    for (key, value) in &inputs.flags {
        let flag = OWN_FLAGS.iter().find(|(own, _)| own == key).map_or_else(|| format!("--set {key}"), |(_, flag)| (*flag).to_owned());
        wrong.extend(layers.set_text(key, value, Origin::Flag { flag }).err());
    }
    refuse(Kind::Config, &wrong)
}

/// `NEMO_*` over the variables that other tools use too. An empty variable counts as not set.
fn lay_environment(layers: &mut Layers, environment: &[(String, String)]) -> Vec<String> {
    let value_of = |name: &str| environment.iter().find(|(variable, value)| variable == name && !value.is_empty()).map(|(_, value)| value);
    let mut wrong = Vec::new();
    for (variable, key) in OTHERS {
        if let Some(value) = value_of(variable) {
            wrong.extend(layers.set_text(key, value, Origin::Environment { variable: (*variable).into() }).err());
        }
    }
    let known: Vec<(String, String)> = layers.keys().iter().map(|key| (Layers::variable(key), (*key).to_owned())).collect();
    for (variable, key) in &known {
        if let Some(value) = value_of(variable) {
            wrong.extend(layers.set_text(key, value, Origin::Environment { variable: variable.clone() }).err());
        }
    }
    wrong.extend(environment.iter().filter_map(|(variable, value)| misspelt(variable, value, &known)));
    wrong
}

/// Other programs have variables that begin with `NEMO_` too: only one that resembles a setting's is taken for a mistake.
fn misspelt(variable: &str, value: &str, known: &[(String, String)]) -> Option<String> {
    let word = variable.strip_prefix("NEMO_")?;
    let names: Vec<_> = known.iter().filter_map(|(name, _)| name.strip_prefix("NEMO_")).collect();
    // What is secret is no setting, and never shown.
    if names.contains(&word) || word.starts_with("API_KEY") {
        return None;
    }
    let near = resembling(word, &names, 0.75);
    let meant = near.iter().map(|name| format!("NEMO_{name}")).collect::<Vec<_>>().join(" or ");
    (!near.is_empty()).then(|| format!("{variable}={value}: no setting is set by this variable; did you mean {meant}?"))
}

/// All that is wrong at once, a line each.
fn refuse(kind: Kind, wrong: &[String]) -> anyhow::Result<()> {
    if wrong.is_empty() {
        return Ok(());
    }
    Err(fail(kind, wrong.join("\n")).hint("nemo config show lists every setting with its value and where it is from; nemo config schema says what each allows").into())
}

/// Settings that are fine each by itself and wrong together.
pub(super) fn contradictions(spec: &Spec, layers: &Layers) -> Vec<String> {
    let mut wrong = Vec::new();
    let gpus = spec.instance.gpus.as_ref().map_or(0, |gpus| gpus.value);
    if gpus == 0 {
        wrong.push(format!("{}: {} has no GPU", layers.place("instance"), spec.instance.type_name));
    } else {
        wrong.extend(layout::contradictions(spec, layers));
    }
    if spec.system_instance.architecture != "x86_64" {
        wrong.push(format!("{}: the system nodes' type has to be x86_64", layers.place("system.instance")));
    }
    if spec.serve.max_model_len > spec.model.max_model_len.value {
        wrong.push(format!("{}: {} takes at most {}", layers.place("serve.max_model_len"), spec.model.title, spec.model.max_model_len.value));
    }
    wrong.extend(expose::contradictions(spec, layers));
    let versions = (semver::Version::parse(&spec.platform.vllm.version), semver::Version::parse(&spec.model.minimum_vllm.value));
    match versions {
        (Ok(have), Ok(least)) if have >= least => {}
        (Ok(_), Ok(least)) => wrong.push(format!(
            "{}: {} cannot load below vLLM {least}, and set {} has {}",
            layers.place("platform.set"),
            spec.model.title,
            spec.platform_name,
            spec.platform.vllm.version
        )),
        _ => wrong.push(format!("vLLM {} and {} are not both versions", spec.platform.vllm.version, spec.model.minimum_vllm.value)),
    }
    wrong
}
