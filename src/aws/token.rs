//! The bearer token of an EKS cluster: a pre-signed STS GetCallerIdentity with the cluster's name among the signed headers.
//!
//! Signed in the process, as `aws eks get-token` and aws-iam-authenticator do it; STS is not called by us but by EKS.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SignatureLocation, SigningSettings, sign};
use aws_sigv4::sign::v4;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};

use super::Aws;
use crate::error::ServiceError;
use crate::secret::Secret;

/// EKS takes a token for 15 minutes after it was signed; a minute is left for clocks that differ.
const LIFE: SignedDuration = SignedDuration::from_mins(14);
/// Of the pre-signed URL itself; EKS uses it at once.
const URL_EXPIRES: Duration = Duration::from_secs(60);

/// A token and until when it may be used.
#[derive(Debug, Clone)]
pub struct Token {
    pub value: Secret,
    pub expires: Timestamp,
}

impl Aws {
    /// A token for the cluster of this name, signed now with the present credentials.
    pub async fn cluster_token(&self, cluster: &str, now: Timestamp) -> Result<Token, ServiceError> {
        let provider = self.config.credentials_provider().ok_or_else(|| failed("CredentialsNotLoaded", "no credentials are configured"))?;
        let credentials = provider.provide_credentials().await.map_err(|error| failed("CredentialsNotLoaded", &causes(&error)))?;
        signed(credentials, &self.region, cluster, now)
    }
}

fn signed(credentials: Credentials, region: &str, cluster: &str, now: Timestamp) -> Result<Token, ServiceError> {
    // Credentials that end sooner end the token, too.
    let until = credentials.expiry().and_then(|at| Timestamp::try_from(at).ok());
    let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    let url = format!("https://sts.{region}.{suffix}/?Action=GetCallerIdentity&Version=2011-06-15");
    let mut settings = SigningSettings::default();
    settings.signature_location = SignatureLocation::QueryParams;
    settings.expires_in = Some(URL_EXPIRES);
    let identity = credentials.into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name("sts")
        .time(SystemTime::from(now))
        .settings(settings)
        .build()
        .map_err(|error| failed("SigningFailed", &error.to_string()))?
        .into();
    let request =
        SignableRequest::new("GET", &url, [("x-k8s-aws-id", cluster)].into_iter(), SignableBody::Bytes(&[])).map_err(|error| failed("SigningFailed", &error.to_string()))?;
    let (instructions, _signature) = sign(request, &params).map_err(|error| failed("SigningFailed", &error.to_string()))?.into_parts();
    let mut presigned = http::Request::get(&url).body(()).map_err(|error| failed("SigningFailed", &error.to_string()))?;
    instructions.apply_to_request_http1x(&mut presigned);
    let value = format!("k8s-aws-v1.{}", URL_SAFE_NO_PAD.encode(presigned.uri().to_string()));
    let expires = until.map_or(now + LIFE, |until| until.min(now + LIFE));
    Ok(Token { value: Secret::new(value), expires })
}

fn failed(code: &str, message: &str) -> ServiceError {
    ServiceError { service: "sts".into(), operation: "signing GetCallerIdentity".into(), code: code.into(), message: message.into(), request_id: None, status: None }
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The very URL that botocore 1.44.8 pre-signs for the same keys, time and cluster (`RequestSigner.generate_presigned_url`).
    #[test]
    fn is_what_the_aws_cli_signs() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let credentials = Credentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None, None, "test");
        let token = signed(credentials, "us-east-2", "nemo", now).unwrap();
        assert_eq!(token.expires, "2026-11-30T12:14:00Z".parse().unwrap());
        let url = URL_SAFE_NO_PAD.decode(token.value.reveal().strip_prefix("k8s-aws-v1.").unwrap()).unwrap();
        let url = String::from_utf8(url).unwrap();
        let (head, signature) = url.rsplit_once("&X-Amz-Signature=").unwrap();
        assert_eq!(
            head,
            "https://sts.us-east-2.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Algorithm=AWS4-HMAC-SHA256\
             &X-Amz-Credential=AKIDEXAMPLE%2F20261130%2Fus-east-2%2Fsts%2Faws4_request&X-Amz-Date=20261130T120000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host%3Bx-k8s-aws-id"
        );
        assert_eq!(signature, "c36407881b151762a35721d20d2802a234d65ba567897c14b36b241ddf6b92b4");
    }

    #[test]
    fn ends_with_the_credentials() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let soon: Timestamp = "2026-11-30T12:05:00Z".parse().unwrap();
        let credentials = Credentials::new("ASIAEXAMPLE", "secret", Some("session".into()), Some(soon.into()), "test");
        let token = signed(credentials, "us-east-2", "nemo", now).unwrap();
        assert_eq!(token.expires, soon);
        assert_eq!(format!("{token:?}").matches("[redacted]").count(), 1);
    }
}
