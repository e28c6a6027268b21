//! Charts as numbers: where axes, lines, marks and limits are in a picture of fixed size. The template draws them.

use serde::Serialize;

/// Of the picture, and what is kept free around the axes.
pub const WIDTH: f64 = 480.0;
pub const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// One chart, ready to draw.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chart {
    pub id: &'static str,
    pub title: String,
    /// What it shows, for who cannot see it.
    pub says: String,
    pub x_label: &'static str,
    pub y_label: String,
    pub x_ticks: Vec<Tick>,
    pub y_ticks: Vec<Tick>,
    pub lines: Vec<Drawn>,
    pub limits: Vec<Tick>,
    pub table: Table,
}

/// A mark on an axis, or a limit across the picture.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tick {
    pub at: f64,
    pub label: String,
}

/// A line with its marks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drawn {
    /// Colour and shape go by it.
    pub side: usize,
    /// 0 dashed, 1 drawn through, 2 dotted.
    pub style: usize,
    pub label: String,
    pub path: String,
    pub marks: Vec<Mark>,
    /// That of the legend; empty: it has none.
    pub mark: String,
}

/// A mark with the words that a reader of the picture gets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mark {
    pub path: String,
    pub says: String,
}

/// The numbers behind it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    pub caption: String,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// A line before it is placed. A point without a value is a gap.
#[derive(Debug, Clone)]
pub struct Line {
    pub side: usize,
    pub style: usize,
    pub label: String,
    pub points: Vec<(f64, Option<f64>)>,
    /// No line: the marks alone.
    pub loose: bool,
}

/// How numbers become places on one axis.
#[derive(Debug, Clone, Copy)]
pub enum Scale {
    /// From 0 to this.
    Linear(f64),
    /// Each doubling as wide as the others.
    Doubling(f64, f64),
}

impl Scale {
    /// From 0 to a round number that holds all of them.
    pub fn linear(values: impl Iterator<Item = f64>) -> Self {
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(most);
        Self::Linear((most / step).ceil() * step)
    }

    /// For levels of concurrency.
    pub fn levels(levels: &[u32]) -> Self {
        let (low, high) = (levels.iter().min().copied().unwrap_or(1).max(1), levels.iter().max().copied().unwrap_or(1).max(1));
        // A single level stands in the middle.
        if low == high { Self::Doubling(f64::from(low) / 2.0, f64::from(high) * 2.0) } else { Self::Doubling(f64::from(low), f64::from(high)) }
    }

    fn share(self, value: f64) -> f64 {
        match self {
            Self::Linear(most) => value / most,
            Self::Doubling(low, high) => (value / low).ln() / (high / low).ln(),
        }
    }

    /// Place from the left.
    pub fn x(self, value: f64) -> f64 {
        rounded(LEFT + self.share(value) * (WIDTH - LEFT - RIGHT))
    }

    /// Place from the top.
    pub fn y(self, value: f64) -> f64 {
        rounded(HEIGHT - BOTTOM - self.share(value) * (HEIGHT - TOP - BOTTOM))
    }

    /// Where round numbers are.
    pub fn round(self) -> Vec<f64> {
        let Self::Linear(most) = self else { return Vec::new() };
        let step = step(most);
        (0..=((most / step).round() as usize)).map(|at| at as f64 * step).collect()
    }
}

/// A round step that divides up to this into four to eight.
fn step(most: f64) -> f64 {
    let rough = most / 6.0;
    let power = 10_f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= rough).unwrap_or(10.0);
    times * power
}

fn rounded(place: f64) -> f64 {
    (place * 10.0).round() / 10.0
}

impl Line {
    /// Draws it: a gap ends one piece and begins another.
    pub fn draw(self, x: Scale, y: Scale, says: impl Fn(f64, f64) -> String) -> Drawn {
        let (mut path, mut marks, mut joined) = (String::new(), Vec::new(), false);
        for (place, value) in &self.points {
            let Some(value) = value else {
                joined = false;
                continue;
            };
            let (left, top) = (x.x(*place), y.y(*value));
            if !self.loose {
                path += &format!("{}{left} {top}", if joined { "L" } else { "M" });
            }
            joined = true;
            marks.push(Mark { path: shape(self.side, left, top), says: says(*place, *value) });
        }
        Drawn { side: self.side % SHAPES, style: self.style.min(2), label: self.label, path, marks, mark: legend(self.side) }
    }
}

/// The mark of a side in a picture of 30 × 16.
pub fn legend(side: usize) -> String {
    shape(side, 15.0, 8.0)
}

/// As many sides are told apart by colour and by shape.
pub const SHAPES: usize = 6;

/// The mark of a side: circle, square, triangle, diamond, triangle on its head, cross.
pub fn shape(side: usize, x: f64, y: f64) -> String {
    match side % SHAPES {
        0 => format!("M{x} {y}m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"),
        1 => format!("M{x} {y}m-3.6 -3.6h7.2v7.2h-7.2z"),
        2 => format!("M{x} {y}m0 -4.8l4.8 8.4h-9.6z"),
        3 => format!("M{x} {y}m0 -5.2l5.2 5.2l-5.2 5.2l-5.2 -5.2z"),
        4 => format!("M{x} {y}m0 4.8l4.8 -8.4h-9.6z"),
        _ => format!("M{x} {y}m-1.6 -4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers_above_all_values() {
        for (most, end, ticks) in [(0.0, 1.0, 6), (7.0, 8.0, 5), (640.0, 800.0, 5), (1886.5, 2000.0, 5), (30.81, 40.0, 5), (0.04, 0.04, 5)] {
            let scale = Scale::linear([most].into_iter());
            let round = scale.round();
            assert!((round.last().unwrap() - end).abs() < 1e-9 && round.len() == ticks, "{most}: {round:?}");
        }
    }

    #[test]
    fn every_doubling_is_as_wide() {
        let scale = Scale::levels(&[1, 2, 4, 32]);
        assert_eq!((scale.x(1.0), scale.x(32.0)), (LEFT, WIDTH - RIGHT));
        assert!((scale.x(2.0) - scale.x(1.0) - (scale.x(8.0) - scale.x(4.0))).abs() < 0.2);
        let alone = Scale::levels(&[8]).x(8.0);
        assert!((alone - (LEFT + WIDTH - RIGHT) / 2.0).abs() < 0.2, "{alone}");
    }

    #[test]
    fn a_gap_is_not_bridged() {
        let line = |points: Vec<(f64, Option<f64>)>| Line { side: 0, style: 1, label: String::new(), points, loose: false };
        let (x, y) = (Scale::levels(&[1, 8]), Scale::Linear(10.0));
        let drawn = line(vec![(1.0, Some(1.0)), (2.0, None), (4.0, Some(2.0)), (8.0, Some(3.0))]).draw(x, y, |_, _| String::new());
        assert_eq!((drawn.path.matches('M').count(), drawn.path.matches('L').count(), drawn.marks.len()), (2, 1, 3), "{}", drawn.path);
    }
}
