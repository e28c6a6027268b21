//! The platform has many parts; what is seen of it is their sum.

use crate::engine::step::{Digest, Seen};
use crate::k8s::Document;
use crate::k8s::apply::Live;
use crate::k8s::ready::Readiness;

/// How one part stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    There,
    Missing,
    Pending(String),
    Broken(String),
    Foreign(String),
    /// It would have to be removed first.
    Fixed(String),
}

impl Part {
    pub(super) fn of_object(document: &Document, live: &Live) -> Self {
        match live {
            Live::Same => Self::There,
            Live::Absent => Self::Missing,
            Live::Going => Self::Pending(format!("{} is being deleted", document.title())),
            Live::Differs => Self::Broken(format!("{} was made from other settings", document.title())),
            Live::Changed(field) => Self::Broken(format!("{} was changed: {field}", document.title())),
            Live::Foreign => Self::Foreign(document.title()),
        }
    }

    pub(super) fn of_workload(readiness: Readiness) -> Self {
        match readiness {
            Readiness::Ready => Self::There,
            Readiness::Waiting(what) => Self::Pending(what),
            Readiness::Failed(why) => Self::Broken(why),
            Readiness::Absent => Self::Broken("what the charts installed is gone".into()),
        }
    }
}

/// The worst part decides; nothing at all is absent.
pub(super) fn sum(parts: &[Part], inputs: &Digest) -> Seen {
    let foreign = parts.iter().find_map(|part| if let Part::Foreign(what) = part { Some(what.clone()) } else { None });
    let broken = parts.iter().find_map(|part| if let Part::Broken(why) = part { Some(why.clone()) } else { None });
    let pending = parts.iter().find_map(|part| if let Part::Pending(what) = part { Some(what.clone()) } else { None });
    let missing = parts.iter().filter(|part| **part == Part::Missing).count();
    let fixed = parts.iter().find_map(|part| if let Part::Fixed(why) = part { Some(why.clone()) } else { None });
    if let Some(what) = foreign {
        Seen::Foreign { what }
    } else if let Some(why) = fixed {
        Seen::Fixed { why }
    } else if missing == parts.len() {
        Seen::Absent
    } else if let Some(why) = broken {
        Seen::Broken { why }
    } else if let Some(what) = pending {
        Seen::Pending { what }
    } else if missing > 0 {
        Seen::Pending { what: format!("{missing} of {} parts are missing", parts.len()) }
    } else {
        Seen::Ready { inputs: Some(inputs.clone()), facts: toml::Table::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_part_decides() {
        let (there, missing) = (Part::There, Part::Missing);
        let (pending, broken, foreign) = (Part::Pending("p".into()), Part::Broken("b".into()), Part::Foreign("f".into()));
        for (parts, word) in [
            (vec![there.clone(), there.clone()], "Ready"),
            (vec![missing.clone(), missing.clone()], "Absent"),
            (vec![there.clone(), missing.clone()], "Pending { what: \"1 of 2 parts are missing\" }"),
            (vec![missing.clone(), pending.clone()], "Pending { what: \"p\" }"),
            (vec![pending, broken.clone(), there], "Broken { why: \"b\" }"),
            (vec![broken.clone(), Part::Fixed("v".into())], "Fixed { why: \"v\" }"),
            (vec![broken, foreign, missing], "Foreign { what: \"f\" }"),
        ] {
            let seen = format!("{:?}", sum(&parts, &Digest("d".into())));
            assert!(seen.starts_with(word), "{parts:?}: {seen}");
        }
    }
}
