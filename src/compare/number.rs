//! The numbers that are compared, under the names that `--fail-if` takes: `ttft.p95`, `itl.avg`, `tokens`.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::bench::level::Level;
use crate::bench::measure::{Estimate, Metric, Statistic};

/// One number of a level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Milliseconds; lower is better.
    Time(Metric, Statistic),
    /// Output tokens a second; higher is better.
    Tokens,
}

/// What is compared when nobody asks for more.
pub fn usual() -> Vec<Number> {
    let percentiles = [50.0, 95.0, 99.0].map(Statistic::Percentile);
    let times = [Metric::Ttft, Metric::Itl].into_iter().flat_map(|metric| percentiles.map(|statistic| Number::Time(metric, statistic)));
    times.chain([Number::Tokens]).collect()
}

impl Number {
    /// The best comes first.
    pub fn rank(self, value: f64) -> f64 {
        match self {
            Self::Time(..) => value,
            Self::Tokens => -value,
        }
    }

    /// None: not measured.
    pub fn of(self, level: &Level) -> Option<Estimate> {
        match self {
            Self::Time(metric, statistic) => Estimate::of(metric.values(level), statistic),
            Self::Tokens => Estimate::of_throughput(level),
        }
    }

    /// `TTFT p95, ms`
    pub fn title(self) -> String {
        match self {
            Self::Time(metric, statistic) => format!("{metric} {statistic}, ms"),
            Self::Tokens => "output tokens a second".into(),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(metric, statistic) => write!(f, "{}.{statistic}", metric.to_string().to_lowercase()),
            Self::Tokens => f.write_str("tokens"),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Number {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = "known are ttft.p95 (any percentile, avg), itl.p95, latency.p95 and tokens (output tokens a second)";
        if text == "tokens" {
            return Ok(Self::Tokens);
        }
        let (metric, statistic) = text.split_once('.').ok_or_else(|| format!("{text:?} is not measured; {known}"))?;
        let metric = [Metric::Ttft, Metric::Itl, Metric::Latency].into_iter().find(|known| known.to_string().to_lowercase() == metric);
        let metric = metric.ok_or_else(|| format!("{text:?} is not measured; {known}"))?;
        Ok(Self::Time(metric, statistic.parse().map_err(|why| format!("{text:?}: {why}; {known}"))?))
    }
}
