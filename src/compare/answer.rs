//! What `nemo compare` answers: every number at every level that all sides have, who is ahead, and where that changes.

use serde::Serialize;

use super::gate::{Gate, Held, Outcome};
use super::number::{Number, usual};
use crate::bench::level::Comparable;
use crate::bench::measure::Estimate;
use crate::bench::side::{Difference, Side};

/// What `nemo compare` answers.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename = "compare")]
pub struct Answer {
    /// The first is what the others are held against.
    pub sides: Vec<Compared>,
    /// In what they differ though they are compared.
    pub across: Vec<Difference>,
    /// Concurrency of the levels that all sides have.
    pub levels: Vec<u32>,
    /// Levels that not all of them have: not compared.
    pub holes: Vec<Hole>,
    pub curves: Vec<Curve>,
    pub gates: Vec<Held>,
}

/// One side.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Compared {
    pub name: String,
    pub comparable: Comparable,
    /// Why numbers of it are not to be trusted, each with its folder.
    pub objections: Vec<String>,
}

/// A level that is missing somewhere.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Hole {
    pub concurrency: u32,
    pub missing_in: Vec<String>,
}

/// One number over concurrency.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Curve {
    /// `ttft.p95`, `tokens`: as `--fail-if` takes it.
    #[schemars(with = "String")]
    pub number: Number,
    pub points: Vec<Point>,
    pub crossings: Vec<Crossing>,
}

/// One number at one level.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Point {
    pub concurrency: u32,
    /// Of each side; none: not measured, or infinite, since so many requests failed.
    pub values: Vec<Measured>,
    /// The best side; none: at most one was measured.
    pub ahead: Option<String>,
    /// By which share of the next best one's value.
    pub by: Option<f64>,
    pub sure: Sure,
}

/// A number of one side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Measured {
    pub value: Option<f64>,
    /// Between these it lies in 95 of 100 such runs.
    pub low: Option<f64>,
    /// None beside a low one: there were too few requests to say.
    pub high: Option<f64>,
}

/// Would another honest run say the same?
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sure {
    /// It might well be the other way round.
    Close,
    /// As far as so few requests tell.
    Few,
    Yes,
}

/// Where another side gets ahead.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Crossing {
    pub from: String,
    pub to: String,
    /// The levels between which it happens.
    pub after: u32,
    pub until: u32,
    /// Where straight lines between the two levels meet: interpolated, never measured.
    pub interpolated_concurrency: Option<f64>,
    /// Less than sure where one of the two levels is.
    pub sure: Sure,
}

/// From the first to another, as shares of the first: 0.05 is 5 % more.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Change {
    pub share: f64,
    /// Between these it lies in 95 of 100 such pairs of runs.
    pub low: f64,
    pub high: f64,
}

/// The intervals know what differs from request to request, not what differs from run to run: the same system recorded twice (`tests/fixtures/aiperf/sweeps`) is up to 4 % apart
/// where its intervals say that it is apart. Nobody is ahead by less.
pub const RUN_TO_RUN: f64 = 0.05;

impl Change {
    /// The interval of a difference from the intervals of both (MOVER: Zou and Donner, Statistics in Medicine 27, 2008). It takes no more than the order statistics, is not symmetric
    /// where they are not, and gives the same every time, which a bootstrap does not.
    pub fn between(first: &Estimate, other: &Estimate) -> Self {
        let difference = other.value - first.value;
        let low = difference - (other.value - other.low).hypot(first.highest() - first.value);
        let high = difference + (other.highest() - other.value).hypot(first.value - first.low);
        Self { share: difference / first.value, low: low / first.value, high: high / first.value }
    }

    /// May both be the same?
    fn close(&self) -> bool {
        (self.low <= 0.0 && self.high >= 0.0) || self.share.abs() < RUN_TO_RUN
    }
}

/// Compares sides that may be compared. There are at least two, with at least one level in common.
pub fn answer(sides: &[Side], across: Vec<Difference>, gates: &[Gate]) -> Answer {
    let mut all: Vec<u32> = sides.iter().flat_map(|side| side.levels.iter().map(|level| level.concurrency)).collect();
    all.sort_unstable();
    all.dedup();
    let missing = |concurrency: u32| sides.iter().filter(|side| side.at(concurrency).is_none()).map(|side| side.name.clone()).collect::<Vec<_>>();
    let (levels, lacking): (Vec<u32>, Vec<u32>) = all.into_iter().partition(|concurrency| missing(*concurrency).is_empty());
    let mut numbers = usual();
    for gate in gates {
        if !numbers.contains(&gate.number) {
            numbers.push(gate.number);
        }
    }
    Answer {
        sides: sides.iter().map(compared).collect(),
        across,
        curves: numbers.into_iter().map(|number| curve(number, sides, &levels)).collect(),
        gates: gates.iter().flat_map(|gate| held(*gate, sides, &levels)).collect(),
        levels,
        holes: lacking.into_iter().map(|concurrency| Hole { concurrency, missing_in: missing(concurrency) }).collect(),
    }
}

