//! The page: everything that the template needs, worked out; the template only places it, and escapes every word.

use std::io::Write;

use base64::Engine;
use flate2::Compression;
use flate2::write::GzEncoder;
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use super::chart::{self, Chart, Drawn, Line, Mark, SHAPES, Scale, Table, Tick, legend, shape};
use super::rows::{COLUMNS, per_user, shown, statistics, within};
use super::{Report, csv};
use crate::bench::level::Level;
use crate::bench::measure::{Estimate, Metric, Statistic};
use crate::compare;

const TEMPLATE: &str = include_str!("../../templates/report/report.html");

#[derive(Serialize)]
struct Page<'a> {
    title: String,
    version: &'static str,
    width: f64,
    height: f64,
    sides: Vec<SidePart<'a>>,
    across: Vec<String>,
    budgets: Vec<String>,
    compared: Vec<String>,
    charts: Vec<Chart>,
    columns: &'static str,
}

#[derive(Serialize)]
struct SidePart<'a> {
    name: &'a str,
    within: Option<String>,
    objections: Vec<String>,
    /// Name and value of what has to be the same to compare, and of what was measured.
    key: Vec<(&'static str, String)>,
    table: Table,
    requests: usize,
    download: String,
}

pub fn html(report: &Report) -> anyhow::Result<String> {
    let names: Vec<&str> = report.sides.iter().map(|side| side.name.as_str()).collect();
    let page = Page {
        title: names.join(", "),
        version: env!("CARGO_PKG_VERSION"),
        width: chart::WIDTH,
        height: chart::HEIGHT,
        sides: (0..report.sides.len()).map(|at| side(report, at)).collect::<anyhow::Result<_>>()?,
        across: report.across.iter().map(|difference| format!("{}: {}", difference.field, difference.means)).collect(),
        budgets: report.budgets.iter().map(ToString::to_string).collect(),
        compared: if report.sides.len() > 1 { compare::told(report.sides) } else { Vec::new() },
        charts: vec![over(report, "ttft", Metric::Ttft), over(report, "itl", Metric::Itl), throughput(report), pareto(report)],
        columns: csv::REQUESTS.trim_end(),
    };
    let mut environment = Environment::new();
    environment.add_template("report.html", TEMPLATE)?;
    Ok(environment.get_template("report.html")?.render(Serde(&page))?)
}

fn side<'a>(report: &Report<'a>, at: usize) -> anyhow::Result<SidePart<'a>> {
    let side = &report.sides[at];
    let key = side.comparable();
    let mut pairs = vec![
        ("model", key.model.clone()),
        ("precision", key.precision.clone().unwrap_or_else(|| "not known".into())),
        ("tokenizer", key.tokenizer.clone()),
        ("input tokens asked", key.isl.to_string()),
        ("output tokens asked", key.osl.to_string()),
        ("streaming", if key.streaming { "yes" } else { "no" }.into()),
        ("aiperf", key.aiperf.clone()),
    ];
    if let Some(gpus) = report.gpus.and_then(|gpus| gpus.get(at)) {
        pairs.push(("GPUs", gpus.to_string()));
    }
    pairs.push(("folders", side.levels.iter().map(|level| level.folder.display().to_string()).collect::<Vec<_>>().join(", ")));
    let row = |level: &Level| std::iter::once(level.concurrency.to_string()).chain(COLUMNS.iter().map(|column| shown((column.of)(level), column.digits))).collect();
    Ok(SidePart {
        name: &side.name,
        within: within(report, at),
        objections: side.levels.iter().flat_map(|level| level.objections.iter().map(|why| format!("concurrency {}: {why}", level.concurrency))).collect(),
        key: pairs,
        table: Table {
            caption: format!("{}: every level", side.name),
            head: std::iter::once("concurrency").chain(COLUMNS.iter().map(|column| column.title)).map(str::to_owned).collect(),
            rows: side.levels.iter().map(row).collect(),
        },
        requests: side.levels.iter().map(|level| level.requests.len()).sum(),
        download: packed(&csv::requests(side))?,
    })
}

/// As it stands in a link: 100,000 requests are under two megabytes.
fn packed(text: &str) -> anyhow::Result<String> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes())?;
    Ok(base64::engine::general_purpose::STANDARD.encode(gzip.finish()?))
}

