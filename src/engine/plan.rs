//! Deciding: pure. What was seen and what was noted become a verdict for each step.

use serde::Serialize;

use super::state::{Record, Status};
use super::step::{Digest, OnChange, Seen, StepId};
use crate::error::{Kind, Resource};

/// What will be done about a step, and why.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// It is there as it should be: no write at all.
    Keep,
    /// It is made.
    Create { why: String },
    /// It is being made already: waited for, and completed.
    Wait { why: String },
    /// It is brought to the present settings, or repaired.
    Update { why: String },
    /// Nothing is done about it, and the walk does not begin.
    Refuse {
        why: String,
        hint: String,
        #[serde(skip)]
        #[schemars(skip)]
        kind: Kind,
    },
}

impl Verdict {
    /// Does it change anything?
    pub fn acts(&self) -> bool {
        !matches!(self, Self::Keep | Self::Refuse { .. })
    }

    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Create { .. } => "create",
            Self::Wait { .. } => "wait",
            Self::Update { .. } => "update",
            Self::Refuse { .. } => "refuse",
        }
    }

    /// The reason, if there is one to give.
    pub fn why(&self) -> &str {
        match self {
            Self::Keep => "",
            Self::Create { why } | Self::Wait { why } | Self::Update { why } | Self::Refuse { why, .. } => why,
        }
    }
}

/// A step with its verdict, as the plan shows it.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Planned {
    pub step: StepId,
    #[serde(flatten)]
    pub verdict: Verdict,
    /// What it makes, or has made.
    pub makes: Vec<Resource>,
    /// What has to be there first.
    pub needs: Vec<String>,
    /// What was chosen, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The verdict for one step.
pub fn decide(id: StepId, want: &Digest, note: Option<&Record>, seen: &Seen, on_change: OnChange) -> Verdict {
    match seen {
        Seen::Foreign { what } => {
            Verdict::Refuse { why: format!("{what} is there and is not ours"), hint: "choose another --name, or remove it yourself".into(), kind: Kind::Conflict }
        }
        Seen::Unreachable => Verdict::Create { why: "what it lives in is not there yet".into() },
        Seen::Absent => Verdict::Create {
            why: match note.map(|note| note.status) {
                Some(Status::Done) => "it was made before and is gone".into(),
                Some(Status::Started | Status::Failed) => "it was begun before; nothing of it is there".into(),
                None => "not there".into(),
            },
        },
        Seen::Pending { what } => Verdict::Wait { why: what.clone() },
        Seen::Broken { why } => Verdict::Update { why: why.clone() },
        Seen::Fixed { why } => refuse(id, why.clone()),
        Seen::Impossible { why, hint } => Verdict::Refuse { why: why.clone(), hint: hint.clone(), kind: Kind::Usage },
        Seen::Ready { inputs, .. } => {
            // What the resource says of itself wins over our note: the cloud is the truth.
            match inputs.as_ref().or(note.map(|note| &note.inputs)) {
                None => Verdict::Keep,
                Some(have) if have == want => Verdict::Keep,
                Some(_) => match on_change {
                    OnChange::InPlace => Verdict::Update { why: "settings changed".into() },
                    OnChange::Refuse => refuse(id, format!("the settings that {id} was made from have changed, and it cannot be changed in place")),
                },
            }
        }
    }
}

fn refuse(id: StepId, why: String) -> Verdict {
    Verdict::Refuse { why, hint: format!("put the settings back, or remove and make it anew: nemo cleanup --from {id}"), kind: Kind::Conflict }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::clock;

    fn note(status: Status, inputs: &str) -> Record {
        Record { status, inputs: Digest(inputs.into()), started: clock::now(), finished: None, parts: vec![], facts: toml::Table::new() }
    }

    fn ready(inputs: Option<&str>) -> Seen {
        Seen::Ready { inputs: inputs.map(|i| Digest(i.into())), facts: toml::Table::new() }
    }

    #[test]
    fn table() {
        let want = Digest("a".into());
        let cases: Vec<(Option<Record>, Seen, OnChange, &str)> = vec![
            (None, Seen::Absent, OnChange::InPlace, "create"),
            (None, Seen::Unreachable, OnChange::InPlace, "create"),
            (Some(note(Status::Done, "a")), Seen::Absent, OnChange::Refuse, "create"),
            (Some(note(Status::Started, "a")), Seen::Pending { what: "CREATING".into() }, OnChange::Refuse, "wait"),
            (None, ready(Some("a")), OnChange::Refuse, "keep"),
            (None, ready(None), OnChange::Refuse, "keep"),
            (Some(note(Status::Done, "b")), ready(Some("a")), OnChange::Refuse, "keep"),
            (Some(note(Status::Done, "b")), ready(None), OnChange::InPlace, "update"),
            (Some(note(Status::Done, "b")), ready(None), OnChange::Refuse, "refuse"),
            (Some(note(Status::Started, "a")), ready(Some("a")), OnChange::Refuse, "keep"),
            (Some(note(Status::Done, "a")), ready(Some("b")), OnChange::InPlace, "update"),
            (Some(note(Status::Done, "a")), Seen::Broken { why: "x".into() }, OnChange::Refuse, "update"),
            (None, Seen::Foreign { what: "cluster nemo".into() }, OnChange::InPlace, "refuse"),
            (Some(note(Status::Done, "a")), Seen::Fixed { why: "disk".into() }, OnChange::InPlace, "refuse"),
            (None, Seen::Impossible { why: "no Grove".into(), hint: "--as auto".into() }, OnChange::InPlace, "refuse"),
        ];
        for (note, seen, on_change, word) in cases {
            assert_eq!(decide(StepId::Cluster, &want, note.as_ref(), &seen, on_change).word(), word, "{note:?} {seen:?} {on_change:?}");
        }
    }

    fn any_seen() -> impl Strategy<Value = Seen> {
        prop_oneof![
            Just(Seen::Unreachable),
            Just(Seen::Absent),
            ".{0,8}".prop_map(|what| Seen::Pending { what }),
            ".{0,8}".prop_map(|why| Seen::Broken { why }),
            ".{0,8}".prop_map(|what| Seen::Foreign { what }),
            ".{0,8}".prop_map(|why| Seen::Fixed { why }),
            ".{0,8}".prop_map(|why| Seen::Impossible { why, hint: String::new() }),
            proptest::option::of("[ab]").prop_map(|inputs| ready(inputs.as_deref())),
        ]
    }

    proptest! {
        /// Nothing that is not ours is ever acted on, and what is there as wanted is never written.
        #[test]
        fn never_acts_on_what_it_must_not(seen in any_seen(), inputs in "[ab]", noted in proptest::option::of("[ab]"), refuse: bool) {
            let want = Digest(inputs);
            let note = noted.map(|n| note(Status::Done, &n));
            let verdict = decide(StepId::Network, &want, note.as_ref(), &seen, if refuse { OnChange::Refuse } else { OnChange::InPlace });
            match &seen {
                Seen::Foreign { .. } | Seen::Fixed { .. } | Seen::Impossible { .. } => prop_assert!(!verdict.acts()),
                Seen::Ready { inputs: Some(have), .. } if *have == want => prop_assert_eq!(verdict, Verdict::Keep),
                Seen::Ready { .. } => prop_assert!(!refuse || !verdict.acts()),
                _ => prop_assert!(verdict.acts()),
            }
        }
    }
}
