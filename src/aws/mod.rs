//! AWS: one file per service; SDK types stop here. Every call returns our types or a [`ServiceError`].

pub mod addons;
pub mod cloudformation;
pub mod ec2;
pub mod ecr;
pub mod eks;
pub mod eni;
mod environment;
mod error;
pub mod fsx;
pub mod pricing;
pub mod quotas;
pub mod sts;
pub mod tagging;
mod token;

use std::time::Duration;

use anyhow::Context;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::{ConnectorBuilder, tls};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_types::timeout::TimeoutConfig;

pub use error::{Answer, describe};
pub use token::Token;

use crate::error::{Kind, fail};

/// Tag of everything that we make: the deployment's name.
pub const TAG_DEPLOYMENT: &str = "nemo:deployment";
/// Tag of what was made from settings: their digest.
pub const TAG_INPUTS: &str = "nemo:inputs";

/// Until a connection must stand.
const CONNECT: Duration = Duration::from_secs(10);
/// Until a call must be answered, each time that it is tried. No call that we make waits for work to be done.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// An account and a region, with the clients of the services.
#[derive(Debug, Clone)]
pub struct Aws {
    pub region: String,
    pub(crate) config: SdkConfig,
}

impl Aws {
    /// Loads credentials and region the way every AWS tool does. No call is made yet.
    pub async fn load(region: &str) -> anyhow::Result<Self> {
        // One HTTP client for all services: each would else have connections and a TLS set-up of its own.
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http_client())
            .app_name(aws_config::AppName::new("nemo").context("the name is well-formed")?)
            .retry_config(environment::retries(environment::variable)?)
            .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(ANSWER_LIMIT).build());
        environment::endpoints(std::env::vars_os())?;
        if !region.is_empty() {
            loader = loader.region(Region::new(region.to_owned()));
        }
        let config = loader.load().await;
        let Some(credentials) = config.credentials_provider() else { return Self::of(config) };
        let checked = SharedCredentialsProvider::new(environment::Checked(credentials));
        Self::of(config.into_builder().credentials_provider(checked).build())
    }

    /// Of settings that are at hand.
    pub fn of(config: SdkConfig) -> anyhow::Result<Self> {
        let region =
            config.region().map(ToString::to_string).ok_or_else(|| fail(Kind::Config, "no region is set").hint("set AWS_REGION, region in nemo.toml, or --region us-east-2"))?;
        Ok(Self { region, config })
    }
}

/// As the SDK makes it when it is not told: rustls, proxies as the environment says.
fn http_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().build_with_connector_fn(|settings, components| {
        let mut connector = ConnectorBuilder::default().tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::AwsLc));
        connector.set_connector_settings(settings.cloned());
        if let Some(components) = components {
            connector.set_sleep_impl(components.sleep_impl());
        }
        connector.set_proxy_config(Some(ProxyConfig::from_env()));
        connector.build()
    })
}
