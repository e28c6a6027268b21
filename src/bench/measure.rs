//! What is measured of each request, which number over all of them, and between which values that number lies.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::level::Level;
use super::stats::percentile;

/// What is measured of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Time to first token.
    Ttft,
    /// Inter-token latency, one value a request.
    Itl,
    /// The whole answer.
    Latency,
}

impl Metric {
    /// Milliseconds of each request, sorted.
    pub fn values(self, level: &Level) -> &[f64] {
        match self {
            Self::Ttft => &level.ttft_ms,
            Self::Itl => &level.itl_ms,
            Self::Latency => &level.latency_ms,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ttft => "TTFT",
            Self::Itl => "ITL",
            Self::Latency => "latency",
        })
    }
}

/// Which number over all requests.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub enum Statistic {
    /// Between 0 and 100.
    Percentile(f64),
    Average,
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percentile(percent) => write!(f, "p{percent}"),
            Self::Average => f.write_str("avg"),
        }
    }
}

impl Serialize for Statistic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Statistic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let "avg" | "mean" = text {
            return Ok(Self::Average);
        }
        let percent = text.strip_prefix('p').and_then(|percent| percent.parse::<f64>().ok()).ok_or_else(|| format!("{text:?} is no statistic"))?;
        if !(percent > 0.0 && percent < 100.0) {
            return Err(format!("p{percent} is no percentile: they lie between 0 and 100"));
        }
        Ok(Self::Percentile(percent))
    }
}

/// A number with what it may be in another run: between these it lies in 95 of 100.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Infinite where so many requests failed.
    pub value: f64,
    pub low: f64,
    /// Infinite where there were too few requests to say how high it may be.
    pub high: f64,
    /// The slowest request.
    pub slowest: f64,
}

/// 1.96 standard deviations hold 95 of 100.
const DEVIATIONS: f64 = 1.96;

impl Estimate {
    /// Of sorted values; none of no values.
    pub fn of(sorted: &[f64], statistic: Statistic) -> Option<Self> {
        let slowest = *sorted.last()?;
        let (value, low, high) = match statistic {
            Statistic::Percentile(percent) => between(sorted, percent / 100.0),
            Statistic::Average => average(sorted),
        };
        Some(Self { value, low, high, slowest })
    }

    /// Of output tokens a second. With a number of requests always under way, throughput is that number over the mean latency (Little's law), so the mean's error is its error.
    pub fn of_throughput(level: &Level) -> Option<Self> {
        let (rate, latency) = (level.numbers.output_tokens_per_second, level.numbers.latency_ms.as_ref()?);
        let count = latency.count as f64;
        let error = DEVIATIONS * latency.std / (count - 1.0).max(1.0).sqrt() / latency.avg;
        let (low, high) = (rate / (1.0 + error), if error < 1.0 { rate / (1.0 - error) } else { f64::INFINITY });
        Some(Self { value: rate, low, high, slowest: high })
    }

    /// Too few requests to say how high it may be.
    pub fn few(&self) -> bool {
        self.low.is_finite() && self.high.is_infinite()
    }

    /// How high it may be; where nobody can say, the slowest request stands in.
    pub fn highest(&self) -> f64 {
        if self.high.is_finite() { self.high } else { self.slowest }
    }
}

/// A percentile and the values between which it lies: those of the ranks that a binomial distribution gives, whatever the values are distributed like.
fn between(sorted: &[f64], share: f64) -> (f64, f64, f64) {
    let count = sorted.len() as f64;
    let (middle, spread) = (count * share, DEVIATIONS * (count * share * (1.0 - share)).sqrt());
    let rank = |rank: f64| if rank < 1.0 { sorted[0] } else { sorted.get(rank as usize - 1).copied().unwrap_or(f64::INFINITY) };
    (percentile(sorted, share), rank((middle - spread).floor()), rank((middle + spread).ceil() + 1.0))
}

fn average(values: &[f64]) -> (f64, f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if mean.is_infinite() {
        return (mean, mean, mean);
    }
    let error = DEVIATIONS * (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0) / count).sqrt();
    (mean, mean - error, mean + error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_lies_between_order_statistics() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        // Binomial(100, 0.5): 95 of 100 lie between 40 and 60; R's quantile-CI gives ranks 40 and 61.
        assert_eq!(between(&values, 0.5), (50.5, 40.0, 61.0));
        let (p99, low, high) = between(&values, 0.99);
        assert!(p99 > 99.0 && low >= 97.0 && high.is_infinite(), "a hundred requests say nothing of what is above their p99: {low} {high}");
        assert_eq!(between(&[1.0, f64::INFINITY], 0.95).0, f64::INFINITY);
        assert_eq!(percentile(&[f64::INFINITY, f64::INFINITY], 0.5), f64::INFINITY);
    }
}
