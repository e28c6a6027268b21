//! Latency budgets: `p95=600ms`, `p99.9<2s`, `avg<=20ms`.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::bench::level::Level;
use crate::bench::stats::percentile;

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
    fn values(self, level: &Level) -> &[f64] {
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

/// A limit as one writes it behind the metric's flag.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    pub statistic: Statistic,
    pub ms: f64,
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = "write it as p95=600ms, p99<2s or avg=20ms";
        let at = text.find(['<', '=', '≤']).ok_or_else(|| format!("no limit in it; {shape}"))?;
        let (statistic, limit) = (text[..at].trim(), text[at..].trim_start_matches(['<', '=', '≤']).trim());
        let statistic = match statistic {
            "avg" | "mean" => Statistic::Average,
            _ => {
                let percent = statistic.strip_prefix('p').and_then(|percent| percent.parse::<f64>().ok()).ok_or_else(|| format!("{statistic:?} is no statistic; {shape}"))?;
                if !(percent > 0.0 && percent < 100.0) {
                    return Err(format!("p{percent} is no percentile: they lie between 0 and 100"));
                }
                Statistic::Percentile(percent)
            }
        };
        let digits = limit.trim_end_matches(|c: char| c.is_alphabetic());
        let factor = match &limit[digits.len()..] {
            "ms" => 1.0,
            "s" => 1000.0,
            "" => return Err(format!("{limit:?} has no unit: {limit}ms or {limit}s")),
            unit => return Err(format!("{unit:?} is no unit of time here: ms or s")),
        };
        match digits.trim().parse::<f64>() {
            Ok(value) if value > 0.0 && value.is_finite() => Ok(Self { statistic, ms: value * factor }),
            _ => Err(format!("{limit:?} is no time above 0; {shape}")),
        }
    }
}

/// What a metric may be at most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Budget {
    pub metric: Metric,
    #[schemars(with = "String")]
    pub statistic: Statistic,
    /// Milliseconds; the limit itself is within.
    pub limit_ms: f64,
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ≤ {} ms", self.metric, self.statistic, self.limit_ms)
    }
}

/// What of these cannot be meant together.
pub fn contradictions(budgets: &[Budget]) -> Option<String> {
    for (at, one) in budgets.iter().enumerate() {
        for other in &budgets[at + 1..] {
            if one.metric != other.metric {
                continue;
            }
            if one.statistic == other.statistic && one.limit_ms != other.limit_ms {
                return Some(format!("{one} and {other}: the same number with two limits"));
            }
            let (Statistic::Percentile(a), Statistic::Percentile(b)) = (one.statistic, other.statistic) else { continue };
            let (low, high) = if a < b { (one, other) } else { (other, one) };
            if a != b && low.limit_ms > high.limit_ms {
                return Some(format!("{low} never decides: no percentile is above a higher one, and {high}"));
            }
        }
    }
    None
}

/// A budget held against one level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Held {
    pub budget: Budget,
    /// Milliseconds; none: not measured, or infinite, since so many requests failed.
    pub measured_ms: Option<f64>,
    /// Between these it lies in 95 of 100 such runs; a lower one without an upper: there were too few requests to say how high it may be.
    pub low_ms: Option<f64>,
    pub high_ms: Option<f64>,
    pub within: bool,
    /// Another honest run of the same system might come out on the other side.
    pub close: bool,
}

impl Held {
    /// Too few requests to say how high it may be.
    pub fn few(&self) -> bool {
        self.low_ms.is_some() && self.high_ms.is_none()
    }
}

/// 1.96 standard deviations hold 95 of 100.
const DEVIATIONS: f64 = 1.96;

impl Budget {
    /// Holds it against what was measured. What was not measured is not within.
    pub fn hold(self, level: &Level) -> Held {
        let values = self.metric.values(level);
        if values.is_empty() {
            return Held { budget: self, measured_ms: None, low_ms: None, high_ms: None, within: false, close: false };
        }
        let (measured, low, high) = match self.statistic {
            Statistic::Percentile(percent) => between(values, percent / 100.0),
            Statistic::Average => average(values),
        };
        let within = measured <= self.limit_ms;
        // Where nobody can say how high it may be, the slowest request says whether it may be beyond.
        let highest = if high.is_finite() { high } else { values[values.len() - 1] };
        let close = if within { highest > self.limit_ms } else { low <= self.limit_ms };
        let finite = |ms: f64| Some(ms).filter(|ms| ms.is_finite());
        Held { budget: self, measured_ms: finite(measured), low_ms: finite(low), high_ms: finite(high), within, close }
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
    fn limits_are_read_as_people_write_them() {
        let percentile = |percent, ms| Ok(Limit { statistic: Statistic::Percentile(percent), ms });
        for (text, want) in [
            ("p95=600ms", percentile(95.0, 600.0)),
            ("p95<600ms", percentile(95.0, 600.0)),
            ("p99.9 <= 2s", percentile(99.9, 2000.0)),
            ("p50≤0.5s", percentile(50.0, 500.0)),
            ("avg=20ms", Ok(Limit { statistic: Statistic::Average, ms: 20.0 })),
        ] {
            assert_eq!(text.parse::<Limit>(), want, "{text}");
        }
        for (text, words) in [
            ("600ms", "no limit in it"),
            ("q95=1ms", "no statistic"),
            ("p100=1ms", "between 0 and 100"),
            ("p0=1ms", "between 0 and 100"),
            ("pNaN=1ms", "between 0 and 100"),
            ("p95=600", "no unit"),
            ("p95=600kg", "no unit of time"),
            ("p95=-1ms", "no time above 0"),
            ("p95=ms", "no time above 0"),
            ("p95=1e999s", "no time above 0"),
        ] {
            let error = text.parse::<Limit>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    fn budget(metric: Metric, percent: f64, limit_ms: f64) -> Budget {
        Budget { metric, statistic: Statistic::Percentile(percent), limit_ms }
    }

    #[test]
    fn what_cannot_be_meant_together_is_named() {
        use Metric::{Itl, Ttft};
        let said = |budgets: &[Budget]| contradictions(budgets).unwrap_or_default();
        assert!(said(&[budget(Ttft, 95.0, 600.0), budget(Itl, 95.0, 20.0), budget(Ttft, 95.0, 500.0)]).contains("two limits"));
        assert!(said(&[budget(Ttft, 99.0, 100.0), budget(Ttft, 50.0, 200.0)]).starts_with("TTFT p50 ≤ 200 ms never decides"));
        assert_eq!(said(&[budget(Ttft, 99.0, 300.0), budget(Ttft, 50.0, 200.0), budget(Itl, 50.0, 400.0)]), "");
    }

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
