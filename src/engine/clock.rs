//! The one home of time and sleep; `clippy.toml` forbids them elsewhere.

use std::time::Duration;

use jiff::Timestamp;

/// Now, to the millisecond: what is written down is read by people.
#[expect(clippy::disallowed_methods, reason = "this is the home of the clock")]
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

/// Sleeps.
#[expect(clippy::disallowed_methods, reason = "this is the home of sleep")]
pub async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// A span of time in the words people use: `4s`, `2m10s`, `1h05m`.
pub fn words(time: Duration) -> String {
    let s = time.as_secs();
    match s {
        0 => format!("{}ms", time.as_millis()),
        1..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        _ => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_words() {
        for (s, w) in [(0.25, "250ms"), (4.0, "4s"), (130.0, "2m10s"), (3900.0, "1h05m")] {
            assert_eq!(words(Duration::from_secs_f64(s)), w);
        }
    }
}
