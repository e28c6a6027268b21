//! Tables: the plan with what it costs an hour, and what exists.

use std::fmt::Write;

use comfy_table::{Table, presets};

use crate::engine::plan::Planned;
use crate::error::Resource;

/// The plan as a table, with the cost an hour of all that it makes.
pub fn plan(planned: &[Planned]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(["step", "verdict", "what", "$/h", "needs"]);
    let mut hourly = 0.0;
    for row in planned {
        let what: Vec<_> = row.makes.iter().map(|resource| format!("{} {}", resource.what, resource.id)).collect();
        let usd: Vec<f64> = row.makes.iter().filter_map(|resource| resource.usd_per_hour).collect();
        hourly += usd.iter().sum::<f64>();
        let price = if usd.is_empty() { String::new() } else { format!("{:.2}", usd.iter().sum::<f64>()) };
        let verdict = match row.verdict.why() {
            "" => row.verdict.word().to_owned(),
            why => format!("{}: {why}", row.verdict.word()),
        };
        table.add_row([row.step.to_string(), verdict, what.join("\n"), price, row.needs.join(", ")]);
    }
    let mut text = table.to_string();
    let _ = write!(text, "\ntogether about ${hourly:.2} an hour while it exists");
    text
}

/// What exists, one line each, and its cost an hour.
pub fn resources(resources: &[Resource]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for resource in resources {
        table.add_row([resource.what.clone(), resource.id.clone(), resource.usd_per_hour.map(|usd| format!("${usd:.2}/h")).unwrap_or_default()]);
    }
    let hourly: f64 = resources.iter().filter_map(|resource| resource.usd_per_hour).sum();
    format!("{table}\ntogether about ${hourly:.2} an hour, as far as prices are known")
}
