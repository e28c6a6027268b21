//! The answer in words.

use std::fmt;

use super::answer::{Answer, Change, Crossing, Curve, Measured, Point, RUN_TO_RUN, Sure};
use super::gate::{Held, Outcome};
use crate::bench::side::Difference;

/// Names are folders' names: as wide as they are, but no table breaks.
const WIDE: usize = 24;

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for side in &self.sides {
            writeln!(f, "{}: {}", side.name, side.comparable)?;
            side.objections.iter().try_for_each(|why| writeln!(f, "  not to be trusted: {why}"))?;
        }
        for Difference { field, means, .. } in &self.across {
            writeln!(f, "compared across {field}: {means}")?;
        }
        for hole in &self.holes {
            writeln!(f, "concurrency {} is not compared: not measured in {}", hole.concurrency, hole.missing_in.join(", "))?;
        }
        let names: Vec<&str> = self.sides.iter().map(|side| side.name.as_str()).collect();
        for curve in &self.curves {
            curve.table(f, &names)?;
        }
        if let [only] = self.levels.as_slice() {
            writeln!(f, "\none level in common ({only}): where they cross takes two")?;
        }
        self.legend(f)?;
        self.gates.iter().filter(|held| held.outcome != Outcome::Held).try_for_each(|held| write!(f, "\n{held}"))?;
        let held = self.gates.iter().filter(|held| held.outcome == Outcome::Held).count();
        match self.gates.is_empty() {
            true => Ok(()),
            false => write!(f, "\ngates: {held} of {} held", self.gates.len()),
        }
    }
}

impl Answer {
    fn legend(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = |sure: Sure| self.curves.iter().flat_map(|curve| &curve.points).any(|point| point.sure == sure && point.ahead.is_some());
        write!(f, "\nahead: by intervals of order statistics (95 %), and by at least {:.0} %, by which two runs of the same system may differ", RUN_TO_RUN * 100.0)?;
        if any(Sure::Close) {
            write!(f, "\nclose: another honest run might say the reverse")?;
        }
        if any(Sure::Few) {
            write!(f, "\nfew requests: nobody can say how high such a percentile may be (a p95 takes 110 requests, a p99 560)")?;
        }
        Ok(())
    }
}

impl Curve {
    fn table(&self, f: &mut fmt::Formatter<'_>, names: &[&str]) -> fmt::Result {
        writeln!(f, "\n{}", self.number.title())?;
        write!(f, "{:>11}", "concurrency")?;
        for name in names {
            write!(f, "  {:>12}", cut(name))?;
        }
        writeln!(f, "  ahead")?;
        for point in &self.points {
            write!(f, "{:>11}", point.concurrency)?;
            for (Measured { value, .. }, name) in point.values.iter().zip(names) {
                write!(f, "  {:>1$}", value.map_or("-".into(), |value| format!("{value:.1}")), cut(name).chars().count().max(12))?;
            }
            writeln!(f, "  {point}")?;
        }
        self.crossings.iter().try_for_each(|crossing| writeln!(f, "  {crossing}"))
    }
}

fn cut(name: &str) -> String {
    match name.chars().count() > WIDE {
        true => format!("…{}", name.chars().rev().take(WIDE - 1).collect::<Vec<_>>().into_iter().rev().collect::<String>()),
        false => name.to_owned(),
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ahead) = &self.ahead else { return f.write_str("not measured on both sides") };
        match (self.by, self.sure) {
            (Some(by), Sure::Close) => write!(f, "close ({ahead} by {:.1} %)", by * 100.0),
            (Some(by), Sure::Few) => write!(f, "{ahead} by {:.0} %, of few requests", by * 100.0),
            (Some(by), Sure::Yes) => write!(f, "{ahead} by {:.0} %", by * 100.0),
            (None, _) => write!(f, "{ahead}: too many requests of the others failed"),
        }
    }
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, after, until, interpolated_concurrency, sure } = self;
        write!(f, "{from} is ahead up to {after}, {to} from {until}")?;
        if let Some(place) = interpolated_concurrency {
            write!(f, "; straight lines meet at about {place:.1} (interpolated)")?;
        }
        match sure {
            Sure::Close => write!(f, "; close, so it may be elsewhere"),
            Sure::Few => write!(f, "; of few requests"),
            Sure::Yes => Ok(()),
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gate, side, concurrency, change, outcome } = self;
        let said = match outcome {
            Outcome::Held => "holds",
            Outcome::Close => "not failed, since it may be noise",
            Outcome::Failed => "failed",
            Outcome::Unknown => "failed, since nothing was measured that can be trusted",
        };
        write!(f, "{gate}, {side} at {concurrency}: {said}")?;
        match change {
            Some(Change { share, low, high }) => write!(f, ": {:+.1} % (between {:+.1} and {:+.1} %)", share * 100.0, low * 100.0, high * 100.0),
            None => Ok(()),
        }
    }
}