fn all_levels(report: &Report) -> Vec<u32> {
    let mut levels: Vec<u32> = report.sides.iter().flat_map(|side| side.levels.iter().map(|level| level.concurrency)).collect();
    levels.sort_unstable();
    levels.dedup();
    levels
}

/// Not every level has room for its label: those that stand too near the one before go without.
fn level_ticks(levels: &[u32], x: Scale) -> Vec<Tick> {
    let mut right = f64::NEG_INFINITY;
    let mut tick = |level: &u32| {
        let (at, label) = (x.x(f64::from(*level)), level.to_string());
        let half = 5.2 * label.len() as f64;
        let room = at - half > right;
        right = if room { at + half } else { right };
        Tick { at, label: if room { label } else { String::new() } }
    };
    levels.iter().map(&mut tick).collect()
}

fn number_ticks(scale: Scale, place: impl Fn(f64) -> f64) -> Vec<Tick> {
    scale.round().into_iter().map(|value| Tick { at: place(value), label: format!("{}", (value * 1e6).round() / 1e6) }).collect()
}

/// The table behind lines over concurrency.
fn table(caption: String, levels: &[u32], lines: &[Line], digits: usize) -> Table {
    let cell = |line: &Line, level: u32| shown(line.points.iter().find(|(at, _)| *at == f64::from(level)).and_then(|(_, value)| *value), digits);
    Table {
        caption,
        head: std::iter::once("concurrency".to_owned()).chain(lines.iter().map(|line| line.label.clone())).collect(),
        rows: levels.iter().map(|level| std::iter::once(level.to_string()).chain(lines.iter().map(|line| cell(line, *level))).collect()).collect(),
    }
}

fn lines(report: &Report, style: usize, words: &str, value: impl Fn(usize, &Level) -> Option<f64>) -> Vec<Line> {
    let one = |(at, side): (usize, &crate::bench::side::Side)| Line {
        side: at,
        style,
        label: [side.name.as_str(), words].join(" ").trim_end().to_owned(),
        points: side.levels.iter().map(|level| (f64::from(level.concurrency), value(at, level))).collect(),
        loose: false,
    };
    report.sides.iter().enumerate().map(one).collect()
}

fn over(report: &Report, id: &'static str, metric: Metric) -> Chart {
    let (title, digits) = match metric {
        Metric::Ttft => ("Time to first token", 1),
        Metric::Itl => ("Inter-token latency", 2),
        Metric::Latency => ("Whole answer", 0),
    };
    let value = |level: &Level, statistic: Statistic| Some(Estimate::of(metric.values(level), statistic)?.value).filter(|value| value.is_finite());
    let all: Vec<Line> = statistics(metric, report.budgets)
        .into_iter()
        .enumerate()
        .flat_map(|(style, statistic)| lines(report, style, &statistic.to_string(), |_, level| value(level, statistic)))
        .collect();
    let limits: Vec<_> = report.budgets.iter().filter(|budget| budget.metric == metric).collect();
    let highest = all.iter().flat_map(|line| &line.points).filter_map(|(_, value)| *value).chain(limits.iter().map(|limit| limit.limit_ms));
    let y = Scale::linear(highest);
    let limits = limits.iter().map(|limit| Tick { at: y.y(limit.limit_ms), label: limit.to_string() }).collect();
    over_concurrency(report, id, title.to_owned(), "ms".to_owned(), all, (y, digits), limits)
}

fn throughput(report: &Report) -> Chart {
    let (title, unit) = match report.gpus {
        Some(_) => ("Throughput of a GPU", "output tokens/s a GPU"),
        None => ("Throughput", "output tokens/s"),
    };
    let all = lines(report, 1, "", |at, level| Some(level.numbers.output_tokens_per_second / report.per(at)).filter(|value| value.is_finite()));
    let y = Scale::linear(all.iter().flat_map(|line| &line.points).filter_map(|(_, value)| *value));
    over_concurrency(report, "throughput", title.to_owned(), unit.to_owned(), all, (y, 1), Vec::new())
}

