//! Markdown for a comment: the key, what holds, who is ahead, and a table a side.

use super::Report;
use super::rows::{COLUMNS, shown, within};
use crate::compare;

/// Of the columns, those that fit a comment.
const SHOWN: [&str; 9] =
    ["failed", "ttft_p50_ms", "ttft_p95_ms", "itl_p50_ms", "itl_p95_ms", "latency_p95_ms", "output_tokens_per_second", "requests_per_second", "tokens_per_second_per_user"];

pub fn markdown(report: &Report) -> String {
    let mut text = String::from("## Benchmark\n");
    for difference in report.across {
        text += &format!("\nShown together across {}: {}.\n", difference.field, difference.means);
    }
    for (at, side) in report.sides.iter().enumerate() {
        text += &format!("\n### {}\n\n{}\n", word(&side.name), word(&side.comparable().to_string()));
        if let Some(said) = within(report, at) {
            text += &format!("\n**{said}**\n");
        }
        for level in side.levels.iter().filter(|level| !level.objections.is_empty()) {
            text += &format!("\nConcurrency {} is not to be trusted: {}\n", level.concurrency, word(&level.objections.join("; ")));
        }
        let columns: Vec<_> = COLUMNS.iter().filter(|column| SHOWN.contains(&column.key)).collect();
        text += &format!(
            "\n| concurrency |{}\n| ---: |{}\n",
            columns.iter().map(|column| format!(" {} |", head(column.key, column.title))).collect::<String>(),
            " ---: |".repeat(columns.len())
        );
        for level in &side.levels {
            let cells: String = columns.iter().map(|column| format!(" {} |", shown((column.of)(level), column.digits))).collect();
            text += &format!("| {} |{cells}\n", level.concurrency);
        }
    }
    if report.sides.len() > 1 {
        text += "\n### Where another gets ahead\n\n";
        let said: Vec<String> = compare::told(report.sides).iter().map(|line| format!("- {}\n", word(line))).collect();
        text += &said.concat();
    }
    text
}

/// A table of Markdown has no cells over several columns: each says what it is of.
fn head(key: &str, title: &str) -> String {
    match key {
        "ttft_p95_ms" => "TTFT p95, ms".into(),
        "itl_p95_ms" => "ITL p95, ms".into(),
        "latency_p95_ms" => "answer p95, ms".into(),
        _ => title.to_owned(),
    }
}

/// A word that somebody else chose, as text and nothing else: GitHub makes mentions, links and HTML of what is not escaped.
fn word(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, c| {
        match c {
            '\n' | '\r' => escaped.push(' '),
            '<' => escaped += "&lt;",
            '&' => escaped += "&amp;",
            '@' => escaped += "&#64;",
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '(' | ')' | '#' | '!' | '|' | '>' | '~' => escaped.extend(['\\', c]),
            _ => escaped.push(c),
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn words_of_others_stay_words() {
        assert_eq!(word("a|b\n# <script>@x `y` [z](u)"), "a\\|b \\# &lt;script\\>&#64;x \\`y\\` \\[z\\]\\(u\\)");
    }
}
