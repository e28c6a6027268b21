//! Every model in every precision, topology and form that the settings allow: for manifests that are read and checked as a whole.

use super::files;
use super::layers::Origin;
use super::load::{Inputs, contradictions, resolve};
use super::spec::Spec;
use super::topology::{FormSetting, Topology};

/// What there is, each by the name of its folder, and what cannot be, with the reason.
#[derive(Debug, Default)]
pub struct Every {
    pub specs: Vec<(String, Spec)>,
    pub refused: Vec<(String, String)>,
}

/// A model, precision, topology or form that is given as a flag is the only one.
pub fn every(inputs: &Inputs) -> anyhow::Result<Every> {
    let given = |key: &str| inputs.flags.iter().any(|(given, _)| given == key);
    // First as they are: a setting that is wrong is told once, not for every model.
    let settings = resolve(inputs)?.0;
    let mut all = Every::default();
    for model in files::model_names().filter(|model| !given("model") || *model == settings.model.name) {
        for precision in files::model(model, "--all")?.precisions.into_keys().filter(|precision| !given("precision") || *precision == settings.precision_name) {
            let mut of = inputs.clone();
            of.flags.extend([("model".to_owned(), model.to_owned()), ("precision".to_owned(), precision.clone())]);
            let (spec, layers) = resolve(&of)?;
            for topology in Topology::ALL.into_iter().filter(|topology| !given("serve.topology") || *topology == settings.serve.topology) {
                for form in topology.forms(spec.encode_worker()).into_iter().filter(|form| !given("serve.form") || *form == settings.form().0) {
                    let (mut spec, mut layers) = (spec.clone(), layers.clone());
                    (spec.serve.topology, spec.serve.form) = (topology, FormSetting::As(form));
                    // What is refused is told with these, not with the settings that they take the place of.
                    for (key, value) in [("serve.topology", topology.to_string()), ("serve.form", form.to_string())] {
                        layers.set_text(key, &value, Origin::Flag { flag: "--all".to_owned() }).map_err(anyhow::Error::msg)?;
                    }
                    let name = format!("{model}-{precision}/{topology}-{form}");
                    match contradictions(&spec, &layers).as_slice() {
                        [] => all.specs.push((name, spec)),
                        wrong => all.refused.push((name, wrong.join("; "))),
                    }
                }
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(flags: &[(&str, &str)]) -> Every {
        let flags = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        every(&Inputs { working_folder: std::env::temp_dir().join("nowhere"), flags, ..Inputs::default() }).unwrap()
    }

    #[test]
    fn each_model_is_there_or_refused_with_its_reason() {
        let all = of(&[("gpu.nodes", "3")]);
        for model in files::model_names() {
            let name = |(name, _): &(String, Spec)| name.starts_with(model);
            assert!(all.specs.iter().any(name), "{model}: {:?}", all.refused);
        }
        assert!(all.specs.iter().all(|(name, spec)| *name == format!("{}-{}/{}-{}", spec.model.name, spec.precision_name, spec.serve.topology, spec.form().0)));
        assert!(all.refused.iter().all(|(_, why)| !why.is_empty()));
    }

    #[test]
    fn what_is_given_is_the_only_one() {
        let flags = [("model", "nemotron-3.5-super-vl"), ("precision", "bf16"), ("serve.topology", "disaggregated"), ("gpu.nodes", "3")];
        let all = of(&flags);
        let names: Vec<_> = all.specs.iter().map(|(name, _)| name.as_str()).collect();
        let forms = ["deployments", "dgd-v1alpha1", "dgd-v1beta1", "dgd-grove"];
        assert_eq!(names, forms.map(|form| format!("nemotron-3.5-super-vl-bf16/disaggregated-{form}")));
        assert!(
            of(&[("gpu.nodes", "1")])
                .refused
                .iter()
                .any(|(name, why)| name.ends_with("pipeline-parallel-lws") && why.contains(r#"serve.topology = "pipeline-parallel": 1 worker(s) of 2 node(s) take 2 GPU nodes"#))
        );
    }
}