fn over_concurrency(report: &Report, id: &'static str, title: String, unit: String, all: Vec<Line>, (y, digits): (Scale, usize), limits: Vec<Tick>) -> Chart {
    let levels = all_levels(report);
    let x = Scale::levels(&levels);
    let table = table(format!("{title}, {unit}"), &levels, &all, digits);
    let says = match (all.iter().flat_map(|line| &line.points).any(|(_, value)| value.is_some()), limits.as_slice()) {
        (false, _) => "Not measured: answers came in one piece, or too many requests failed.".to_owned(),
        (true, []) => format!("{unit} over requests at once, a line each: {}.", all.iter().map(|line| line.label.as_str()).collect::<Vec<_>>().join(", ")),
        (true, limits) => format!("{unit} over requests at once, with limits: {}.", limits.iter().map(|limit| limit.label.as_str()).collect::<Vec<_>>().join(", ")),
    };
    let draw = |line: Line| {
        let label = line.label.clone();
        line.draw(x, y, |level, value| format!("{label}: {value:.digits$} {unit} at concurrency {level}"))
    };
    Chart {
        id,
        title,
        says,
        x_label: "requests at once (each doubling as wide)",
        y_ticks: number_ticks(y, |value| y.y(value)),
        lines: all.into_iter().map(draw).collect(),
        limits,
        x_ticks: level_ticks(&levels, x),
        y_label: unit.clone(),
        table,
    }
}

/// One level as a point of the front: what one user sees, and what a GPU delivers.
struct Trade {
    side: usize,
    concurrency: u32,
    user: f64,
    gpu: f64,
}

fn pareto(report: &Report) -> Chart {
    let unit = if report.gpus.is_some() { "output tokens/s a GPU" } else { "output tokens/s, whole deployment" };
    let mut trades: Vec<Trade> = Vec::new();
    for (at, side) in report.sides.iter().enumerate() {
        for level in &side.levels {
            let Some(user) = per_user(level) else { continue };
            trades.push(Trade { side: at, concurrency: level.concurrency, user, gpu: level.numbers.output_tokens_per_second / report.per(at) });
        }
    }
    trades.sort_by(|one, other| other.user.total_cmp(&one.user));
    let on_front = |trade: &Trade| !trades.iter().any(|other| (other.user > trade.user && other.gpu >= trade.gpu) || (other.user >= trade.user && other.gpu > trade.gpu));
    let (x, y) = (Scale::linear(trades.iter().map(|trade| trade.user)), Scale::linear(trades.iter().map(|trade| trade.gpu)));
    let name = |trade: &Trade| format!("{} at concurrency {}", report.sides[trade.side].name, trade.concurrency);
    let says = |trade: &Trade| format!("{}: {:.1} tokens/s a user, {:.1} {unit}{}", name(trade), trade.user, trade.gpu, if on_front(trade) { ", on the front" } else { "" });
    let front: Vec<&Trade> = trades.iter().filter(|trade| on_front(trade)).collect();
    let path = front.iter().enumerate().map(|(at, trade)| format!("{}{} {}", if at == 0 { "M" } else { "L" }, x.x(trade.user), y.y(trade.gpu))).collect();
    let mut lines: Vec<_> = (0..report.sides.len())
        .map(|side| {
            let marks = trades.iter().filter(|trade| trade.side == side).map(|trade| Mark { path: shape(side, x.x(trade.user), y.y(trade.gpu)), says: says(trade) }).collect();
            Drawn { side: side % SHAPES, style: 1, label: report.sides[side].name.clone(), path: String::new(), marks, mark: legend(side) }
        })
        .collect();
    lines.push(Drawn { side: SHAPES, style: 1, label: "Pareto front".into(), path, marks: Vec::new(), mark: String::new() });
    let row = |trade: &Trade| {
        let words = if on_front(trade) { "yes" } else { "no" };
        vec![name(trade), format!("{:.1}", trade.user), format!("{:.1}", trade.gpu), words.into()]
    };
    Chart {
        id: "pareto",
        title: "What a user sees against what a GPU delivers".into(),
        says: match front.is_empty() {
            true => "Not measured: what a user sees takes the inter-token latency.".into(),
            false => {
                format!("{unit} over tokens/s a user. {} of {} levels are on the Pareto front: no other is better for the user without delivering less.", front.len(), trades.len())
            }
        },
        x_label: "output tokens/s a user (1000 ÷ median ITL)",
        y_label: unit.to_owned(),
        x_ticks: number_ticks(x, |value| x.x(value)),
        y_ticks: number_ticks(y, |value| y.y(value)),
        lines,
        limits: Vec::new(),
        table: Table {
            caption: format!("Tokens/s a user and {unit}"),
            head: ["level", "tokens/s a user", unit, "on the front"].map(str::to_owned).to_vec(),
            rows: trades.iter().map(row).collect(),
        },
    }
}
