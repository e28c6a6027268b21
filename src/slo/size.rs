//! How many deployments a target takes, and what they cost.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// What all deployments together have to deliver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    OutputTokens(f64),
    Requests(f64),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| c.is_alphabetic() || c == '/');
        let value = digits.trim().parse::<f64>().ok().filter(|value| *value > 0.0 && value.is_finite());
        match (value, &text[digits.len()..]) {
            (Some(value), "tok/s") => Ok(Self::OutputTokens(value)),
            (Some(value), "req/s") => Ok(Self::Requests(value)),
            _ => Err("write it as 5000tok/s (output tokens) or 20req/s".into()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutputTokens(value) => write!(f, "{value} output tokens/s"),
            Self::Requests(value) => write!(f, "{value} requests/s"),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What the runs were measured on.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Deployment {
    /// `1 prefill worker and 1 decode worker`
    pub workers: String,
    pub nodes: u32,
    pub gpus: u32,
    pub instance: String,
    /// Of all its nodes; none: the price is not known.
    pub usd_per_hour: Option<f64>,
}

/// A number of deployments, and what that comes to.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Size {
    #[schemars(with = "String")]
    pub target: Target,
    /// Share of what was measured that is left for peaks.
    pub headroom: f64,
    pub deployments: u32,
    /// With one more, in case one of them is lost.
    pub with_one_to_spare: u32,
    pub nodes: u32,
    pub gpus: u32,
    pub usd_per_hour: Option<f64>,
    /// Of output, at the target.
    pub usd_per_million_tokens: Option<f64>,
}

impl Size {
    /// `tokens`, `requests`: a second, of one deployment within the budgets.
    pub fn of(target: Target, headroom: f64, deployment: &Deployment, tokens: f64, requests: f64) -> Option<Self> {
        let (wanted, each) = match target {
            Target::OutputTokens(wanted) => (wanted, tokens),
            Target::Requests(wanted) => (wanted, requests),
        };
        let count = (wanted / (each * (1.0 - headroom))).ceil();
        // What no number of machines can do is no size.
        let deployments = Some(count).filter(|count| *count >= 1.0 && *count < 1e6).map(|count| count as u32)?;
        let usd_per_hour = deployment.usd_per_hour.map(|usd| usd * f64::from(deployments));
        let delivered = wanted / each * tokens;
        Some(Self {
            target,
            headroom,
            deployments,
            with_one_to_spare: deployments + 1,
            nodes: deployments * deployment.nodes,
            gpus: deployments * deployment.gpus,
            usd_per_hour,
            usd_per_million_tokens: usd_per_hour.map(|usd| usd / (delivered * 3600.0) * 1e6),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(usd_per_hour: Option<f64>) -> Deployment {
        Deployment { workers: "1 worker".into(), nodes: 1, gpus: 8, instance: "p5en.48xlarge".into(), usd_per_hour }
    }

    #[test]
    fn targets_are_read_with_their_unit() {
        assert_eq!("5000tok/s".parse(), Ok(Target::OutputTokens(5000.0)));
        assert_eq!("2.5 req/s".parse(), Ok(Target::Requests(2.5)));
        for text in ["5000", "tok/s", "-1tok/s", "0tok/s", "5tok", "infreq/s"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_target_takes_whole_deployments() {
        let size = |target, headroom| Size::of(target, headroom, &deployment(Some(60.0)), 488.5, 10.2).unwrap();
        let tokens = size(Target::OutputTokens(5000.0), 0.0);
        assert_eq!((tokens.deployments, tokens.with_one_to_spare, tokens.nodes, tokens.gpus, tokens.usd_per_hour), (11, 12, 11, 88, Some(660.0)));
        assert!((tokens.usd_per_million_tokens.unwrap() - 660.0 / 18.0).abs() < 1e-9, "660 dollars for 18 million tokens an hour");
        assert_eq!(size(Target::OutputTokens(5000.0), 0.2).deployments, 13);
        assert_eq!(size(Target::OutputTokens(488.5), 0.0).deployments, 1);
        assert_eq!(size(Target::Requests(10.3), 0.0).deployments, 2);
        assert_eq!(Size::of(Target::Requests(1.0), 0.0, &deployment(None), 0.0, 0.0), None);
        assert_eq!(Size::of(Target::Requests(1.0), 0.0, &deployment(None), 5.0, 1.0).unwrap().usd_per_hour, None);
    }
}
