//! Gates for CI: `itl.p95 > +5%`, held by every side against the first one.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::answer::Change;
use super::number::Number;
use crate::bench::measure::Estimate;

/// By how much a number may be worse than on the first side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gate {
    pub number: Number,
    /// Share of the first side's number by which it may be worse: 0.05.
    pub worse: f64,
}

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = "write it as 'itl.p95 > +5%' or 'tokens < -5%'";
        let at = text.find(['>', '<']).ok_or_else(|| format!("no > or < in it; {shape}"))?;
        let number: Number = text[..at].trim().parse()?;
        let limit = text[at + 1..].trim();
        let (sign, why) = match number {
            Number::Time(..) => ('>', "more is worse"),
            Number::Tokens => ('<', "less is worse"),
        };
        if !text[at..].starts_with(sign) {
            return Err(format!("{number} {}: {why}, so it fails when it is {sign} a limit; {shape}", &text[at..]));
        }
        let percent = limit.strip_suffix('%').ok_or_else(|| format!("{limit:?} is no share: it ends with %; {shape}"))?.trim();
        let value: f64 = percent.parse().map_err(|_| format!("{limit:?} is no number; {shape}"))?;
        let worse = if sign == '>' { value } else { -value } / 100.0;
        // A number of tokens cannot fall by more than all of it.
        if !(worse >= 0.0 && worse.is_finite()) || (sign == '<' && worse >= 1.0) {
            return Err(format!("{limit:?} asks for something else than how much worse it may be; {shape}"));
        }
        Ok(Self { number, worse })
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Shares such as 0.07 have no exact double: 7.000000000000001 %.
        let percent = (self.worse * 1e8).round() / 1e6;
        match self.number {
            Number::Time(..) => write!(f, "{} > +{percent}%", self.number),
            Number::Tokens => write!(f, "{} < -{percent}%", self.number),
        }
    }
}

impl Serialize for Gate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What of these cannot be meant together.
pub fn contradictions(gates: &[Gate]) -> Option<String> {
    gates.iter().enumerate().find_map(|(at, one)| {
        let other = gates[at + 1..].iter().find(|other| other.number == one.number && other.worse != one.worse)?;
        Some(format!("'{one}' and '{other}': the same number with two limits"))
    })
}

/// How a gate came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Held,
    /// Worse than it may be, and that may be noise.
    Close,
    Failed,
    /// Nothing was measured that could be held, or it is not to be trusted; counts as failed.
    Unknown,
}

impl Outcome {
    pub fn fails(self) -> bool {
        matches!(self, Self::Failed | Self::Unknown)
    }
}

/// A gate at one level of one side.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Held {
    #[schemars(with = "String")]
    pub gate: Gate,
    pub side: String,
    pub concurrency: u32,
    /// Against the first side.
    pub change: Option<Change>,
    pub outcome: Outcome,
}

impl Gate {
    /// It fails where the number is worse by more than it may, and noise is not all of the difference.
    pub fn hold(self, first: Option<Estimate>, other: Option<Estimate>) -> (Option<Change>, Outcome) {
        let (Some(first), Some(other)) = (first, other) else { return (None, Outcome::Unknown) };
        if first.value.is_infinite() || first.value <= 0.0 {
            return (None, Outcome::Unknown);
        }
        // So many requests failed that there is no such number any more.
        if other.value.is_infinite() {
            return (None, Outcome::Failed);
        }
        let change = Change::between(&first, &other);
        let (share, nearest) = match self.number {
            Number::Time(..) => (change.share, change.low),
            Number::Tokens => (-change.share, -change.high),
        };
        // 5 % of 40 ms are 2 ms also where a double says 2.0000000000000004.
        let outcome = match (share > self.worse + 1e-12, nearest > 0.0) {
            (false, _) => Outcome::Held,
            (true, true) => Outcome::Failed,
            (true, false) => Outcome::Close,
        };
        (Some(change), outcome)
    }
}