/// Of each number in a line: where another side gets ahead, or who is ahead everywhere. For a report.
pub fn told(sides: &[Side]) -> Vec<String> {
    let answer = answer(sides, Vec::new(), &[]);
    let one = |curve: &Curve| {
        let title = curve.number.title();
        if !curve.crossings.is_empty() {
            return Some(format!("{title}: {}", curve.crossings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; then ")));
        }
        let ahead = curve.points.iter().find_map(|point| point.ahead.as_ref())?;
        let sure = curve.points.iter().map(|point| point.sure).min()?;
        let words = match sure {
            Sure::Yes => "",
            Sure::Few => ", of few requests",
            Sure::Close => ", at some of them so little that it may be noise",
        };
        Some(format!("{title}: {ahead} is ahead at every level in common{words}"))
    };
    answer.curves.iter().filter_map(one).collect()
}

fn compared(side: &Side) -> Compared {
    let objections = side.levels.iter().flat_map(|level| level.objections.iter().map(|why| format!("{}: {why}", level.folder.display())));
    Compared { name: side.name.clone(), comparable: side.comparable().clone(), objections: objections.collect() }
}

fn held(gate: Gate, sides: &[Side], levels: &[u32]) -> Vec<Held> {
    let mut all = Vec::new();
    for side in &sides[1..] {
        for &concurrency in levels {
            let (first, other) = (sides[0].at(concurrency), side.at(concurrency));
            let (change, mut outcome) = gate.hold(first.and_then(|level| gate.number.of(level)), other.and_then(|level| gate.number.of(level)));
            // A run that was cut proves nothing, also where its numbers look well.
            if outcome != Outcome::Failed && [first, other].into_iter().flatten().any(|level| !level.objections.is_empty()) {
                outcome = Outcome::Unknown;
            }
            all.push(Held { gate, side: side.name.clone(), concurrency, change, outcome });
        }
    }
    all
}

fn curve(number: Number, sides: &[Side], levels: &[u32]) -> Curve {
    let points: Vec<Point> = levels.iter().map(|concurrency| point(number, sides, *concurrency)).collect();
    // Levels where somebody is known to be ahead; between others nothing can be said to cross.
    let known: Vec<&Point> = points.iter().filter(|point| point.ahead.is_some()).collect();
    let crossings = known.windows(2).filter_map(|pair| crossing(pair[0], pair[1], sides)).collect();
    Curve { number, points, crossings }
}

fn point(number: Number, sides: &[Side], concurrency: u32) -> Point {
    let estimates: Vec<Option<Estimate>> = sides.iter().map(|side| side.at(concurrency).and_then(|level| number.of(level))).collect();
    let finite = |value: f64| Some(value).filter(|value| value.is_finite());
    let values = estimates.iter().map(|estimate| match estimate {
        Some(estimate) => Measured { value: finite(estimate.value), low: finite(estimate.low), high: finite(estimate.high) },
        None => Measured { value: None, low: None, high: None },
    });
    let measured = |(at, estimate): (usize, &Option<Estimate>)| Some((at, (*estimate)?)).filter(|(_, estimate)| estimate.value.is_finite() && estimate.value > 0.0);
    let mut order: Vec<(usize, Estimate)> = estimates.iter().enumerate().filter_map(measured).collect();
    order.sort_by(|(_, one), (_, other)| number.rank(one.value).total_cmp(&number.rank(other.value)));
    let (ahead, by, sure) = match order.as_slice() {
        [(best, one), rest @ ..] if !rest.is_empty() => {
            let changes: Vec<Change> = rest.iter().map(|(_, other)| Change::between(other, one)).collect();
            let few = one.few() || rest.iter().any(|(_, other)| other.few());
            let sure = match changes.iter().any(Change::close) {
                true => Sure::Close,
                false if few => Sure::Few,
                false => Sure::Yes,
            };
            (Some(sides[*best].name.clone()), Some(changes[0].share.abs()), sure)
        }
        // Where the others' requests failed in such numbers, whoever answered is ahead without a share to tell.
        [(best, _)] if estimates.iter().all(Option::is_some) => (Some(sides[*best].name.clone()), None, Sure::Yes),
        _ => (None, None, Sure::Close),
    };
    Point { concurrency, values: values.collect(), ahead, by, sure }
}

fn crossing(before: &Point, after: &Point, sides: &[Side]) -> Option<Crossing> {
    let (from, to) = (before.ahead.clone()?, after.ahead.clone()?);
    if from == to {
        return None;
    }
    let at = |name: &str| sides.iter().position(|side| side.name == name);
    let (one, other) = (at(&from)?, at(&to)?);
    let gap = |point: &Point| Some(point.values[one].value? - point.values[other].value?);
    let place = gap(before).zip(gap(after)).map(|(low, high)| low / (low - high)).filter(|share| (0.0..=1.0).contains(share));
    let interpolated_concurrency = place.map(|share| f64::from(before.concurrency) + share * f64::from(after.concurrency - before.concurrency));
    Some(Crossing { from, to, after: before.concurrency, until: after.concurrency, interpolated_concurrency, sure: before.sure.min(after.sure) })
}
