//! What stands before the frontend where the model is exposed: neither Dynamo's frontend nor vLLM's worker checks a key or speaks TLS.

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::environment::{Rendered, Templates, Text};
use super::serving::Serving;
use crate::config::{Expose, Overlay, Spec};

/// Of Service, Deployment and configuration.
pub const GATEWAY: &str = "gateway";
/// Of the Secret with the API key, which is in no manifest.
pub const KEY_SECRET: &str = "gateway-key";
/// Of the Secret with the certificate, where nemo makes it from files.
pub const TLS_SECRET: &str = "gateway-tls";

/// What its manifests are made from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gateway {
    pub namespace: String,
    /// The load balancer carries it as a tag, so that it is known for ours.
    pub deployment: String,
    /// The frontend's Service.
    pub service: String,
    pub port: u16,
    /// Pinned by digest.
    pub image: String,
    pub public: bool,
    pub cidrs: Vec<String>,
    pub key_secret: &'static str,
    pub tls_secret: String,
}

impl Gateway {
    /// Before this frontend.
    pub fn new(spec: &Spec, serving: &Serving, image: String) -> Self {
        Self {
            namespace: serving.namespace.clone(),
            deployment: spec.name.clone(),
            service: serving.service.clone(),
            port: serving.port,
            image,
            public: spec.serve.expose == Expose::Public,
            cidrs: spec.allowed_cidrs(),
            key_secret: KEY_SECRET,
            tls_secret: if spec.serve.tls_secret.is_empty() { TLS_SECRET.to_owned() } else { spec.serve.tls_secret.clone() },
        }
    }

    pub(super) fn text(&self, templates: &Templates) -> anyhow::Result<Text> {
        #[derive(Serialize)]
        struct Values<'a> {
            #[serde(flatten)]
            gateway: &'a Gateway,
            config: &'a str,
            config_digest: String,
        }
        let (config, users) = templates.text("gateway.conf", self)?;
        let config_digest = digest(&config);
        let mut text = templates.render("gateway.yaml", &Values { gateway: self, config: &config, config_digest })?;
        text.overlays.extend(users);
        Ok(text)
    }
}

/// Of a configuration: pods that read it once are made anew with another.
pub(super) fn digest(config: &str) -> String {
    Sha256::digest(config).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Configuration, Service, Deployment and disruption budget; the Secrets are no part of it.
pub fn gateway(values: &Gateway) -> anyhow::Result<Rendered> {
    values.text(&Templates::with(&Overlay::default())?)?.parsed()
}

/// The line of nginx's map that knows a key: exactly this text after `Bearer`, and no other case of it. The key has no character that could end the quotes.
pub fn key_map(key: &str) -> String {
    format!("\"~^(?i:bearer) \\Q{key}\\E$\" 1;\n")
}
