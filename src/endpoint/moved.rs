//! Did keys and values move from a prefill to a decode worker? The answers are the same if they did not: the decode worker computes the prompt again.

use super::known::{TestResult, Verdict};

/// Words of the prompt, of some five tokens each. A hybrid's blocks hold more than a thousand tokens, and only whole ones are sure to move: there have to be
/// several.
const WORDS: u32 = 3000;
/// Tokens that a word is at most.
const TOKENS_A_WORD: u32 = 8;
/// So much of what is expected has to be seen: the last block may stay behind, and pages may be counted in another way.
const SHARE: f64 = 0.5;

/// Bytes that came to the decode workers, since they were started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// As vLLM's metrics of NIXL say.
    pub nixl: f64,
    /// As the EFA adapters' counters say; none where the pods have no adapter.
    pub efa: Option<f64>,
}

/// What one prompt moved.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    pub before: Counts,
    pub after: Counts,
    /// Tokens of the prompt.
    pub tokens: u64,
    /// Bytes that its keys and values are.
    pub expected: u64,
    /// Must it have come over EFA?
    pub over_efa: bool,
    /// A line of a decode worker's log that tells why, if there is one.
    pub log: Option<String>,
    pub seconds: f64,
}

/// A prompt for a model that takes so many tokens, which no worker has in its cache: what is there already does not move.
pub fn prompt(nonce: &str, max_model_len: u32) -> String {
    let words: Vec<String> = (1..=WORDS.min(max_model_len / TOKENS_A_WORD)).map(|n| n.to_string()).collect();
    format!("Session {nonce}. Count on: {}", words.join(" "))
}

/// The sum of a metric over its labels, in Prometheus' text format; none if it is not there.
pub fn sum(metrics: &str, name: &str) -> Option<f64> {
    let of = |line: &str| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with(['{', ' ']).then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
    };
    let values: Vec<f64> = metrics.lines().filter_map(of).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

impl Moved {
    fn by_nixl(&self) -> f64 {
        self.after.nixl - self.before.nixl
    }

    fn by_efa(&self) -> Option<f64> {
        Some(self.after.efa? - self.before.efa?)
    }

    fn enough(&self, bytes: f64) -> bool {
        bytes > 0.0 && bytes >= self.expected as f64 * SHARE
    }

    /// Has all come that must have?
    pub fn is_whole(&self) -> bool {
        self.enough(self.by_nixl()) && (!self.over_efa || self.by_efa().is_some_and(|bytes| self.enough(bytes)))
    }

    /// The test, with what was counted.
    pub fn result(&self) -> TestResult {
        let efa = match self.by_efa() {
            Some(bytes) => format!("{} over EFA", size(bytes)),
            None => "no EFA adapter in the pods".to_owned(),
        };
        let mut got = format!("{} by NIXL, {efa}", size(self.by_nixl()));
        if !self.enough(self.by_nixl()) {
            got += ": the decode worker computed the prompt again, and every prompt is computed twice";
        } else if !self.is_whole() {
            got += ": they went another way, which is slower by far";
        }
        if let Some(log) = self.log.as_ref().filter(|_| !self.is_whole()) {
            got += &format!("; its log: {log}");
        }
        TestResult {
            id: "kv-moved".into(),
            asked: format!("a prompt of {} tokens", self.tokens),
            expected: format!("about {} of keys and values from prefill to decode{}", size(self.expected as f64), if self.over_efa { " over EFA" } else { "" }),
            got,
            verdict: if self.is_whole() { Verdict::Passed } else { Verdict::Wrong },
            seconds: self.seconds,
        }
    }
}

/// `0 B`, `49.2 MB`
fn size(bytes: f64) -> String {
    if bytes <= 0.0 { "0 B".to_owned() } else { format!("{:.1} MB", bytes / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "\
# HELP vllm:nixl_bytes_transferred Histogram of bytes transferred per NIXL KV Cache transfers.
# TYPE vllm:nixl_bytes_transferred histogram
vllm:nixl_bytes_transferred_bucket{engine=\"0\",le=\"2048.0\",model_name=\"m\"} 7
vllm:nixl_bytes_transferred_count{engine=\"0\",model_name=\"m\"} 8
vllm:nixl_bytes_transferred_sum{engine=\"0\",model_name=\"m\"} 4.915e+07
vllm:nixl_bytes_transferred_sum{engine=\"1\",model_name=\"m\"} 1000
vllm:num_requests_running{engine=\"0\"} 0
up 1
";

    #[test]
    fn metrics_are_summed_over_their_labels() {
        assert_eq!(sum(METRICS, "vllm:nixl_bytes_transferred_sum"), Some(49_151_000.0));
        assert_eq!(sum(METRICS, "up"), Some(1.0));
        assert_eq!(sum(METRICS, "vllm:nixl_bytes_transferred"), None, "a name is no beginning of another");
        assert_eq!(sum("", "up"), None);
    }

    fn moved(nixl: f64, efa: Option<f64>) -> Moved {
        let before = Counts { nixl: 1e9, efa: efa.map(|_| 2e9) };
        let after = Counts { nixl: 1e9 + nixl, efa: efa.map(|bytes| 2e9 + bytes) };
        let log = Some("makeXferReq: local index out of range".to_owned());
        Moved { before, after, tokens: 6012, expected: 49_250_304, over_efa: true, log, seconds: 1.0 }
    }

    #[test]
    fn what_moved_is_judged_by_what_had_to() {
        for (nixl, efa, over_efa, verdict, words) in [
            (49_250_304.0, Some(49_250_304.0), true, Verdict::Passed, "49.3 MB by NIXL, 49.3 MB over EFA"),
            (30e6, Some(31e6), true, Verdict::Passed, "30.0 MB by NIXL, 31.0 MB over EFA"),
            (
                0.0,
                Some(0.0),
                true,
                Verdict::Wrong,
                "0 B by NIXL, 0 B over EFA: the decode worker computed the prompt again, and every prompt is computed twice; its log: makeXferReq: local index out of range",
            ),
            (2e6, Some(2e6), true, Verdict::Wrong, "2.0 MB by NIXL, 2.0 MB over EFA: the decode worker computed"),
            (49e6, Some(0.0), true, Verdict::Wrong, "49.0 MB by NIXL, 0 B over EFA: they went another way"),
            (49e6, None, true, Verdict::Wrong, "49.0 MB by NIXL, no EFA adapter in the pods: they went another way"),
            (49e6, None, false, Verdict::Passed, "49.0 MB by NIXL, no EFA adapter in the pods"),
        ] {
            let result = Moved { over_efa, ..moved(nixl, efa) }.result();
            assert_eq!(result.verdict, verdict, "{result}");
            assert!(result.got.starts_with(words), "{}", result.got);
        }
        let words = moved(0.0, Some(0.0)).result().to_string();
        assert!(
            words.starts_with("kv-moved: asked a prompt of 6012 tokens, expected about 49.3 MB of keys and values from prefill to decode over EFA, got 0 B by NIXL"),
            "{words}"
        );
        assert_eq!(moved(49e6, Some(49e6)).result().got, "49.0 MB by NIXL, 49.0 MB over EFA", "a log is read only for what went wrong");
    }

    #[test]
    fn no_two_prompts_begin_alike() {
        let (one, other) = (prompt("1", 262_144), prompt("2", 262_144));
        assert_ne!(one[..12], other[..12]);
        assert!(one.split(' ').count() > 3000);
        assert!(prompt("1", 4096).split(' ').count() < 600, "it has to fit");
    }
}
