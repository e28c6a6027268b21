//! What a manifest is measured by: the catalogue under `configs/`, figures of the lint's own, the flags of the real parsers.

use semver::Version;
use serde::Deserialize;

use super::command::{Line, Program};
use super::flags::Flags;
use super::workload::{Container, Pod};
use crate::config::{self, Figure, Instance, Modality, Model, Precision};
use crate::error::{Kind, fail};

/// The lint's own figures (`configs/lint.toml`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    pub read_mb_s: Figure<u64>,
    pub kv_lease_s: Figure<u64>,
    pub engine_ready_s: Figure<u64>,
    pub execute_model_s: Figure<u64>,
    hybrid: Figure<Vec<String>>,
    transformer: Figure<Vec<String>>,
    vision: Figure<Vec<String>>,
    pins: Vec<Pin>,
}

/// The vLLM of a release of Dynamo.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pin {
    /// Major and minor.
    dynamo: String,
    vllm: Version,
    #[expect(dead_code, reason = "for whoever reads the file")]
    source: String,
    #[expect(dead_code, reason = "for whoever reads the file")]
    read: String,
}

/// All of it.
#[derive(Debug)]
pub struct Known {
    pub figures: Figures,
    pub flags: Flags,
    instances: Vec<Instance>,
    models: Vec<Model>,
}

/// Versions of what an image holds, as far as its tag or a label says.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Versions {
    pub dynamo: Option<Version>,
    pub vllm: Option<Version>,
}

impl Known {
    /// From the files that are compiled in.
    pub fn load() -> anyhow::Result<Self> {
        let figures = toml::from_str(include_str!("../../configs/lint.toml")).map_err(|error| fail(Kind::Bug, format!("configs/lint.toml, compiled in: {error}")))?;
        const ASKS: &str = "the lint";
        let instances = config::instance_names().map(|name| config::instance(name, ASKS)).collect::<anyhow::Result<_>>()?;
        let models = config::model_names().map(|name| config::model(name, ASKS)).collect::<anyhow::Result<_>>()?;
        Ok(Self { figures, flags: Flags::load(), instances, models })
    }

    /// The instance types with GPUs that the pod can mean: those it names, else those that have as many GPUs as one of its containers asks for.
    pub fn instances_of(&self, pod: &Pod<'_>) -> Vec<&Instance> {
        let named = pod.instance_types();
        let gpus = pod.gpus();
        let all = self.instances.iter().filter(|instance| instance.gpus.is_some());
        match named.is_empty() {
            true => all.filter(|instance| gpus > 0 && gpus == gpus_of(instance)).collect(),
            false => all.filter(|instance| named.contains(&instance.type_name.as_str())).collect(),
        }
    }

    /// The catalogue's model and precision that a path or a name means: the longest repository that is a part of it.
    pub fn model(&self, name: &str) -> Option<(&Model, &str, &Precision)> {
        let name = name.to_lowercase();
        let all = self.models.iter().flat_map(|model| model.precisions.iter().map(move |(precision, figures)| (model, precision.as_str(), figures)));
        all.filter(|(.., figures)| name.contains(&basename(&figures.repository).to_lowercase())).max_by_key(|(.., figures)| figures.repository.len())
    }

    /// Does the model keep Mamba states? None: nobody knows.
    pub fn hybrid(&self, name: &str) -> Option<bool> {
        let is = |parts: &[String]| contains(name, parts);
        if let Some((model, ..)) = self.model(name) {
            return Some(model.architecture.pattern.contains('M'));
        }
        if is(&self.figures.hybrid.value) {
            return Some(true);
        }
        is(&self.figures.transformer.value).then_some(false)
    }

    /// Does the model take pictures?
    pub fn vision(&self, line: &Line) -> bool {
        let takes = |name| match self.model(name) {
            Some((model, ..)) => model.modality != Modality::Text,
            None => contains(name, &self.figures.vision.value),
        };
        line.flag(&["--enable-multimodal"]).is_some() || line.model().is_some_and(takes)
    }

    /// By the image's tag, or by what the pod says beside it.
    pub fn versions(&self, pod: &Pod<'_>, container: &Container<'_>) -> Versions {
        let tag = tag(container.image()).and_then(version);
        let label = || pod.label("app.kubernetes.io/version").and_then(version);
        let name = container.image().rsplit('/').next().unwrap_or_default();
        let dynamo_image = ["vllm-runtime", "dynamo"].iter().any(|part| name.contains(part));
        if name.starts_with("vllm-openai") || (container.line.program == Some(Program::Vllm) && !dynamo_image) {
            return Versions { dynamo: None, vllm: tag };
        }
        let dynamo = tag.filter(|_| dynamo_image).or_else(label);
        let vllm = dynamo.as_ref().and_then(|dynamo| self.figures.pins.iter().find(|pin| pin.dynamo == format!("{}.{}", dynamo.major, dynamo.minor)));
        Versions { vllm: vllm.map(|pin| pin.vllm.clone()), dynamo }
    }
}

/// GPUs of an instance.
pub fn gpus_of(instance: &Instance) -> u64 {
    instance.gpus.as_ref().map_or(0, |gpus| gpus.value.into())
}

/// EFA adapters of an instance.
pub fn efa_of(instance: &Instance) -> u64 {
    instance.efa.as_ref().map_or(0, |efa| efa.value.into())
}

fn basename(repository: &str) -> &str {
    repository.rsplit('/').next().unwrap_or(repository)
}

fn contains(name: &str, parts: &[String]) -> bool {
    let name = name.to_lowercase();
    parts.iter().any(|part| name.contains(&part.to_lowercase()))
}

/// The tag of an image's reference: none with a digest alone.
pub fn tag(image: &str) -> Option<&str> {
    let name = image.split('@').next()?.rsplit('/').next()?;
    name.split_once(':').map(|(_, tag)| tag)
}

/// `1.4.0-efa`, `v0.29.0`, `1.6` as versions; what comes behind the numbers is left out.
pub fn version(text: &str) -> Option<Version> {
    let numbers: String = text.trim_start_matches('v').chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let mut parts = numbers.trim_end_matches('.').split('.').map(str::parse);
    let version = Version::new(parts.next()?.ok()?, parts.next()?.ok()?, parts.next().unwrap_or(Ok(0)).ok()?);
    Some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_tags() {
        let known = |image: &str| tag(image).and_then(version).map(|version| version.to_string());
        assert_eq!(known("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.4.0-efa").as_deref(), Some("1.4.0"));
        assert_eq!(known("registry:5000/vllm-openai:v0.29.0@sha256:00").as_deref(), Some("0.29.0"));
        assert_eq!(known("registry:5000/vllm-openai@sha256:00"), None);
        assert_eq!(known("vllm-openai:latest"), None);
    }

    #[test]
    fn a_model_is_known_by_path_and_by_name() {
        let known = Known::load().unwrap();
        for name in ["nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16", "/shared/models/nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16/0123"] {
            let (model, precision, _) = known.model(name).unwrap();
            assert_eq!((model.name.as_str(), precision), ("nemotron-3.5-super-vl", "bf16"));
        }
        assert_eq!([known.hybrid("/m/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16"), known.hybrid("meta-llama/Llama-3.1-8B"), known.hybrid("x/y")], [Some(true), Some(false), None]);
    }
}
