//! Latency budgets: `p95=600ms`, `p99.9<2s`, `avg<=20ms`.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::bench::level::Level;
use crate::bench::measure::{Estimate, Metric, Statistic};

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
        let statistic = statistic.parse::<Statistic>().map_err(|why| if why.contains("no statistic") { format!("{why}; {shape}") } else { why })?;
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

impl Budget {
    /// Holds it against what was measured. What was not measured is not within.
    pub fn hold(self, level: &Level) -> Held {
        let Some(estimate) = Estimate::of(self.metric.values(level), self.statistic) else {
            return Held { budget: self, measured_ms: None, low_ms: None, high_ms: None, within: false, close: false };
        };
        let Estimate { value, low, high, .. } = estimate;
        let within = value <= self.limit_ms;
        let close = if within { estimate.highest() > self.limit_ms } else { low <= self.limit_ms };
        let finite = |ms: f64| Some(ms).filter(|ms| ms.is_finite());
        Held { budget: self, measured_ms: finite(value), low_ms: finite(low), high_ms: finite(high), within, close }
    }
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
}
