//! Tables: the plan with what it costs an hour, and what exists.

use std::fmt::Write;

use comfy_table::{Table, presets};

use crate::engine::plan::Planned;
use crate::error::Resource;

/// The plan as a table, with the cost an hour of all that it makes.
pub fn plan(planned: &[Planned]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["step", "verdict", "what", "$/h", "needs"]);
    for row in planned {
        let priced = row.makes.iter().any(|resource| resource.usd_per_hour.is_some());
        let price = if priced { format!("{:.2}", Resource::hourly(&row.makes)) } else { String::new() };
        let verdict = match row.verdict.why() {
            why if why.is_empty() || long(why) => row.verdict.word().to_owned(),
            why => format!("{}: {why}", row.verdict.word()),
        };
        table.add_row([row.step.to_string(), verdict, grouped(&row.makes).join("\n"), price, short(&row.needs)]);
    }
    let mut text = table.to_string();
    for row in planned {
        let why = Some(row.verdict.why()).filter(|why| long(why)).map(|why| format!("{}: {why}", row.verdict.word()));
        for line in row.notes.iter().chain(&why) {
            let _ = write!(text, "\n{}: {line}", row.step);
        }
    }
    let hourly = Resource::hourly_words(planned.iter().flat_map(|row| &row.makes));
    let _ = write!(text, "\nthese steps: {hourly} while what they make exists; `nemo status` tells what all of it costs");
    text
}

/// Too long for a column: it stands below the table.
fn long(why: &str) -> bool {
    why.chars().count() > 60
}

/// Resources of one kind in one line: their name, or their number when there are several.
fn grouped(makes: &[Resource]) -> Vec<String> {
    let mut kinds: Vec<(&str, Vec<&str>)> = Vec::new();
    for resource in makes {
        match kinds.iter_mut().find(|(what, _)| *what == resource.what) {
            Some((_, ids)) => ids.push(&resource.id),
            None => kinds.push((&resource.what, vec![&resource.id])),
        }
    }
    let line = |(what, ids): (&str, Vec<&str>)| match ids.as_slice() {
        [id] => format!("{what} {id}"),
        ids => format!("{what}: {}", ids.len()),
    };
    kinds.into_iter().map(line).collect()
}

/// Needs without their parts, each step once: `network, cluster`.
fn short(needs: &[String]) -> String {
    let mut steps: Vec<&str> = Vec::new();
    for step in needs.iter().filter_map(|need| need.split(' ').next()) {
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    steps.join(", ")
}

/// What exists, one line each, and its cost an hour.
pub fn resources(resources: &[Resource]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for resource in resources {
        let price = match resource.usd_per_hour {
            Some(usd) => format!("${usd:.2}/h"),
            None if resource.bills => "price unknown".into(),
            None => String::new(),
        };
        table.add_row([resource.what.clone(), resource.id.clone(), price]);
    }
    format!("{table}\ntogether {}", Resource::hourly_words(resources))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::plan::Verdict;
    use crate::engine::step::StepId;

    #[test]
    fn a_long_reason_stands_below_the_table() {
        let why = "no longer wanted and removed first: Deployment nemo/frontend, Deployment nemo/vllm-worker";
        let row = |why: &str| Planned { step: StepId::Serve, verdict: Verdict::Update { why: why.into() }, makes: Vec::new(), needs: Vec::new(), notes: vec!["chosen".into()] };
        let text = plan(&[row(why)]);
        assert!(text.contains(&format!("\nserve: chosen\nserve: update: {why}\nthese steps")), "{text}");
        assert!(plan(&[row("settings changed")]).contains("update: settings changed"));
    }

    #[test]
    fn what_has_no_known_price_is_not_free() {
        let nodes = |usd| Resource::new("EKS node group, 1 × p5en.48xlarge", "gpu").costing(usd);
        let unpriced = resources(&[nodes(None), Resource::new("CloudFormation stack (roles)", "nemo-roles")]);
        assert!(unpriced.contains("price unknown") && unpriced.contains("p5en.48xlarge cost money") && !unpriced.contains("$0.00"), "{unpriced}");
        let mixed = resources(&[nodes(Some(63.3)), Resource::new("EKS cluster", "nemo").costing(None)]);
        assert!(mixed.contains("about $63.30 an hour; price unknown of EKS cluster"), "{mixed}");
        assert!(resources(&[nodes(Some(63.3))]).ends_with("together about $63.30 an hour"));
        assert!(resources(&[Resource::new("Namespace", "nemo")]).ends_with("about $0.00 an hour"), "what does not bill is free");
    }
}
