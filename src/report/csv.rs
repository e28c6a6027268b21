//! CSV: a row a level for spreadsheets, and five columns a request for whoever wants to work it out anew.

use std::fmt::Write;

use super::Report;
use super::rows::COLUMNS;
use crate::bench::level::Level;
use crate::bench::records::Outcome;
use crate::bench::side::Side;

/// A row a level of every side.
pub fn levels(report: &Report) -> String {
    let mut text = String::from("side,aiperf,model,precision,tokenizer,isl,osl,streaming,gpus,concurrency");
    COLUMNS.iter().for_each(|column| text += &format!(",{}", column.key));
    text += ",objections\n";
    for (at, side) in report.sides.iter().enumerate() {
        let key = side.comparable();
        let gpus = report.gpus.map(|_| report.per(at).to_string()).unwrap_or_default();
        for level in &side.levels {
            let words = [&side.name, &key.aiperf, &key.model, key.precision.as_ref().unwrap_or(&String::new()), &key.tokenizer].map(|word| field(word));
            text += &format!("{},{},{},{},{gpus},{}", words.join(","), key.isl, key.osl, key.streaming, level.concurrency);
            for column in &COLUMNS {
                text += &format!(",{}", (column.of)(level).map(|value| value.to_string()).unwrap_or_default());
            }
            text += &format!(",{}\n", field(&level.objections.join("; ")));
        }
    }
    text
}

/// A word that somebody else chose: quoted where it has to be, and no formula for a spreadsheet.
fn field(word: &str) -> String {
    let word = if word.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{word}") } else { word.to_owned() };
    if word.contains([',', '"', '\n', '\r']) { format!("\"{}\"", word.replace('"', "\"\"")) } else { word }
}

/// The five columns of every request; the whole answer took ttft_ms + itl_ms × (output_tokens − 1). One that failed has its start alone.
pub const REQUESTS: &str = "concurrency,start_ms,ttft_ms,itl_ms,output_tokens\n";

/// A row a request, in the order in which they ended; times since the level's first start.
pub fn requests(side: &Side) -> String {
    let mut text = String::from(REQUESTS);
    side.levels.iter().for_each(|level| of_level(&mut text, level));
    text
}

fn of_level(text: &mut String, level: &Level) {
    let first = level.requests.iter().map(|request| request.start_ns).min().unwrap_or_default();
    for request in &level.requests {
        let _ = write!(text, "{},{}", level.concurrency, (request.start_ns - first) / 1_000_000);
        let measured = match &request.outcome {
            Outcome::Answered(measured) => measured,
            Outcome::Failed { .. } => {
                *text += ",,,\n";
                continue;
            }
        };
        for (value, digits) in [(measured.ttft_ms, 1), (measured.itl_ms, 2), (measured.output_tokens, 0)] {
            text.push(',');
            if let Some(value) = value {
                let _ = write!(text, "{value:.digits$}");
            }
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn words_of_others_are_quoted_and_no_formulas() {
        for (word, want) in [("agg", "agg"), ("a,b", "\"a,b\""), ("a\"b", "\"a\"\"b\""), ("=cmd()", "'=cmd()"), ("-1\n2", "\"'-1\n2\""), ("", "")] {
            assert_eq!(field(word), want);
        }
    }
}
