//! Who reaches the model from outside the cluster, and what that needs.

use serde::{Deserialize, Serialize};

use super::catalogue::ImageSource;
use super::layers::Layers;
use super::spec::Spec;

/// How a certificate is made that nobody else vouches for: what a refusal tells to type.
const OPENSSL: &str = "openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj /CN=nemo -addext subjectAltName=DNS:nemo.example.com -keyout tls.key -out tls.crt";

/// Who reaches the model from outside the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Expose {
    /// Nobody.
    No,
    /// The VPC and what is connected to it.
    Internal,
    /// The internet, as far as the allowed networks go.
    Public,
}

impl Spec {
    /// Is there a gateway?
    pub fn exposed(&self) -> bool {
        self.serve.expose != Expose::No
    }

    /// The networks that may connect to it: what is set, or the VPC's own.
    pub fn allowed_cidrs(&self) -> Vec<String> {
        let set = if self.serve.allowed_cidrs.is_empty() { &self.network.cidr } else { &self.serve.allowed_cidrs };
        set.split(',').map(str::to_owned).collect()
    }

    /// The images of this deployment, by name: nginx's only where something stands behind it, the router's only where pictures are sent to vLLM's encoders.
    pub fn images(&self) -> impl Iterator<Item = (&String, &ImageSource)> {
        let (nginx, router) = (self.exposed() || self.splits_by_vllm(), self.splits_by_vllm());
        self.platform.images.iter().filter(move |(_, image)| match image.needed_by.as_str() {
            "gateway" => nginx,
            "encode" => router,
            _ => true,
        })
    }
}

/// What is missing or said twice where the model is exposed.
pub(super) fn contradictions(spec: &Spec, layers: &Layers) -> Vec<String> {
    let (serve, mut wrong) = (&spec.serve, Vec::new());
    if !spec.exposed() {
        return wrong;
    }
    if serve.expose == Expose::Public && serve.allowed_cidrs.is_empty() {
        wrong.push(format!(
            "{}: serve.allowed_cidrs has to say which networks may connect, such as 203.0.113.0/24 (0.0.0.0/0 is everybody: it has to be written)",
            layers.place("serve.expose")
        ));
    }
    match (serve.tls_certificate.is_empty(), serve.tls_key.is_empty(), serve.tls_secret.is_empty()) {
        (false, false, true) | (true, true, false) => {}
        (_, _, false) => wrong.push(format!("{}: serve.tls_certificate and serve.tls_key say the same: set the files or the Secret", layers.place("serve.tls_secret"))),
        _ => wrong.push(format!(
            "{}: no TLS certificate: set serve.tls_certificate and serve.tls_key (PEM files), or serve.tls_secret. One that your clients are told to trust: {OPENSSL}",
            layers.place("serve.expose")
        )),
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::super::load::{Inputs, load};
    use super::*;

    fn loaded(flags: &[(&str, &str)]) -> Result<Spec, String> {
        let flags = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        // A key in the environment is no setting.
        let env = vec![("NEMO_API_KEY".to_owned(), "sk-secret".to_owned()), ("NEMO_API_KEY_FILE".to_owned(), "f".to_owned())];
        load(&Inputs { working_folder: std::env::temp_dir().join("nowhere"), env, flags, ..Inputs::default() }).map(|(spec, _)| spec).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_is_exposed_unless_asked_for() {
        let spec = loaded(&[]).unwrap();
        assert!(!spec.exposed());
        assert!(spec.images().all(|(name, _)| name != "gateway" && name != "picture-router"));
        assert_eq!(spec.images().count() + 2, spec.platform.images.len());
    }

    #[test]
    fn what_an_exposed_model_needs_is_asked_for() {
        let tls = ("serve.tls_secret", "t");
        for (flags, words) in [
            (&[("serve.expose", "public"), tls][..], "serve.allowed_cidrs has to say"),
            (&[("serve.expose", "internal")], "openssl req -x509"),
            (&[("serve.expose", "internal"), ("serve.tls_key", "k")], "no TLS certificate"),
            (&[("serve.expose", "internal"), ("serve.tls_key", "k"), tls], "say the same"),
            (&[("serve.expose", "yes"), tls], "must be no, internal or public"),
        ] {
            let said = loaded(flags).unwrap_err();
            assert!(said.contains(words) && said.starts_with("--"), "{flags:?}: {said}");
        }
        let spec = loaded(&[("serve.expose", "internal"), tls]).unwrap();
        assert_eq!((spec.allowed_cidrs(), spec.images().count()), (vec!["10.180.0.0/16".to_owned()], spec.platform.images.len() - 1));
        let spec =
            loaded(&[("serve.expose", "public"), ("serve.allowed_cidrs", "203.0.113.0/24,198.51.100.7/32"), ("serve.tls_certificate", "c"), ("serve.tls_key", "k")]).unwrap();
        assert_eq!(spec.allowed_cidrs(), ["203.0.113.0/24", "198.51.100.7/32"]);
    }
}
