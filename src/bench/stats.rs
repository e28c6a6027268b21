//! Statistics over records, by aiperf's own definitions: linear-interpolated percentiles, population standard deviation. Pure.

use serde::{Deserialize, Serialize};

use super::records::{Measured, Outcome, Record};

/// A request whose output is shorter than this share of what was asked is counted as short.
const SHORT_BELOW: f64 = 0.9;

/// A request stalled when its ITL is above this many times the median: the slowest honest ones that were recorded are at 1.2 times, stalled ones at 18 (`tests/fixtures/aiperf`).
const STALLED_ABOVE: f64 = 4.0;

/// One metric over many requests, in the metric's own unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Distribution {
    pub count: u64,
    pub avg: f64,
    /// Of the population, not of a sample.
    pub std: f64,
    pub min: f64,
    pub max: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
}

impl Distribution {
    /// Of these values, in any order; `None` of no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len() as f64;
        let avg = sorted.iter().sum::<f64>() / count;
        let std = (sorted.iter().map(|value| (value - avg).powi(2)).sum::<f64>() / count).sqrt();
        let at = |share| percentile(&sorted, share);
        Some(Self { count: sorted.len() as u64, avg, std, min, max, p50: at(0.5), p90: at(0.9), p95: at(0.95), p99: at(0.99) })
    }
}

/// The percentile of sorted values, interpolated between the two nearest ranks as numpy does by default. NaN of no values.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let rank = share * last as f64;
    let (below, above) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    // Between a number and infinity there is nothing but infinity.
    if above.is_infinite() && below.is_infinite() {
        return above;
    }
    // Rounding must not carry it past the upper rank.
    (below + (above - below) * rank.fract()).min(above)
}

/// What a run measured. Latencies in milliseconds, over answered requests only, as aiperf has it: failures are counted beside them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Numbers {
    pub answered: u64,
    /// Failed in any way, cancelled ones too.
    pub failed: u64,
    pub cancelled: u64,
    /// Answered with less than nine tenths of the output that was asked for.
    pub short: u64,
    /// Tokens arrived one after the other. If not, TTFT is the whole latency and there is no ITL to speak of.
    pub streamed: bool,
    /// To the first token of any kind.
    pub ttft_ms: Option<Distribution>,
    /// The same without the first request of each user: they all start at the same instant, and that burst is most of the tail.
    pub ttft_ms_after_first_wave: Option<Distribution>,
    /// To the first token of the answer itself, after any reasoning.
    pub first_answer_ms: Option<Distribution>,
    pub itl_ms: Option<Distribution>,
    pub latency_ms: Option<Distribution>,
    pub input_tokens: Option<Distribution>,
    pub output_tokens: Option<Distribution>,
    /// From the load generator's intention to the sending: grows when the client is the bottleneck.
    pub client_delay_ms: Option<Distribution>,
    /// The most requests that were under way at once.
    pub in_flight: u64,
    /// Seconds that throughputs are divided by.
    pub seconds: f64,
    pub output_tokens_per_second: f64,
    pub requests_per_second: f64,
    /// A stalled tail, told apart; none: nothing stalled.
    #[serde(default)]
    pub stalled: Option<Stalled>,
}

/// Requests that stopped in the middle: a few of them pull up the average ITL, and at the end of a run throughput down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Stalled {
    /// Those with a higher ITL than this: four times the median.
    pub above_ms: f64,
    pub requests: u64,
    /// Of the others.
    pub rest_itl_ms: Option<Distribution>,
    /// Of the others, over their own time.
    pub rest_output_tokens_per_second: f64,
}

/// What the run was asked for, as far as the numbers depend on it.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub concurrency: u32,
    pub output_tokens: u32,
}

