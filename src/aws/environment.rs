//! What the environment says, before the SDK reads it: it panics at some values and shows others as they lie in memory.

use std::ffi::OsString;

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::future;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_smithy_types::retry::RetryConfig;

use crate::error::{Kind, fail};

/// A variable that is set and is text.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// How often a call is tried, as `AWS_RETRY_MODE` and `AWS_MAX_ATTEMPTS` say.
pub(super) fn retries(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<RetryConfig> {
    let config = match variable("AWS_RETRY_MODE").as_deref() {
        None | Some("standard" | "legacy") => RetryConfig::standard(),
        Some("adaptive") => RetryConfig::adaptive(),
        Some(other) => return Err(fail(Kind::Config, format!("AWS_RETRY_MODE={other}: it is standard or adaptive")).into()),
    };
    let Some(attempts) = variable("AWS_MAX_ATTEMPTS") else { return Ok(config) };
    match attempts.parse() {
        Ok(attempts @ 1..) => Ok(config.with_max_attempts(attempts)),
        _ => Err(fail(Kind::Config, format!("AWS_MAX_ATTEMPTS={attempts}: it is a number from 1")).into()),
    }
}

/// Refuses `AWS_ENDPOINT_URL` and `AWS_ENDPOINT_URL_<SERVICE>` that are no address.
pub(super) fn endpoints(variables: impl Iterator<Item = (OsString, OsString)>) -> anyhow::Result<()> {
    for (name, value) in variables {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        let address = ["http://", "https://"].into_iter().find_map(|scheme| value.strip_prefix(scheme));
        if name.starts_with("AWS_ENDPOINT_URL") && !value.is_empty() && (address.is_none_or(str::is_empty) || !value.chars().all(|letter| letter.is_ascii_graphic())) {
            return Err(fail(Kind::Config, format!("{name}={value}: an endpoint is http:// or https://, then a host")).into());
        }
    }
    Ok(())
}

/// Credentials from wherever they come, refused when no header can carry them.
#[derive(Debug)]
pub(super) struct Checked(pub SharedCredentialsProvider);

impl ProvideCredentials for Checked {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let credentials = self.0.provide_credentials().await?;
            match unusable(&credentials) {
                None => Ok(credentials),
                Some(part) => Err(CredentialsError::invalid_configuration(format!("the {part} holds a space, a line break or another character that none has"))),
            }
        })
    }
}

fn unusable(credentials: &Credentials) -> Option<&'static str> {
    let parts =
        [("access key id", Some(credentials.access_key_id())), ("secret access key", Some(credentials.secret_access_key())), ("session token", credentials.session_token())];
    parts.into_iter().find(|(_, value)| value.is_some_and(|value| !value.chars().all(|letter| letter.is_ascii_graphic()))).map(|(part, _)| part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_retries_are_said_and_never_reach_the_sdk() {
        let of = |mode: Option<&str>, attempts: Option<&str>| {
            let (mode, attempts) = (mode.map(str::to_owned), attempts.map(str::to_owned));
            retries(move |name| if name == "AWS_RETRY_MODE" { mode.clone() } else { attempts.clone() })
        };
        assert_eq!(of(None, None).unwrap().max_attempts(), 3);
        assert_eq!(of(Some("adaptive"), Some("7")).unwrap().max_attempts(), 7);
        for (mode, attempts, word) in [(Some("x"), None, "AWS_RETRY_MODE=x"), (None, Some("0"), "AWS_MAX_ATTEMPTS=0"), (None, Some("-1"), "-1"), (None, Some("x"), "=x")] {
            let error = of(mode, attempts).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn an_endpoint_is_an_address() {
        let of = |value: &str| endpoints([("AWS_ENDPOINT_URL_S3".into(), value.into())].into_iter());
        for right in ["", "http://aws.sandbox:5005", "https://h/p"] {
            assert!(of(right).is_ok(), "{right}");
        }
        for wrong in ["nope", "http://", "ftp://h", "http://a b"] {
            assert!(of(wrong).unwrap_err().to_string().contains("AWS_ENDPOINT_URL_S3="), "{wrong}");
        }
    }

    #[test]
    fn credentials_that_no_header_carries_are_refused_by_name_and_not_shown() {
        let of = |id: &str, secret: &str, token: Option<&str>| unusable(&Credentials::new(id, secret, token.map(str::to_owned), None, "test"));
        assert_eq!(of("AKIA", "a/b+c=", Some("t")), None);
        assert_eq!(of("AKIA\n", "s", None), Some("access key id"));
        assert_eq!(of("AKIA", "é", None), Some("secret access key"));
        assert_eq!(of("AKIA", "s", Some("a b")), Some("session token"));
    }
}