/// Works out the numbers. `seconds` is the length of the phase ([`super::summary::Summary::seconds`]).
pub fn numbers(records: &[Record], asked: Asked, seconds: f64) -> Numbers {
    let answered: Vec<&Measured> = records.iter().filter_map(Record::answered).collect();
    let of = |value: fn(&Measured) -> Option<f64>| Distribution::of(answered.iter().copied().filter_map(value));
    let failed =
        |only_cancelled: bool| records.iter().filter(|record| matches!(&record.outcome, Outcome::Failed { cancelled, .. } if *cancelled || !only_cancelled)).count() as u64;
    let streamed = streamed(&answered);
    let output_tokens = of(|m| m.output_tokens);
    let total_output = output_tokens.as_ref().map_or(0.0, |tokens| tokens.avg * tokens.count as f64);
    Numbers {
        answered: answered.len() as u64,
        failed: failed(false),
        cancelled: failed(true),
        short: answered.iter().filter(|m| m.usage_output_tokens.or(m.output_tokens).is_some_and(|got| got < SHORT_BELOW * f64::from(asked.output_tokens))).count() as u64,
        streamed,
        ttft_ms: of(|m| m.ttft_ms),
        ttft_ms_after_first_wave: after_first_wave(records, asked.concurrency),
        first_answer_ms: of(|m| m.first_answer_ms),
        // An answer in one piece makes aiperf report an ITL of 0.0, which every budget would pass.
        itl_ms: if streamed { of(|m| m.itl_ms) } else { None },
        latency_ms: of(|m| Some(m.latency_ms)),
        input_tokens: of(|m| m.input_tokens),
        output_tokens,
        client_delay_ms: Distribution::of(records.iter().filter_map(Record::client_delay_ms)),
        in_flight: in_flight(records),
        seconds,
        output_tokens_per_second: total_output / seconds,
        requests_per_second: answered.len() as f64 / seconds,
        stalled: if streamed { stalled(records) } else { None },
    }
}

fn stalled(records: &[Record]) -> Option<Stalled> {
    let itl = |record: &Record| record.answered().and_then(|measured| measured.itl_ms);
    let mut sorted: Vec<f64> = records.iter().filter_map(itl).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let above_ms = STALLED_ABOVE * percentile(&sorted, 0.5);
    let rest = sorted.partition_point(|value| *value <= above_ms);
    if rest == sorted.len() || sorted.is_empty() {
        return None;
    }
    let flowed = || records.iter().filter(|record| record.answered().is_some() && itl(record).is_none_or(|value| value <= above_ms));
    let tokens: f64 = flowed().filter_map(|record| record.answered()?.output_tokens).sum();
    let (start, end) = (flowed().map(|record| record.start_ns).min()?, flowed().map(|record| record.end_ns).max()?);
    let requests = (sorted.len() - rest) as u64;
    sorted.truncate(rest);
    Some(Stalled { above_ms, requests, rest_itl_ms: Distribution::of(sorted), rest_output_tokens_per_second: tokens / (end.saturating_sub(start) as f64 / 1e9) })
}

/// Seconds from the first start to the last end of answered requests: what 0.9.0 divides by.
pub fn answered_seconds(records: &[Record]) -> Option<f64> {
    let answered = || records.iter().filter(|record| record.answered().is_some());
    let start = answered().map(|record| record.start_ns).min()?;
    let end = answered().map(|record| record.end_ns).max()?;
    Some(end.saturating_sub(start) as f64 / 1e9)
}

impl Record {
    /// What was measured, if it was answered.
    pub fn answered(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Answered(measured) => Some(measured),
            Outcome::Failed { .. } => None,
        }
    }

    fn client_delay_ms(&self) -> Option<f64> {
        Some(self.start_ns.saturating_sub(self.issued_ns?) as f64 / 1e6)
    }
}

/// Did answers of several tokens come in several chunks?
fn streamed(answered: &[&Measured]) -> bool {
    let long: Vec<f64> = answered.iter().filter(|m| m.output_tokens.is_some_and(|tokens| tokens > 1.0)).filter_map(|m| m.chunks).collect();
    !long.is_empty() && long.iter().filter(|chunks| **chunks > 1.5).count() * 2 > long.len()
}

fn after_first_wave(records: &[Record], concurrency: u32) -> Option<Distribution> {
    let mut by_start: Vec<&Record> = records.iter().collect();
    by_start.sort_by_key(|record| record.start_ns);
    Distribution::of(by_start.into_iter().skip(concurrency as usize).filter_map(|record| record.answered()?.ttft_ms))
}

fn in_flight(records: &[Record]) -> u64 {
    let mut edges: Vec<(u64, i64)> = records.iter().flat_map(|record| [(record.start_ns, 1), (record.end_ns, -1)]).collect();
    edges.sort_unstable();
    let mut now = 0;
    edges.into_iter().fold(0, |most, (_, step)| {
        now += step;
        most.max(now)
    }) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answered(start_ns: u64, end_ns: u64, measured: Measured) -> Record {
        Record { start_ns, end_ns, issued_ns: Some(start_ns.saturating_sub(2_000_000)), outcome: Outcome::Answered(measured) }
    }

    #[test]
    fn percentiles_are_numpys() {
        // numpy.percentile([1, 2, 4, 8], [0, 25, 50, 95, 99, 100])
        let values = [1.0, 2.0, 4.0, 8.0];
        for (share, want) in [(0.0, 1.0), (0.25, 1.75), (0.5, 3.0), (0.95, 7.4), (0.99, 7.88), (1.0, 8.0)] {
            assert!((percentile(&values, share) - want).abs() < 1e-12, "{share}");
        }
        let d = Distribution::of([8.0, 1.0, 4.0, 2.0]).unwrap();
        assert!((d.std - 2.680951323690902).abs() < 1e-12);
        assert_eq!(Distribution::of([]), None);
    }

    #[test]
    fn an_answer_in_one_piece_has_no_itl() {
        let whole = Measured { latency_ms: 50.0, ttft_ms: Some(50.0), itl_ms: Some(0.0), output_tokens: Some(32.0), chunks: Some(1.0), ..Measured::default() };
        let asked = Asked { concurrency: 1, output_tokens: 32 };
        let n = numbers(&[answered(0, 50, whole.clone())], asked, 1.0);
        assert_eq!((n.streamed, n.itl_ms), (false, None));
        let n = numbers(&[answered(0, 50, Measured { chunks: Some(32.0), itl_ms: Some(1.5), ..whole })], asked, 1.0);
        assert_eq!((n.streamed, n.itl_ms.map(|itl| itl.p50)), (true, Some(1.5)));
    }

    #[test]
    fn failures_short_outputs_and_requests_under_way_are_counted() {
        let measured = |tokens: f64, usage: Option<f64>| Measured { output_tokens: Some(tokens), usage_output_tokens: usage, ttft_ms: Some(tokens), ..Measured::default() };
        let failed = |cancelled| Record { start_ns: 4, end_ns: 4, issued_ns: None, outcome: Outcome::Failed { code: Some(500), message: "no".into(), cancelled } };
        let records = [answered(0, 10, measured(100.0, None)), answered(5, 15, measured(89.0, None)), answered(10, 30, measured(80.0, Some(100.0))), failed(false), failed(true)];
        let n = numbers(&records, Asked { concurrency: 2, output_tokens: 100 }, 2.0);
        assert_eq!((n.answered, n.failed, n.cancelled, n.short, n.in_flight), (3, 2, 1, 1, 2));
        assert_eq!((n.output_tokens_per_second, n.requests_per_second), (134.5, 1.5));
        assert_eq!(n.ttft_ms_after_first_wave.map(|d| (d.count, d.max)), Some((2, 89.0)));
        assert_eq!(answered_seconds(&records), Some(30e-9));
    }

    proptest! {
        #[test]
        fn percentiles_lie_between_the_ends_and_grow(mut values in proptest::collection::vec(0.0..1e6, 1..50), a in 0.0..=1.0, b in 0.0..=1.0) {
            values.sort_by(f64::total_cmp);
            let (low, high) = (percentile(&values, f64::min(a, b)), percentile(&values, f64::max(a, b)));
            prop_assert!(values[0] <= low && low <= high && high <= values[values.len() - 1]);
        }
    }
}
